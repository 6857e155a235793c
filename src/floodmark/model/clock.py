"""The one way to ask what time it is, so that tests can answer."""

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the wall-clock time."""

    def now(self) -> datetime:
        """The current instant, aware, in UTC."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """The current instant, aware, in UTC."""
        return datetime.now(UTC)
