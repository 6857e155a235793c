"""A clock that stands still until it is told to move."""

from datetime import UTC, datetime, timedelta


class SetClock:
    """Shows the time it was set to."""

    def __init__(self, now: datetime = datetime(2026, 6, 1, 12, tzinfo=UTC)) -> None:
        self._now = now

    def now(self) -> datetime:
        """The time it shows."""
        return self._now

    def set(self, now: datetime) -> None:
        """Show another time, earlier ones included."""
        self._now = now

    def advance(self, by: timedelta) -> datetime:
        """Move on; what it shows then."""
        self._now += by
        return self._now
