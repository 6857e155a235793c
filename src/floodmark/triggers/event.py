"""Jobs without a schedule: webhooks, Redis messages and people start their executions."""

from dataclasses import dataclass
from datetime import datetime

from floodmark.model.job import When


@dataclass(frozen=True, slots=True)
class EventTrigger:
    """A trigger that never fires."""

    def after(self, instant: datetime) -> datetime | None:
        """Return None: no instant is ever due."""
        return None

    def latest(self, until: datetime) -> datetime | None:
        """Return None: no instant was ever due."""
        return None


def event_trigger(_: When, __: datetime) -> EventTrigger:
    """Return a trigger that never fires."""
    return EventTrigger()
