"""Parse the values of options."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from floodmark.errors import InvalidInput
from floodmark.model.durations import parse_every
from floodmark.model.moments import begin_of
from floodmark.model.strict_json import TooDeep, require_shallow

T = TypeVar("T")


def params_of(assignments: Sequence[str]) -> dict[str, Any]:
    """Return params: `depth=2` is a number, `deep=true` a boolean, `tags=["a"]` a list, `name=news` text."""
    found: dict[str, Any] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InvalidInput(f"--param {text[:60]!r} is not NAME=VALUE", hint="for example --param depth=2")
        found[key.strip()] = _require_shallow(json_or_text(value), text)
    return found


def json_or_text(value: str) -> Any:
    """Return the value of JSON, or the text if it is not JSON."""
    try:
        return json.loads(value, parse_constant=str)
    except RecursionError:
        raise _too_deep(value) from None
    except ValueError:
        return value


def json_object(text: str, *, example: str) -> dict[str, Any]:
    """Return the value of a JSON object."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise _too_deep(text) from None
    except ValueError as error:
        raise InvalidInput(f"{text[:60]!r} is not JSON: {error}", hint=f"for example '{example}'") from None
    if not isinstance(value, dict):
        raise InvalidInput(f"{text[:60]!r} is not an object", hint=f"for example '{example}'")
    return _require_shallow(value, text)


def _require_shallow(value: T, text: str) -> T:
    try:
        require_shallow(value)
    except TooDeep:
        raise _too_deep(text) from None
    return value


def _too_deep(text: str) -> InvalidInput:
    return InvalidInput(f"{text[:60]!r} is {TooDeep()}", hint="use a flatter value")


def duration(text: str | None) -> timedelta | None:
    """Return the duration, or None for None."""
    return None if text is None else parse_every(text)


def parse_moment(text: str, now: datetime) -> datetime:
    """Return the time of `2h` (ago), of a day (`2026-11-01`), or of a time (`2026-11-01T06:00`); UTC is the default."""
    return begin_of(text, now)
