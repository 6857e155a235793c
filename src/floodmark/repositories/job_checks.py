"""Checks of the columns of a job that people set: each column alone, then all together."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from types import NoneType
from typing import Any

import msgspec

from floodmark.errors import InvalidInput
from floodmark.model.job import ScheduleType, When
from floodmark.model.job_fields import COLUMNS, JobField
from floodmark.model.strict_json import TooDeep, read_json
from floodmark.rules.budgets import DEFAULT_BUDGET
from floodmark.rules.streams import stream_name
from floodmark.store.database import encode_json
from floodmark.triggers import trigger_of
from floodmark.triggers.matching import path_pattern

# Half of PostgreSQL's limit for an index row: the other half is for the keys of items.
_STREAM_BYTES = 1000

# An import from an older scheduler sets `scheduler_version`.
_SETTABLE = {field.name: field for field in COLUMNS if field.is_settable or field.name == "scheduler_version"}
SETTABLE_COLUMNS = tuple(_SETTABLE)
# Made once: a type takes ten times as long to make as to check.
_CHECKED_TYPES = {name: field.checked_type for name, field in _SETTABLE.items()}

_ELSEWHERE = {
    "paused": "use pause and resume",
    "pause_reason": "use pause with a reason",
    "declared": "only a declaration in code sets it",
    "job_id": "it never changes",
}


def check_columns(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns as the database stores them; refuse unknown names and values of the wrong type."""
    return {name: _check_column(name, value) for name, value in changes.items()}


def check_job(columns: Mapping[str, Any], *, now: datetime) -> None:
    """Refuse a job whose columns are valid alone, but not together."""
    stream = stream_name(columns["stream"], columns["source"], columns["target"])
    if len(stream.encode()) > _STREAM_BYTES:
        hint = f"give the job a shorter stream: at most {_STREAM_BYTES} bytes"
        raise InvalidInput(f"the stream {stream[:40]!r}... is too long", hint=hint)
    if columns["trigger_webhook"] is not None:
        path_pattern(columns["trigger_webhook"])
    trigger_of(msgspec.convert({name: columns[name] for name in When.__struct_fields__}, When), anchor=now)


def set_budget(columns: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """Return new columns of a job with the budget `default` if it is adaptive and has none.

    A job that is no longer adaptive leaves that budget.
    """
    after = {**current, **columns}
    if after["schedule_type"] == ScheduleType.ADAPTIVE:
        return {**columns, "budget": DEFAULT_BUDGET} if after["budget"] is None else dict(columns)
    was_adaptive = current.get("schedule_type") == ScheduleType.ADAPTIVE
    if was_adaptive and after["budget"] == DEFAULT_BUDGET and "budget" not in columns:
        return {**columns, "budget": None}
    return dict(columns)


def check_names(on: Any) -> None:
    """Refuse a `depends_on` that is not a list of names."""
    if isinstance(on, str) or not isinstance(on, Sequence) or not all(isinstance(name, str) for name in on):
        raise InvalidInput("depends_on is not a list of names", hint='for example ["first-job", "second-job"]')


def check_json(name: str, value: Any, *, hint: str) -> Any:
    """Return the value as the database will return it; refuse what JSON or PostgreSQL cannot store."""
    try:
        text = encode_json(value)
        stored = read_json(text)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} cannot be stored as JSON: {error}", hint=hint) from None
    except RecursionError:
        raise InvalidInput(f"{name} is {TooDeep()}", hint=hint) from None
    if "\\u0000" in text:
        raise InvalidInput(f"{name} holds a NUL character", hint="remove it: databases cannot store it")
    return stored


def _check_column(name: str, value: Any) -> Any:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, str | int | float | NoneType):
        return _check_repeated(name, type(value).__name__, value)
    return _check_value(name, value)


# Most columns of most jobs have the same values.
@lru_cache(maxsize=1024)
def _check_repeated(name: str, kind: str, value: Any) -> Any:
    """Check a value that can be compared; `kind` tells 1 and true apart."""
    return _check_value(name, value)


def _check_value(name: str, value: Any) -> Any:
    field = _SETTABLE.get(name)
    if field is None:
        raise InvalidInput(f"a job has no field {name[:60]!r} that can be set", hint=_hint_for_unknown(name))
    try:
        good = msgspec.convert(value, _CHECKED_TYPES[name])
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{name} is {_show(value)}: {_lower_first(error)}", hint=field.hint) from None
    if isinstance(good, float) and good != good:  # noqa: PLR0124 - only NaN differs from itself
        raise InvalidInput(f"{name} is not a number", hint=field.hint)
    return _plain(field, good)


def _plain(field: JobField, value: Any) -> Any:
    name = field.name
    if isinstance(value, dict | list):
        if not value:
            return value
        return check_json(name, list(dict.fromkeys(value)) if name == "tags" else value, hint=field.hint)
    if isinstance(value, str) and not value.isprintable():
        raise InvalidInput(f"{name} is {_show(value)}: it holds characters that cannot be shown", hint=field.hint)
    if isinstance(value, str) and value != value.strip():
        raise InvalidInput(f"{name} is {_show(value)}: it begins or ends with a space", hint=field.hint)
    return getattr(value, "value", value)


def _hint_for_unknown(name: str) -> str:
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    close = get_close_matches(name.lower(), _SETTABLE, n=3)
    return f"did you mean {', '.join(close)}?" if close else f"the fields are {', '.join(_SETTABLE)}"


def _show(value: object) -> str:
    return repr(value)[:60]


def _lower_first(error: Exception) -> str:
    text = str(error).replace("`", "")
    return text[:1].lower() + text[1:]
