"""The answer of the API, read strictly: what is missing, too long or of another type refuses all of it.

A field that nobody here knows is taken as a sign of a newer API: it changes nothing, and is reported by name.

{"data": [{"domain_config_id": "abc-123",
           "data": {"domain": "example.com", "maxPages": 50, ...,
                    "schedule": {"frequency": "daily", "time": {"hour": 2, "minute": 0}}}}]}
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from floodmark.errors import Unavailable

MOST_ROWS = 20_000
_SHOWN = 120
_MOST_UNKNOWN = 20

_Id = Annotated[str, Meta(min_length=1, max_length=100)]
_Domain = Annotated[str, Meta(min_length=1, max_length=260)]
_Text = Annotated[str, Meta(max_length=2000)]
_Pages = Annotated[list[Annotated[str, Meta(min_length=1, max_length=2000)]], Meta(max_length=1000)]
# Anything but text is read by `triggers.calendar`, which names the row; these bounds only keep it small.
_Number = Annotated[int, Meta(ge=-1000, le=1000)]
_Day = Annotated[str, Meta(max_length=20)] | _Number


class BadAnswer(Unavailable):
    """What the API said is not what was agreed on. Nothing was changed."""


class Time(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When within the hour, day, week or month."""

    day: _Day | None = None
    hour: _Number | None = None
    minute: _Number | None = None


class Schedule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How often."""

    frequency: Literal["hourly", "daily", "weekly", "monthly"]
    time: Time | None = None


class Scan(
    Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={
        "max_pages": "maxPages",
        "scan_depth": "scanDepth",
        "max_retries": "maxRetries",
        "custom_pages": "customPages",
    },
):
    """What to scan. A field that is null is one that was left out."""

    domain: _Domain
    schedule: Schedule
    description: _Text | None = None
    allow_deep_scan: bool | None = None
    max_pages: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    scan_depth: Annotated[int, Meta(ge=0, le=1000)] | None = None
    max_retries: Annotated[int, Meta(ge=0, le=1000)] | None = None
    custom_pages: _Pages | None = None
    accept_selector: _Text | None = None


class ScheduleRow(Struct, frozen=True, kw_only=True, dict=True):
    """One schedule; `domain_config_id` is what it is known by."""

    domain_config_id: _Id
    data: Scan

    @cached_property
    def digest(self) -> str:
        """The same for as long as the API says the same of this schedule, in whatever order."""
        said = msgspec.json.encode(msgspec.to_builtins(self), order="deterministic")
        return hashlib.blake2b(said, digest_size=12).hexdigest()


class _Answer(Struct):
    data: Annotated[list[ScheduleRow], Meta(max_length=MOST_ROWS)]


_decoder = msgspec.json.Decoder(_Answer)


def rows_of(body: bytes) -> tuple[ScheduleRow, ...]:
    """The schedules of an answer; `BadAnswer` tells what is wrong with it, and where."""
    if not body.strip():
        raise _bad("it is empty")
    try:
        # First of all: a decoder may skip over bytes that it has no use for.
        body.decode()
        rows = tuple(_decoder.decode(body).data)
    except UnicodeDecodeError as error:
        raise _bad(f"it is not UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise _bad("it is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise _bad(_shown(f"{str(error)[:1].lower()}{str(error)[1:]}")) from None
    except msgspec.DecodeError as error:
        raise _bad(f"it is not JSON: {_shown(str(error))}") from None
    _check_texts(rows)
    _check_ids(rows)
    return rows


def unknown_fields(body: bytes) -> tuple[str, ...]:
    """The fields of an answer that `rows_of` has taken which mean nothing here, each once, as in `data.data.color`."""
    found: dict[str, None] = {}
    for where, value, known in _levels(msgspec.json.decode(body)):
        if isinstance(value, dict):
            found |= dict.fromkeys(_shown(f"{where}{name}") for name in value if name not in known)
        if len(found) >= _MOST_UNKNOWN:
            break
    return tuple(found)[:_MOST_UNKNOWN]


def _levels(answer: Any) -> Iterator[tuple[str, Any, frozenset[str]]]:
    yield "", answer, _names(_Answer)
    for row in answer["data"]:
        yield "data.", row, _names(ScheduleRow)
        yield "data.data.", row["data"], _names(Scan)
        yield "data.data.schedule.", row["data"]["schedule"], _names(Schedule)
        yield "data.data.schedule.time.", row["data"]["schedule"].get("time"), _names(Time)


@cache
def _names(struct: type[Struct]) -> frozenset[str]:
    return frozenset(field.encode_name for field in msgspec.structs.fields(struct))


def rows_from(kept: Any) -> tuple[ScheduleRow, ...]:
    """The same from what `plain` made of them."""
    return msgspec.convert(kept, tuple[ScheduleRow, ...])


def plain(rows: Sequence[ScheduleRow]) -> Any:
    """The same as plain values, to be kept."""
    return msgspec.to_builtins(rows)


def _check_ids(rows: Sequence[ScheduleRow]) -> None:
    seen: set[str] = set()
    for row in rows:
        if row.domain_config_id in seen:
            raise _bad(f"it holds the domain_config_id {row.domain_config_id!r} twice")
        seen.add(row.domain_config_id)


def _check_texts(rows: Sequence[ScheduleRow]) -> None:
    """No text may steer a terminal or a log; a description may have lines."""
    for number, row in enumerate(rows):
        for where, text in _texts(msgspec.to_builtins(row), ""):
            shown = text.replace("\n", "").replace("\t", "") if where == ".data.description" else text
            if not shown.isprintable():
                raise _bad(f"it holds characters that cannot be shown - at `$.data[{number}]{where}`")
        if row.domain_config_id != row.domain_config_id.strip():
            raise _bad(f"an id begins or ends with a space - at `$.data[{number}].domain_config_id`")


def _texts(value: Any, where: str) -> list[tuple[str, str]]:
    if isinstance(value, str):
        return [(where, value)]
    if isinstance(value, Mapping):
        return [found for name, entry in value.items() for found in _texts(entry, f"{where}.{name}")]
    if isinstance(value, list):
        return [found for number, entry in enumerate(value) for found in _texts(entry, f"{where}[{number}]")]
    return []


def _bad(why: str) -> BadAnswer:
    return BadAnswer(
        f"the answer of API_URL is refused: {why}", hint="nothing was changed; whoever runs that API has to correct it"
    )


def _shown(text: str) -> str:
    """Names of fields are theirs: whatever they hold, it is shortened and steers nothing."""
    printed = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    return printed if len(printed) <= 2 * _SHOWN else f"{printed[:_SHOWN]}...{printed[-_SHOWN:]}"
