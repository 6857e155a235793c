"""The demo: a Telegram on this machine with ten channels, and a Floodmark that collects every post of them once.

Everything is in one folder: `floodmark.db`, `town.json` (how long the channels have lived) and `demo.log`.
"""

from .demo import ChannelView, Demo, Summary, View, demo_folder

__all__ = ["ChannelView", "Demo", "Summary", "View", "demo_folder"]
