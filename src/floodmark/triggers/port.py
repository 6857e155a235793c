"""When a job is due: a set of instants that can be asked forwards and backwards."""

from collections.abc import Iterator
from datetime import datetime
from itertools import islice, takewhile
from typing import Protocol


class Trigger(Protocol):
    """A fixed set of instants: whoever asks, whenever they ask, from both sides the answers agree."""

    def after(self, instant: datetime) -> datetime | None:
        """The first instant strictly later than `instant`, in UTC; None if there will be none."""
        ...

    def latest(self, until: datetime) -> datetime | None:
        """The newest instant at or before `until`, in UTC; None if there was none."""
        ...


def instants(trigger: Trigger, after: datetime) -> Iterator[datetime]:
    """Every instant later than `after`, oldest first. It may never end: take from it what you need."""
    instant = trigger.after(after)
    while instant is not None:
        yield instant
        instant = trigger.after(instant)


def between(trigger: Trigger, after: datetime, until: datetime, limit: int) -> list[datetime]:
    """The instants later than `after` and not later than `until`, oldest first, at most `limit` of them."""
    due = takewhile(lambda instant: instant <= until, instants(trigger, after))
    return list(islice(due, limit))
