"""Identifiers: 32 hexadecimal digits that begin with the time, so that they sort by creation."""

import os
import time
from datetime import datetime


def new_id() -> str:
    """Return a new unique identifier in the layout of UUID version 7, without the dashes."""
    random = os.urandom(10)
    return f"{time.time_ns() // 1_000_000:012x}7{random[:2].hex()[1:]}{0x80 | random[2] & 0x3F:02x}{random[3:].hex()}"


def floor_id(moment: datetime) -> str:
    """Return a bound: identifiers created before `moment` sort before it, later ones after it."""
    return f"{int(moment.timestamp() * 1000):012x}"
