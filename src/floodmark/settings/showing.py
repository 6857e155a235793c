"""Formats valid and invalid settings for display, without secrets."""

import json
from datetime import timedelta
from enum import Enum
from typing import Any, NamedTuple, get_args

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from floodmark.security.masking import MASK, mask_text


class Allowed(NamedTuple):
    """The condition for a value; completes "X is not ..."."""

    words: str
    is_url: bool = False
    is_secret: bool = False


def format_value(value: object) -> str:
    """Return a valid value in the form in which it can be typed."""
    match value:
        case None:
            return ""
        case SecretStr():
            return MASK
        case timedelta():
            return _format_duration(value)
        case float():
            return f"{value:.12g}"
        case bool():
            return str(value).lower()
        case _:
            return mask_text(str(value))


def format_wrong(field: FieldInfo, text: str) -> str:
    """Return an invalid value in quotes."""
    rule = condition_of(field)
    if rule.is_secret:
        return MASK
    if rule.is_url and "@" in text:
        # A broken URL hides its password where the rules for whole ones do not find it.
        text = f"{MASK}@{text.rpartition('@')[2]}"
    return quote_text(mask_text(text))


def quote_text(text: str) -> str:
    """Return the text in double quotes, on one line, with a limited length."""
    return json.dumps(text if len(text) <= 80 else text[:80] + "…", ensure_ascii=False)


def condition_of(field: FieldInfo) -> Allowed:
    """Return the condition of a setting."""
    marks = (*field.metadata, *(mark for member in get_args(field.annotation) for mark in get_args(member)))
    given = [mark for mark in marks if isinstance(mark, Allowed)]
    return given[0] if given else Allowed(f"one of {', '.join(_choices(field.annotation))}")


def _choices(annotation: Any) -> list[str]:
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [str(choice.value) for choice in annotation]
    return [str(choice) for choice in get_args(annotation)]


def _format_duration(value: timedelta) -> str:
    seconds = value.total_seconds()
    for unit, length in (("h", 3600), ("m", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds // length:.12g}{unit}"
    return f"{seconds:.12g}s"
