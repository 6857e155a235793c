"""The port of triggers: a trigger is a set of instants that can be searched in both directions."""

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
    """A fixed set of instants: every call with the same argument returns the same, and both directions agree."""

    def after(self, instant: datetime) -> datetime | None:
        """Return the first instant strictly later than `instant`, in UTC; None if there is none."""
        ...

    def latest(self, until: datetime) -> datetime | None:
        """Return the newest instant at or before `until`, in UTC; None if there is none."""
        ...


MakeTrigger = Callable[[When, datetime], Trigger]
"""Creates a trigger from the schedule columns of a job and its anchor, or raises InvalidInput. Pure."""


def require_column(value: T | None, column: str, *, example: str) -> T:
    """Return the value of a column that this schedule type needs."""
    if value is None:
        hint = f"set {column}, for example {example}, or choose another schedule_type"
        raise InvalidInput(f"{column} is missing", hint=hint)
    return value


def instants(trigger: Trigger, after: datetime) -> Iterator[datetime]:
    """Yield every instant later than `after`, oldest first. It may never end."""
    instant = trigger.after(after)
    while instant is not None:
        yield instant
        instant = trigger.after(instant)


def between(trigger: Trigger, after: datetime, until: datetime, limit: int) -> list[datetime]:
    """Return the instants later than `after` and not later than `until`, oldest first, at most `limit`."""
    due = takewhile(lambda instant: instant <= until, instants(trigger, after))
    return list(islice(due, limit))
