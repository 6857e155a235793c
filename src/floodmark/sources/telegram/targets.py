"""What people call a channel, brought into one form: `@name` in lower case, or its bare number."""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from floodmark.errors import InvalidInput
from floodmark.model.durations import parse_every
from floodmark.model.job import ScheduleType, When
from floodmark.model.spec import JobSpec
from floodmark.rules.streams import default_stream

# Telegram's rule: 4 to 32 letters, digits and single underscores, a letter first, no underscore last.
_NAME = re.compile(r"(?=[a-z0-9_]{4,32}$)[a-z][a-z0-9]*(?:_[a-z0-9]+)*", re.IGNORECASE | re.ASCII)
_LINK = re.compile(
    r"(?:https?://)?(?:www\.)?(?:t|telegram)\.(?:me|dog)/(?P<path>[^?#]*)(?:[?#].*)?", re.IGNORECASE | re.ASCII
)
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
# How other tools write the number of a channel: -100 in front.
_MARKED = re.compile(r"-100([0-9]{1,18})", re.ASCII)
# Paths of t.me that are not the name of anyone.
_NOBODY = {"joinchat", "addstickers", "addemoji", "addtheme", "addlist", "setlanguage", "share", "proxy", "socks"}
_NOBODY |= {"login", "confirmphone", "invoice", "boost", "giftcode", "contact", "bg", "iv", "m"}
_FORMS = "name it as @name, https://t.me/name, or by its number: 1234567890"

DEFAULT_HISTORY = 1000


class TelegramParams(Struct, frozen=True, kw_only=True):
    """What a job may say about how its channel is collected."""

    history: int | None = DEFAULT_HISTORY
    """How many of the newest posts the first run reads; None: all of them."""
    since: datetime | None = None
    """The first run begins here instead."""
    revisit: timedelta | None = None
    """Posts of the last so much time are read again, to notice edits and deletions."""
    revisit_every: timedelta | None = None
    day: date | None = None
    """Only the posts of this day, in UTC."""


NAMES = frozenset(TelegramParams.__struct_fields__)


def canonical(text: str) -> str:
    """The one name under which a channel is a target; `InvalidInput` for what cannot be one."""
    said = text.strip()
    link = _LINK.fullmatch(said)
    if link is not None:
        return _from_path(link["path"], said)
    if marked := _MARKED.fullmatch(said):
        return _number(marked[1], said)
    if _NUMBER.fullmatch(said):
        return _number(said, said)
    if said.startswith(("+", "tg:")):
        raise _refused(said, "is not a channel, but a person, an invitation or an action")
    return _name(said.removeprefix("@"), said)


def completed(spec: JobSpec, *, every: timedelta) -> JobSpec:
    """A job to be made, with its channel in its one form; without a time of its own it runs that often.

    Tenants do not share a watermark: what one has collected the other has not.
    """
    target = canonical(spec.target)
    params, when = parse_params(spec.params), spec.when
    # A single day is read once, when someone asks for it.
    if when.schedule_type is ScheduleType.EVENT and params.day is None:
        when = When(schedule_type=ScheduleType.INTERVAL, interval_seconds=every.total_seconds(), timezone=when.timezone)
    stream = spec.stream
    if stream is None and spec.tenant_id is not None:
        stream = default_stream(spec.source, target, spec.tenant_id)
    return replace(spec, target=target, when=when, stream=stream)


def parse_params(params: Mapping[str, Any]) -> TelegramParams:
    """The params of a job, checked; names that a channel does not know are ignored."""
    history = _history(params.get("history", DEFAULT_HISTORY))
    since = params.get("since")
    if since is not None and "history" in params:
        raise InvalidInput("history and since contradict each other", hint="say how many posts, or from when on")
    return TelegramParams(
        history=history,
        since=None if since is None else parse_moment(since, "since"),
        revisit=_length(params, "revisit"),
        revisit_every=_length(params, "revisit_every"),
        day=None if params.get("day") is None else _day(params["day"]),
    )


def parse_moment(value: Any, what: str) -> datetime:
    """A date, or a date and time; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError:
        raise InvalidInput(
            f"{what} {str(value)[:40]!r} is not a date", hint="write it like 2026-01-31 or 2026-01-31T08:00:00+01:00"
        ) from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def bounds_of(day: date) -> tuple[datetime, datetime]:
    """When a day begins, and when the next one does."""
    begin = datetime.combine(day, time(), UTC)
    return begin, begin + timedelta(days=1)


def _from_path(path: str, said: str) -> str:
    parts = [part for part in path.split("/") if part]
    if parts and parts[0].lower() == "s":
        parts = parts[1:]
    if not parts:
        raise _refused(said, "names no channel")
    first = parts[0]
    if first.startswith("+") or first.lower() == "joinchat":
        raise InvalidInput(
            f"{said[:80]!r} is an invitation: join with the account first, then add the channel by its number",
            hint="copy a link to one of its posts, as in https://t.me/c/1234567890/1, and add that",
        )
    if first.lower() == "c":
        if len(parts) > 1 and _NUMBER.fullmatch(parts[1]):
            return _number(parts[1], said)
        raise _refused(said, "names no channel")
    if first.lower() in _NOBODY:
        raise _refused(said, "is not a channel")
    return _name(first, said)


def _name(name: str, said: str) -> str:
    if not _NAME.fullmatch(name):
        raise _refused(said, "is not the name of a channel")
    return f"@{name.lower()}"


def _number(digits: str, said: str) -> str:
    number = int(digits)
    if not number:
        raise _refused(said, "is not the number of a channel")
    return str(number)


def _refused(said: str, why: str) -> InvalidInput:
    return InvalidInput(f"{said[:80]!r} {why}", hint=_FORMS)


def _history(value: Any) -> int | None:
    if value == "all":
        return None
    digits = str(value)
    if isinstance(value, bool) or not digits.isdecimal() or not 0 < int(digits) <= 100_000_000:
        raise InvalidInput(
            f"history {digits[:40]!r} is not a number of posts", hint="for example --history 1000, or --history all"
        )
    return int(digits)


def _length(params: Mapping[str, Any], what: str) -> timedelta | None:
    value = params.get(what)
    if value is None:
        return None
    try:
        return parse_every(str(value))
    except InvalidInput as error:
        raise InvalidInput(f"{what}: {error}", hint=error.hint) from None


def _day(value: Any) -> date:
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise InvalidInput(f"day {str(value)[:40]!r} is not a day", hint="write it like 2026-01-31") from None
