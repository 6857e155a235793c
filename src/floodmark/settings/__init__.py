"""Every key is in `keys.py`, `load` gathers them, `python -m floodmark.settings` prints them as a page."""

from .keys import Origin, Row, Settings
from .loading import keys, load

__all__ = ["Origin", "Row", "Settings", "keys", "load"]
