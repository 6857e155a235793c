"""The response of the API, validated strictly: one missing, too long or mistyped value refuses all of it.

Unknown fields are a sign of a newer API: they are ignored and reported by name.

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
HINT = "nothing was changed; the operator of that API has to correct it"
_SHOWN = 120
_MOST_UNKNOWN = 20

_Id = Annotated[str, Meta(min_length=1, max_length=100)]
_Domain = Annotated[str, Meta(min_length=1, max_length=260)]
_Text = Annotated[str, Meta(max_length=2000)]
_Pages = Annotated[list[Annotated[str, Meta(min_length=1, max_length=2000)]], Meta(max_length=1000)]
# `triggers.calendar` checks the values and names the row in its errors; these bounds only limit the size.
_Number = Annotated[int, Meta(ge=-1000, le=1000)]
_Day = Annotated[str, Meta(max_length=20)] | _Number


class BadAnswer(Unavailable):
    """The response of the API is invalid. Nothing was changed."""


class Time(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The time within the hour, day, week or month."""

    day: _Day | None = None
    hour: _Number | None = None
    minute: _Number | None = None


class Schedule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The frequency of a scan, and its time. An adaptive one has no time."""

    frequency: Literal["hourly", "daily", "weekly", "monthly", "adaptive"]
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
    """The scan of a domain. A field that is null counts as missing."""

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
    """One schedule, identified by its `domain_config_id`."""

    domain_config_id: _Id
    data: Scan

    @cached_property
    def digest(self) -> str:
        """Return a digest of the content that does not depend on the order of fields."""
        content = msgspec.json.encode(msgspec.to_builtins(self), order="deterministic")
        return hashlib.blake2b(content, digest_size=12).hexdigest()


class _Answer(Struct):
    data: Annotated[list[ScheduleRow], Meta(max_length=MOST_ROWS)]


_decoder = msgspec.json.Decoder(_Answer)


def rows_of(body: bytes) -> tuple[ScheduleRow, ...]:
    """Return the schedules of a response; `BadAnswer` names the problem and its place."""
    if not body.strip():
        raise _bad("it is empty")
    try:
        # First, because the decoder may skip bytes of unknown fields.
        body.decode()
        rows = tuple(_decoder.decode(body).data)
    except UnicodeDecodeError as error:
        raise _bad(f"it is not UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise _bad("it is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise _bad(_make_printable(f"{str(error)[:1].lower()}{str(error)[1:]}")) from None
    except msgspec.DecodeError as error:
        raise _bad(f"it is not JSON: {_make_printable(str(error))}") from None
    _check_texts(rows)
    _check_ids(rows)
    return rows


def unknown_fields(body: bytes) -> tuple[str, ...]:
    """Return the unknown fields of a valid response, each once, such as `data.data.color`."""
    found: dict[str, None] = {}
    for where, value, known in _levels(msgspec.json.decode(body)):
        if isinstance(value, dict):
            found |= dict.fromkeys(_make_printable(f"{where}{name}") for name in value if name not in known)
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


def _check_ids(rows: Sequence[ScheduleRow]) -> None:
    seen: set[str] = set()
    for row in rows:
        if row.domain_config_id in seen:
            raise _bad(f"it contains the domain_config_id {row.domain_config_id!r} twice")
        seen.add(row.domain_config_id)


def _check_texts(rows: Sequence[ScheduleRow]) -> None:
    """Refuse control characters, which could manipulate a terminal or a log; a description may have several lines."""
    for number, row in enumerate(rows):
        for where, text in _texts(msgspec.to_builtins(row), ""):
            checked = text.replace("\n", "").replace("\t", "") if where == ".data.description" else text
            if not checked.isprintable():
                raise _bad(f"it contains characters that are not printable - at `$.data[{number}]{where}`")
        if row.domain_config_id != row.domain_config_id.strip():
            raise _bad(f"an id starts or ends with a space - at `$.data[{number}].domain_config_id`")


def _texts(value: Any, where: str) -> list[tuple[str, str]]:
    if isinstance(value, str):
        return [(where, value)]
    if isinstance(value, Mapping):
        return [found for name, entry in value.items() for found in _texts(entry, f"{where}.{name}")]
    if isinstance(value, list):
        return [found for number, entry in enumerate(value) for found in _texts(entry, f"{where}[{number}]")]
    return []


def _bad(why: str) -> BadAnswer:
    return BadAnswer(f"the response of API_URL is refused: {why}", hint=HINT)


def _make_printable(text: str) -> str:
    """Shorten text of the API and replace its control characters."""
    printed = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    return printed if len(printed) <= 2 * _SHOWN else f"{printed[:_SHOWN]}...{printed[-_SHOWN:]}"
