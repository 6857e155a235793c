"""Durations as people write and read them."""

import re
from datetime import timedelta
from itertools import pairwise

from floodmark.errors import InvalidInput

_PARTS = re.compile(
    r"(?:(?P<weeks>[0-9]{1,9})\s*w)?\s*"
    r"(?:(?P<days>[0-9]{1,9})\s*d)?\s*"
    r"(?:(?P<hours>[0-9]{1,9})\s*h)?\s*"
    r"(?:(?P<minutes>[0-9]{1,9})\s*(?:min|m))?\s*"
    r"(?:(?P<seconds>[0-9]{1,9})\s*s?)?"
)
_UNITS = (
    ("d", timedelta(days=1)),
    ("h", timedelta(hours=1)),
    ("min", timedelta(minutes=1)),
    ("s", timedelta(seconds=1)),
    ("ms", timedelta(milliseconds=1)),
)
_HINT = "write it like 90s, 15m, 1h30m, 2d or 1w; a bare number is seconds"


def parse_every(text: str) -> timedelta:
    """Return the duration of a text: "15m", "90s", "1h30m", "2d", "1w", or "300" for seconds. Never zero."""
    match = _PARTS.fullmatch(text.strip().lower())
    given = match and {unit: int(number) for unit, number in match.groupdict(default="0").items()}
    if not given or not any(given.values()):
        raise InvalidInput(f"{text[:40]!r} is not a length of time", hint=_HINT)
    try:
        return timedelta(**given)
    except OverflowError:
        raise InvalidInput(f"{text[:40]!r} is longer than any calendar", hint=_HINT) from None


def parse_times(text: str) -> tuple[timedelta, ...]:
    """Return the durations of a list such as "1h, 1d, 7d", each once, the shortest first."""
    return tuple(sorted({parse_every(part) for part in text.split(",")}))


def format_duration(duration: timedelta) -> str:
    """Return a short text, rounded down to its two largest units: "1 h 30 min", "2 d", "41 s", "250 ms"."""
    if duration < timedelta():
        return f"-{format_duration(-duration)}"
    for (unit, length), (smaller, smaller_length) in pairwise(_UNITS):
        if duration >= length:
            count, rest = divmod(duration, length)
            # Next to whole seconds, milliseconds do not matter.
            more = 0 if smaller == "ms" else rest // smaller_length
            return f"{count} {unit} {more} {smaller}" if more else f"{count} {unit}"
    milliseconds = duration // timedelta(milliseconds=1)
    return f"{milliseconds} ms" if milliseconds else "0 s"
