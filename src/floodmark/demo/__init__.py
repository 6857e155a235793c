"""The demo: a local Telegram server with ten channels, and a Floodmark that collects every post once.

Everything is in one folder: `floodmark.db`, `town.json` (the age of the channels) and `demo.log`.
"""

from .channels import GUEST_CODE, GUEST_PHONE
from .demo import ChannelView, Demo, DemoView, Summary, demo_folder

__all__ = ["GUEST_CODE", "GUEST_PHONE", "ChannelView", "Demo", "DemoView", "Summary", "demo_folder"]
