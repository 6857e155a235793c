"""Every so often, on a grid that does not drift."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from floodmark.errors import InvalidInput
from floodmark.model.job import NEVER, When

from .port import require_column

_SHORTEST = timedelta(seconds=1)
_HINT = "use 1 second or more, for example 900 for every 15 minutes"


@dataclass(frozen=True, slots=True)
class Interval:
    """Fires at `anchor` and every `step` after it, however late the runs themselves are."""

    anchor: datetime
    step: timedelta

    def after(self, instant: datetime) -> datetime | None:
        """The first instant strictly later than `instant`, in UTC; None if there will be none."""
        if instant < self.anchor:
            return self.anchor
        passed = (instant - self.anchor) // self.step * self.step
        # Compared as lengths: the sum may lie beyond what a datetime can hold.
        return self.anchor + passed + self.step if self.step < NEVER - self.anchor - passed else None

    def latest(self, until: datetime) -> datetime | None:
        """The newest instant at or before `until`, in UTC; None if there was none."""
        if until < self.anchor:
            return None
        return self.anchor + (until - self.anchor) // self.step * self.step


def interval(seconds: float, anchor: datetime) -> Interval:
    """The trigger that fires at `anchor` and every `seconds` after it; at least one second apart."""
    try:
        step = timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        raise InvalidInput(f"an interval of {seconds:g} s fits no calendar", hint=_HINT) from None
    if step < _SHORTEST:
        raise InvalidInput(f"an interval of {seconds:g} s is too short", hint=_HINT)
    return Interval(anchor=anchor.astimezone(UTC), step=step)


def interval_trigger(when: When, anchor: datetime) -> Interval:
    """Fire at the anchor and every `interval_seconds` after it."""
    return interval(require_column(when.interval_seconds, "interval_seconds", example="900"), anchor)
