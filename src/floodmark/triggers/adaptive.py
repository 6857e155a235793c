"""Adaptive jobs: no clock decides when they run, but the leader (`floodmark.rules.freshness`)."""

from datetime import datetime

from floodmark.model.job import When

from .event import EventTrigger


def adaptive_trigger(_: When, __: datetime) -> EventTrigger:
    """Return a trigger that never fires."""
    return EventTrigger()
