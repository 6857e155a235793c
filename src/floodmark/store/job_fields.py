"""The columns of a job that people may set: of which type, within which bounds, and what to write instead."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from floodmark.errors import InvalidInput
from floodmark.model.job import CatchUp, Frequency, Overlap, Priority, ScheduleType, When
from floodmark.model.spec import JobSpec
from floodmark.model.strict_json import TooDeep, read_json
from floodmark.rules.streams import stream_name
from floodmark.triggers import trigger_of
from floodmark.triggers.matching import path_pattern

from .database import encode_json

# Half of what PostgreSQL takes into an index row: the other half is for the keys of the items.
_STREAM_BYTES = 1000

_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Text = Annotated[str, Meta(min_length=1, max_length=2000)]
_Object = dict[str, Any]
# Ten years: longer is a mistake, and much longer does not fit a timedelta.
_Seconds = Annotated[float, Meta(ge=0, le=315_360_000)]
_SomeSeconds = Annotated[float, Meta(gt=0, le=315_360_000)]


class _Field(NamedTuple):
    type: Any
    hint: str


def _one_of(kinds: Any) -> str:
    return "use one of " + ", ".join(kind.value for kind in kinds)


def _optional_text(meaning: str) -> _Field:
    return _Field(_Text | None, f"{meaning}: text of 1 to 2000 characters, or nothing")


FIELDS: Mapping[str, _Field] = {
    "name": _Field(_Name, "a name has 1 to 200 characters"),
    "source": _Field(_Name, "the kind of source, for example telegram, web or python"),
    "target": _Field(_Text, "what to collect, for example a channel, a URL or a domain"),
    "stream": _optional_text("where its items go; jobs that share a stream share its watermark"),
    "params": _Field(_Object, 'an object, for example {"depth": 2}'),
    "tags": _Field(list[_Name], 'a list of words, for example ["news", "daily"]'),
    "schedule_type": _Field(ScheduleType, _one_of(ScheduleType)),
    "cron_expression": _Field(_Text | None, "five fields, for example '*/15 * * * *'"),
    "interval_seconds": _Field(float | None, "seconds between two runs, for example 900"),
    "frequency": _Field(Frequency | None, _one_of(Frequency)),
    "time_config": _Field(_Object | None, 'an object, for example {"day": "monday", "hour": 2, "minute": 0}'),
    "timezone": _Field(_Text, "an IANA name such as Europe/Berlin or UTC"),
    "schedule_enabled": _Field(bool, "true or false"),
    "scheduler_version": _Field(Literal[1, 2], "2 for this scheduler, 1 for the one it replaces"),
    "priority": _Field(Priority, "1 is high, 2 normal, 3 low"),
    "timeout_seconds": _Field(_SomeSeconds, "seconds, more than 0 and at most ten years"),
    "retry_max": _Field(Annotated[int, Meta(ge=0, le=1000)], "how often a failed execution is tried again, 0 to 1000"),
    "overlap": _Field(Overlap, _one_of(Overlap)),
    "max_instances": _Field(Annotated[int, Meta(ge=1, le=1000)], "unfinished executions at once, 1 to 1000"),
    "coalesce": _Field(bool, "true or false"),
    "misfire_grace_seconds": _Field(_Seconds, "seconds, from 0 to ten years"),
    "catch_up": _Field(CatchUp, _one_of(CatchUp)),
    "jitter_seconds": _Field(_Seconds, "seconds, from 0 to ten years"),
    "limit_key": _optional_text("the limit it shares with others"),
    "account": _optional_text("the account it collects with"),
    "domain": _optional_text("the domain it scans"),
    "domain_config_id": _optional_text("an id of yours"),
    "profile_id": _optional_text("an id of yours"),
    "source_id": _optional_text("an id of yours"),
    "url": _optional_text("where it starts"),
    "tenant_id": _optional_text("whose items these are"),
    "user_id": _optional_text("whose items these are"),
    "trigger_webhook": _optional_text("a path such as /sources/*/crawl"),
    "trigger_channel": _optional_text("a channel such as content:new"),
}

_ELSEWHERE = {
    "paused": "use pause and resume",
    "pause_reason": "use pause with a reason",
    "declared": "only a declaration in code sets it",
    "job_id": "it never changes",
}


def columns_of(spec: JobSpec) -> dict[str, Any]:
    """The columns a spec speaks of, not yet checked."""
    when, policy = spec.when, spec.policy
    named = {column: getattr(spec, column) for column in FIELDS if hasattr(spec, column)}
    return named | {
        "name": spec.name,
        "tags": list(spec.tags),
        **{column: getattr(when, column) for column in When.__struct_fields__},
        "scheduler_version": 2,
        "timeout_seconds": spec.timeout,
        "overlap": policy.overlap,
        "max_instances": policy.max_instances,
        "coalesce": policy.coalesce,
        "misfire_grace_seconds": policy.misfire_grace,
        "catch_up": policy.catch_up,
        "jitter_seconds": policy.jitter,
    }


def converted(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The same columns as the database takes them; refuses unknown names and values of the wrong kind."""
    return {name: _converted(name, value) for name, value in changes.items()}


def check(columns: Mapping[str, Any], *, now: datetime) -> None:
    """Refuse a job whose columns, each good by itself, do not make sense together."""
    stream = stream_name(columns["stream"], columns["source"], columns["target"])
    if len(stream.encode()) > _STREAM_BYTES:
        hint = f"give the job a shorter stream: at most {_STREAM_BYTES} bytes"
        raise InvalidInput(f"the stream {stream[:40]!r}... is too long", hint=hint)
    if columns["trigger_webhook"] is not None:
        path_pattern(columns["trigger_webhook"])
    trigger_of(msgspec.convert({name: columns[name] for name in When.__struct_fields__}, When), anchor=now)


def checked_json(name: str, value: Any, *, hint: str) -> Any:
    """The value as it will come back from the database; refuses what JSON or PostgreSQL cannot hold."""
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


def _converted(name: str, value: Any) -> Any:
    field = FIELDS.get(name)
    if field is None:
        raise InvalidInput(f"a job has no field {name[:60]!r} that can be set", hint=_instead(name))
    if isinstance(value, timedelta):
        value = value.total_seconds()
    try:
        good = msgspec.convert(value, field.type)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{name} is {_shown(value)}: {_lowered(error)}", hint=field.hint) from None
    if isinstance(good, float) and good != good:  # noqa: PLR0124 - only NaN differs from itself
        raise InvalidInput(f"{name} is not a number", hint=field.hint)
    return _plain(name, good, field.hint)


def _plain(name: str, value: Any, hint: str) -> Any:
    if isinstance(value, dict | list):
        return checked_json(name, list(dict.fromkeys(value)) if name == "tags" else value, hint=hint)
    if isinstance(value, str) and not value.isprintable():
        raise InvalidInput(f"{name} is {_shown(value)}: it holds characters that cannot be shown", hint=hint)
    if isinstance(value, str) and value != value.strip():
        raise InvalidInput(f"{name} is {_shown(value)}: it begins or ends with a space", hint=hint)
    return getattr(value, "value", value)


def _instead(name: str) -> str:
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    close = get_close_matches(name.lower(), FIELDS, n=3)
    return f"did you mean {', '.join(close)}?" if close else f"the fields are {', '.join(FIELDS)}"


def _shown(value: object) -> str:
    return repr(value)[:60]


def _lowered(error: Exception) -> str:
    text = str(error).replace("`", "")
    return text[:1].lower() + text[1:]
