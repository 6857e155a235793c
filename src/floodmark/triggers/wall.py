"""Times of day in a time zone. All handling of daylight saving time is here.

Clocks go forward over a gap and back over an overlap. The rules are those of Debian's cron and of cronsim:

- a schedule of fixed times ("02:30 every day") fires once for each of them: for a time inside a gap at the
  first minute after it, for a time inside an overlap when the clocks show it first;
- a schedule that repeats ("every hour", "every 5 minutes") fires whenever the clocks show a matching time:
  never for the times a gap leaves out, twice for those an overlap shows twice.

cronsim reads the expressions, but the walk over the clock is ours. Walked by cronsim 2.8, half-hour shifts
lose instants (`0 */2 * * *` in Australia/Lord_Howe), an overlap across midnight never ends (America/St_Johns
until 2011), and what comes after an instant depends on where the walk began.
"""

from bisect import bisect_right
from calendar import monthrange
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

_MINUTE, _DAY = timedelta(minutes=1), timedelta(days=1)

# Nothing fires outside these years: conversions between zones need a margin to the limits of datetime.
_FIRST, _LAST = datetime(1900, 1, 1, tzinfo=UTC), datetime(9900, 1, 1, tzinfo=UTC)

# The rarest day, a fifth Monday in February, comes again after at most 40 years.
_HORIZON = timedelta(days=50 * 366)

EVERY_MONTH = frozenset(range(1, 13))


@dataclass(frozen=True, slots=True)
class WallClock:
    """A trigger that fires when the clocks of `zone` show one of `minutes` on one of `days`."""

    zone: ZoneInfo
    minutes: tuple[int, ...]  # since midnight, ascending
    days: Callable[[date], bool]
    months: frozenset[int] = EVERY_MONTH  # for speed: days of other months are not examined
    repeats: bool = False

    # With the fold held still, instants never go back while readings go forward. So both directions walk the
    # readings in order and stop at the first that fits. A repeating schedule is the union of both folds, but
    # outside an overlap one will do: the first reading comes before the second, the second after the first.

    def after(self, instant: datetime) -> datetime | None:
        """Return the first instant strictly later than `instant`, in UTC; None if there is none."""
        if instant >= _LAST:
            return None
        start = max(instant, _FIRST)
        reading, overlap = self._read(start)
        folds = (0, 1) if self.repeats and overlap else (0,)
        found = [at for fold in folds if (at := self._after(start, reading - overlap, fold))]
        return min(found, default=None)

    def latest(self, until: datetime) -> datetime | None:
        """Return the newest instant at or before `until`, in UTC; None if there is none."""
        if until <= _FIRST:
            return None
        end = min(until, _LAST)
        reading, overlap = self._read(end)
        folds = (0, 1) if self.repeats and overlap else (int(self.repeats),)
        found = [at for fold in folds if (at := self._latest(end, reading + overlap, fold))]
        return max(found, default=None)

    def _after(self, instant: datetime, reading: datetime, fold: int) -> datetime | None:
        resolved = (self._resolve(later, fold) for later in self._later(reading))
        found = next((at for at in resolved if at and at > instant), None)
        return found if found and found <= _LAST else None

    def _latest(self, until: datetime, reading: datetime, fold: int) -> datetime | None:
        resolved = (self._resolve(earlier, fold) for earlier in self._earlier(reading))
        found = next((at for at in resolved if at and at <= until), None)
        return found if found and found > _FIRST else None

    def _read(self, instant: datetime) -> tuple[datetime, timedelta]:
        """Return the local time at `instant`, and by how much the clocks go back around it."""
        shown = instant.astimezone(self.zone)
        first, second = shown.replace(fold=0).utcoffset(), shown.replace(fold=1).utcoffset()
        assert first is not None
        assert second is not None
        return shown.replace(tzinfo=None), first - second

    def _resolve(self, reading: datetime, fold: int) -> datetime | None:
        """Return the instant of `reading`; None if it is in a gap and the schedule repeats."""
        while (at := self._instant_of(reading, fold)) is None and not self.repeats:
            reading += _MINUTE
        return at

    def _instant_of(self, reading: datetime, fold: int) -> datetime | None:
        at = reading.replace(tzinfo=self.zone, fold=fold).astimezone(UTC)
        # In a gap the way there and back does not return: the clocks never show it.
        return at if at.astimezone(self.zone).replace(tzinfo=None) == reading else None

    def _later(self, reading: datetime) -> Iterator[datetime]:
        """Yield every matching reading later than `reading`, oldest first."""
        today, passed = reading.date(), self._count_passed(reading)
        if self._is_on(today):
            # By index: slicing the 1440 minutes of `* * * * *` would cost more than all the rest.
            yield from (_at(today, self.minutes[k]) for k in range(passed, len(self.minutes)))
        for day in self._days_after(today):
            yield from (_at(day, minute) for minute in self.minutes)

    def _earlier(self, reading: datetime) -> Iterator[datetime]:
        """Yield every matching reading not later than `reading`, newest first."""
        today, passed = reading.date(), self._count_passed(reading)
        if self._is_on(today):
            yield from (_at(today, self.minutes[k]) for k in reversed(range(passed)))
        for day in self._days_before(today):
            yield from (_at(day, minute) for minute in reversed(self.minutes))

    def _is_on(self, day: date) -> bool:
        return day.month in self.months and self.days(day)

    def _count_passed(self, reading: datetime) -> int:
        """Return how many of the minutes of the day are over."""
        return bisect_right(self.minutes, reading.hour * 60 + reading.minute)

    def _days_after(self, day: date) -> Iterator[date]:
        end = day + _HORIZON
        while (day := day + _DAY) <= end:
            if day.month not in self.months:
                day = day.replace(day=monthrange(day.year, day.month)[1])
            elif self.days(day):
                yield day

    def _days_before(self, day: date) -> Iterator[date]:
        end = day - _HORIZON
        while (day := day - _DAY) >= end:
            if day.month not in self.months:
                day = day.replace(day=1)
            elif self.days(day):
                yield day


def _at(day: date, minute: int) -> datetime:
    return datetime.combine(day, time(*divmod(minute, 60)))
