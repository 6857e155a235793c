"""JSON input with limited depth.

Much of our code walks values recursively, and so do both databases. A value nested deeper than `MAX_DEPTH` is
refused at every entrance: API bodies, webhooks, Redis messages, command-line params, job fields. A stored row may
be a little deeper, because accepted values are wrapped in others before they are stored.
"""

from typing import Any

import msgspec

MAX_DEPTH = 32
STORED_DEPTH = 2 * MAX_DEPTH

_NESTING = (dict, list, tuple)


class NotJson(ValueError):
    """A text that is not JSON, or that is nested too deeply; the message says which."""


class TooDeep(NotJson):
    """A value that is nested deeper than allowed."""

    def __init__(self, depth: int = MAX_DEPTH) -> None:
        super().__init__(f"nested too deeply: at most {depth} levels are allowed")


def read_json(text: bytes | str, *, depth: int = MAX_DEPTH) -> Any:
    """Return the value of a JSON text; raise `NotJson` or `TooDeep`."""
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        raise TooDeep(depth) from None
    except UnicodeDecodeError as error:
        raise NotJson(f"byte {error.start} is not UTF-8") from None
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise NotJson(str(error)) from None
    # A text with few brackets cannot be deep: most need no further check.
    if _brackets(text) > depth:
        require_shallow(value, depth=depth)
    return value


def read_stored_json(text: bytes | str) -> Any:
    """Return the value of a JSON column, or an unreadable text as it is: one bad row must not hide the others."""
    try:
        return read_json(text, depth=STORED_DEPTH)
    except NotJson:
        return text


def require_shallow(value: Any, *, depth: int = MAX_DEPTH) -> None:
    """Raise `TooDeep` if lists and objects are nested deeper than `depth` levels."""
    level = [value] if isinstance(value, _NESTING) else []
    for _ in range(depth):
        level = [inner for outer in level for inner in _entries(outer) if isinstance(inner, _NESTING)]
        if not level:
            return
    raise TooDeep(depth)


def _entries(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value


def _brackets(text: bytes | str) -> int:
    return text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
