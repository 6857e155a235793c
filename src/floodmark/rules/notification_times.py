"""When people are notified of matches: thresholds, digests, quiet hours and cooldowns. Pure."""

import re
from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Literal, get_args
from zoneinfo import ZoneInfo

from msgspec import Struct

from floodmark.errors import InvalidInput
from floodmark.model.durations import parse_every
from floodmark.triggers.wall import WallClock

Digest = Literal["hourly", "daily"]
DIGESTS: tuple[Digest, ...] = get_args(Digest)
MOST_COUNTED = 1000
LONGEST_WINDOW = timedelta(days=7)

_THRESHOLD = re.compile(r"(\d{1,9})\s+in\s+(\S.*)", re.ASCII)
_QUIET = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})", re.ASCII)
_HOURS, _MINUTES = 24, 60
_DAY_MINUTES = _HOURS * _MINUTES


class Threshold(Struct, frozen=True):
    """A number of matches within a time."""

    count: int
    within: timedelta


class QuietHours(Struct, frozen=True):
    """The minutes of the day from which, and until which, nobody is notified."""

    begin: int
    end: int

    def includes(self, minute: int) -> bool:
        """Return whether a minute of the day is quiet. Quiet hours may include midnight."""
        if self.begin < self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end

    def __str__(self) -> str:
        return "-".join(f"{minute // _MINUTES:02}:{minute % _MINUTES:02}" for minute in (self.begin, self.end))


class NotificationTimes(Struct, frozen=True, kw_only=True):
    """When the messages of a watch are sent."""

    zone: ZoneInfo
    digest: Digest | None = None
    quiet: QuietHours | None = None
    cooldown: timedelta = timedelta()

    def due_at(self, matched_at: datetime, sent_at: datetime | None = None) -> datetime:
        """Return when a message about a match is due. `sent_at`: when the last message was sent."""
        due = matched_at
        if self.digest is not None:
            due = _end_of_period(self.digest, self.zone).after(due) or due
        return self.not_before(due, sent_at)

    def not_before(self, due: datetime, sent_at: datetime | None = None) -> datetime:
        """Return the first time from `due` on that is after the cooldown and not in quiet hours."""
        if sent_at is not None:
            due = max(due, sent_at + self.cooldown)
        if self.quiet is not None:
            local = due.astimezone(self.zone)
            if self.quiet.includes(local.hour * _MINUTES + local.minute):
                # The second clock also finds an hour that is shown twice, the first one also one that is left out.
                ends = (_each_day_at(self.quiet.end, self.zone, repeats) for repeats in (False, True))
                due = min((at for end in ends if (at := end.after(due))), default=due)
        return due


class ThresholdReached(Struct, frozen=True):
    """Which matches are reported: of the earlier ones, and of the new ones. `times`: how often it was reached."""

    earlier: list[bool]
    new: list[bool]
    times: int


def reach_threshold(threshold: Threshold, earlier: Sequence[datetime], new: Sequence[datetime]) -> ThresholdReached:
    """Count matches, oldest first. When enough lie within the time, all of them are reported and counting starts again.

    `earlier` are the times of matches that were not reported.
    """
    times, reported, reached = [*earlier, *new], [False] * (len(earlier) + len(new)), 0
    counted: deque[int] = deque()
    for place, at in enumerate(times):
        counted.append(place)
        while times[counted[0]] <= at - threshold.within:
            counted.popleft()
        if place >= len(earlier) and len(counted) >= threshold.count:
            for one in counted:
                reported[one] = True
            counted.clear()
            reached += 1
    return ThresholdReached(reported[: len(earlier)], reported[len(earlier) :], reached)


def parse_threshold(text: str) -> Threshold:
    """Return the threshold of a text such as "20 in 10m"."""
    found = _THRESHOLD.fullmatch(text.strip())
    if found is None:
        raise InvalidInput(f"{text[:60]!r} is not a threshold", hint='write it like "20 in 10m"')
    return check_threshold(int(found[1]), parse_every(found[2]))


def check_threshold(count: int, within: timedelta) -> Threshold:
    """Return a threshold within the bounds, or raise `InvalidInput`."""
    if not 2 <= count <= MOST_COUNTED:
        raise InvalidInput(
            f"a threshold of {count:,} matches is out of range", hint=f"use a number from 2 to {MOST_COUNTED:,}"
        )
    if not timedelta() < within <= LONGEST_WINDOW:
        raise InvalidInput("the time of a threshold is out of range", hint='use at most 7d, as in "20 in 10m"')
    return Threshold(count, within)


def parse_quiet(text: str) -> QuietHours:
    """Return the quiet hours of a text such as "22:00-07:00"."""
    found = _QUIET.fullmatch(text.strip())
    minutes = (
        [] if found is None else [int(found[1]) * _MINUTES + int(found[2]), int(found[3]) * _MINUTES + int(found[4])]
    )
    is_clock = found is not None and int(found[2]) < _MINUTES and int(found[4]) < _MINUTES
    # 24:00 is the end of the day.
    if not is_clock or max(minutes) > _DAY_MINUTES or minutes[0] % _DAY_MINUTES == minutes[1] % _DAY_MINUTES:
        raise InvalidInput(f"{text[:60]!r} is not a part of a day", hint="write it like 22:00-07:00")
    return QuietHours(*(minute % _DAY_MINUTES for minute in minutes))


@lru_cache(maxsize=1000)
def _end_of_period(digest: Digest, zone: ZoneInfo) -> WallClock:
    if digest == "daily":
        return _each_day_at(0, zone, repeats=False)
    return WallClock(zone, tuple(range(0, _DAY_MINUTES, _MINUTES)), _any_day, repeats=True)


@lru_cache(maxsize=1000)
def _each_day_at(minute: int, zone: ZoneInfo, repeats: bool) -> WallClock:
    return WallClock(zone, (minute,), _any_day, repeats=repeats)


def _any_day(_: object) -> bool:
    return True
