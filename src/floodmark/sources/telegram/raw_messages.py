"""A message of Telegram as plain data, with every field that Telegram sent. Imports Telethon.

An object has the name of its type under `_`. Empty fields are left out, bytes are base64, times are text, and whole
numbers that JavaScript cannot represent are text.
"""

import base64
from datetime import datetime
from typing import Any

import msgspec
from telethon.tl import TLObject

from .plain_values import time_text

# The largest raw message that is stored. Instant views and long polls are larger than others, but not that large.
MAX_RAW_BYTES = 64 * 1024
# Deeper objects are left out: instant views nest blocks in blocks.
_DEEPEST = 24
_LARGEST_EXACT = 2**53
_encoder = msgspec.json.Encoder()


def raw_of(message: Any) -> dict[str, Any]:
    """Return a message as plain data; of one that is too large, only its type, id and size."""
    made: dict[str, Any] = _object(message, 0)
    size = len(_encoder.encode(made))
    return made if size <= MAX_RAW_BYTES else {"_": made["_"], "id": message.id, "left_out_bytes": size}


def _object(thing: Any, depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {"_": type(thing).__name__}
    for name, value in vars(thing).items():
        if name.startswith("_") or value is None or value is False:
            continue
        made[name] = _value(value, depth + 1)
    return made


def _value(value: Any, depth: int) -> Any:
    if isinstance(value, TLObject):
        return _object(value, depth) if depth < _DEEPEST else {"_": type(value).__name__}
    if isinstance(value, list | tuple):
        return [_value(each, depth + 1) for each in value] if depth < _DEEPEST else []
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return time_text(value)
    if type(value) is int and abs(value) >= _LARGEST_EXACT:
        return str(value)
    return value if isinstance(value, str | int | float | bool) else str(value)
