"""Intervals: fixed steps on a grid that does not drift."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from floodmark.errors import InvalidInput
from floodmark.model.job import NEVER, When

from .port import require_column

_SHORTEST = timedelta(seconds=1)
_HINT = "use 1 second or more, for example 900 for every 15 minutes"


@dataclass(frozen=True, slots=True)
class Interval:
    """Fires at `anchor` and every `step` after it; late runs do not move the grid."""

    anchor: datetime
    step: timedelta

    def after(self, instant: datetime) -> datetime | None:
        """Return the first instant strictly later than `instant`, in UTC; None if there is none."""
        if instant < self.anchor:
            return self.anchor
        passed = (instant - self.anchor) // self.step * self.step
        # Compared as durations: the sum may be too late for a datetime.
        return self.anchor + passed + self.step if self.step < NEVER - self.anchor - passed else None

    def latest(self, until: datetime) -> datetime | None:
        """Return the newest instant at or before `until`, in UTC; None if there is none."""
        if until < self.anchor:
            return None
        return self.anchor + (until - self.anchor) // self.step * self.step


def interval(seconds: float, anchor: datetime) -> Interval:
    """Return a trigger that fires at `anchor` and every `seconds` after it; `seconds` is at least 1."""
    try:
        step = timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        raise InvalidInput(f"an interval of {seconds:g} s is too long", hint=_HINT) from None
    if step < _SHORTEST:
        raise InvalidInput(f"an interval of {seconds:g} s is too short", hint=_HINT)
    return Interval(anchor=anchor.astimezone(UTC), step=step)


def interval_trigger(when: When, anchor: datetime) -> Interval:
    """Return a trigger that fires at the anchor and every `interval_seconds` after it."""
    return interval(require_column(when.interval_seconds, "interval_seconds", example="900"), anchor)
