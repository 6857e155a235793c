"""Fields of a job as texts in a form, and back. Pure; the declarations are in `floodmark.model.job`."""

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import msgspec

from floodmark.errors import InvalidInput
from floodmark.model.durations import parse_every
from floodmark.model.job_fields import JobField
from floodmark.model.strict_json import TooDeep, require_shallow

_UNITS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
_TRUTH = {"yes": True, "no": False}


def text_of(field: JobField, value: Any) -> str:
    """Return the text of a value of `Job`; empty for None and for empty lists and objects."""
    if value is None or value in ((), {}):
        return ""
    return _TEXTS.get(field.kind, lambda value: str(getattr(value, "value", value)))(value)


def value_of(field: JobField, text: str) -> Any:
    """Return the value of a column for a text that was typed; raise `InvalidInput` with the hint of the field."""
    typed = text.strip()
    if field.kind is tuple:
        return [word.strip() for word in typed.replace("\n", ",").split(",") if word.strip()]
    if field.kind is Mapping:
        return object_of(field.name, typed)
    if not typed:
        if field.is_optional:
            return None
        raise InvalidInput(f"{field.name} is empty", hint=field.hint)
    if field.kind is timedelta:
        return _seconds_of(field, typed)
    try:
        return _plain_value(field, typed)
    except (ValueError, KeyError):
        raise InvalidInput(f"{field.name} is {typed[:60]!r}", hint=field.hint) from None


def _number_text(value: float) -> str:
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _plain_value(field: JobField, typed: str) -> Any:
    if field.kind is bool:
        return _TRUTH[typed]
    if field.kind in (int, float):
        return field.kind(typed)
    if field.is_enum and issubclass(field.kind, int):
        return field.kind(int(typed)).value
    return field.kind(typed).value if field.is_enum else typed


def duration_text(duration: timedelta) -> str:
    """Return a duration as people type it: "1h30m", "90s"; fractions of a second as seconds."""
    seconds = duration.total_seconds()
    if not seconds.is_integer() or seconds <= 0:
        return f"{seconds:g}"
    left, parts = int(seconds), []
    for unit, length in _UNITS:
        count, left = divmod(left, length)
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts)


def _seconds_of(field: JobField, typed: str) -> float:
    try:
        return float(typed)
    except ValueError:
        pass
    try:
        return parse_every(typed).total_seconds()
    except InvalidInput as error:
        raise InvalidInput(f"{field.name}: {error}", hint=error.hint) from None


def json_text(value: Any) -> str:
    """Return indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def object_of(name: str, typed: str) -> dict[str, Any]:
    """Return the value of a JSON object; an empty text is an empty object."""
    if not typed.strip():
        return {}
    example = 'write it like {"depth": 2}'
    try:
        value = json.loads(typed)
        require_shallow(value)
    except (TooDeep, RecursionError):
        raise InvalidInput(f"{name} is {TooDeep()}", hint="use a flatter value") from None
    except ValueError as error:
        raise InvalidInput(f"{name} is not JSON: {error}", hint=example) from None
    if not isinstance(value, dict):
        raise InvalidInput(f"{name} is not a JSON object", hint=example)
    return value


# How a value is written, by the type of its field.
_TEXTS: Mapping[Any, Callable[[Any], str]] = {
    bool: lambda value: "yes" if value else "no",
    timedelta: duration_text,
    Mapping: json_text,
    tuple: ", ".join,
    float: _number_text,
}
