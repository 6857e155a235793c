"""A clock that moves only when it is set."""

from datetime import UTC, datetime, timedelta


class SetClock:
    """A clock that shows the time it was set to."""

    def __init__(self, now: datetime = datetime(2026, 6, 1, 12, tzinfo=UTC)) -> None:
        self._now = now

    def now(self) -> datetime:
        """Return its time."""
        return self._now

    def set(self, now: datetime) -> None:
        """Set the time, which may be earlier."""
        self._now = now

    def advance(self, by: timedelta) -> datetime:
        """Move the time forward and return it."""
        self._now += by
        return self._now
