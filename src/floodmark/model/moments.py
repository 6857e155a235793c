"""Times as people write them: a duration ago, a day, or a time."""

from datetime import UTC, date, datetime, time, timedelta

from floodmark.errors import InvalidInput

from .durations import parse_every

Moment = datetime | date | timedelta | str
"""A time, a UTC day, how long ago, or a text for one of them."""

_DAY = timedelta(days=1)


def begin_of(when: Moment, now: datetime) -> datetime:
    """Return a time; of a day its beginning."""
    found = _read(when, now)
    return found if isinstance(found, datetime) else datetime.combine(found, time(), UTC)


def end_of(when: Moment, now: datetime) -> datetime:
    """Return the time before which a period ends: a day is part of it, a time is not."""
    found = _read(when, now)
    if isinstance(found, datetime):
        return found
    try:
        return datetime.combine(found, time(), UTC) + _DAY
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _read(when: Moment, now: datetime) -> datetime | date:
    if isinstance(when, str):
        return _parse(when.strip(), now)
    if isinstance(when, timedelta):
        return _ago(when, now)
    if isinstance(when, datetime) and when.tzinfo is None:
        return when.replace(tzinfo=UTC)
    return when


def _parse(text: str, now: datetime) -> datetime | date:
    try:
        return _ago(parse_every(text), now)
    except InvalidInput:
        pass
    try:
        if len(text) == len("2026-11-01"):
            return date.fromisoformat(text)
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"{text[:60]!r} is neither a duration nor a date", hint="for example 2h, 3d or 2026-11-01"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _ago(duration: timedelta, now: datetime) -> datetime:
    try:
        return now - duration
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)
