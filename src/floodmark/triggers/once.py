"""A single run."""

from dataclasses import dataclass
from datetime import UTC, datetime

from floodmark.model.job import When


@dataclass(frozen=True, slots=True)
class Once:
    """Fires at `at` and never again."""

    at: datetime

    def after(self, instant: datetime) -> datetime | None:
        """Return the first instant strictly later than `instant`, in UTC; None if there is none."""
        return self.at if instant < self.at else None

    def latest(self, until: datetime) -> datetime | None:
        """Return the newest instant at or before `until`, in UTC; None if there is none."""
        return self.at if self.at <= until else None


def immediate_trigger(_: When, anchor: datetime) -> Once:
    """Return a trigger that fires once, at the anchor."""
    return Once(anchor.astimezone(UTC))
