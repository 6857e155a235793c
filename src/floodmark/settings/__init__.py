"""All settings: `keys.py` defines them, `load` reads them, `python -m floodmark.settings` prints the reference page."""

from .keys import Origin, SettingRow, Settings
from .loading import keys, load

__all__ = ["Origin", "SettingRow", "Settings", "keys", "load"]
