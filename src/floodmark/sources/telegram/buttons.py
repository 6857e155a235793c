"""Describe the buttons below a message. Imports Telethon."""

import base64
from typing import Any

from .plain_values import snake_case

_KIND_PREFIXES = ("InlineButtonType", "ButtonType")
_TEXTS = ("url", "query", "copy_text")


def buttons_of(markup: Any) -> list[list[dict[str, Any]]]:
    """Return the rows of buttons; an empty list for a markup without buttons."""
    return [[_button(button) for button in row.buttons] for row in getattr(markup, "rows", None) or ()]


def _button(button: Any) -> dict[str, Any]:
    kind = button.type
    made: dict[str, Any] = {"text": button.text, "type": _kind_name(kind)}
    made |= {name: value for name in _TEXTS if (value := getattr(kind, name, None))}
    if data := getattr(kind, "data", None):
        made["data"] = base64.b64encode(data).decode()
    if user_id := getattr(kind, "user_id", None):
        made["user_id"] = str(user_id)
    return made


def _kind_name(kind: Any) -> str:
    name = type(kind).__name__
    for prefix in _KIND_PREFIXES:
        name = name.removeprefix(prefix)
    return snake_case(name) or "text"
