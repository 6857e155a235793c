"""When a job is due: a set of instants that can be asked forwards and backwards."""

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice, takewhile
from typing import Protocol, TypeVar

from floodmark.errors import InvalidInput
from floodmark.model.job import When

# The group of entry points. Each names a `MakeTrigger`.
TRIGGERS = "floodmark.triggers"

T = TypeVar("T")


class Trigger(Protocol):
    """A fixed set of instants: whoever asks, whenever they ask, from both sides the answers agree."""

    def after(self, instant: datetime) -> datetime | None:
        """The first instant strictly later than `instant`, in UTC; None if there will be none."""
        ...

    def latest(self, until: datetime) -> datetime | None:
        """The newest instant at or before `until`, in UTC; None if there was none."""
        ...


MakeTrigger = Callable[[When, datetime], Trigger]
"""Makes a trigger from the when-columns of a job and its anchor, or raises InvalidInput. Pure."""


def require_column(value: T | None, column: str, *, example: str) -> T:
    """Return the value of a column that this schedule type needs."""
    if value is None:
        hint = f"set {column}, for example {example}, or choose another schedule_type"
        raise InvalidInput(f"{column} is missing", hint=hint)
    return value


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
