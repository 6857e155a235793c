"""Only when something happens: webhooks, pub/sub and other jobs put the executions there themselves."""

from dataclasses import dataclass
from datetime import datetime

from floodmark.model.job import When


@dataclass(frozen=True, slots=True)
class EventTrigger:
    """Never fires by the clock."""

    def after(self, instant: datetime) -> datetime | None:
        """None: no instant is ever due by itself."""
        return None

    def latest(self, until: datetime) -> datetime | None:
        """None: no instant was ever due by itself."""
        return None


def event_trigger(_: When, __: datetime) -> EventTrigger:
    """Never fire by the clock."""
    return EventTrigger()
