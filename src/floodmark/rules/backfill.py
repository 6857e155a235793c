"""Back-fill: items that a stream had before, and that a run finds late. Watches do not notify people of them."""

from datetime import datetime, timedelta
from typing import Literal

Existed = Literal["first_run", "last_run"]
"""The item is older than the first run of its stream, or than the last complete run."""


def existed_before(occurred_at: datetime | None, checked_at: datetime | None, *, began: datetime) -> Existed | None:
    """Return whether an item is older than the run that keeps it.

    `checked_at` is the end of the last complete run of the stream, None in its first run; `began` is when this run was
    due. In the first run an item without a time counts as old; later it counts as new.
    """
    if checked_at is None:
        return None if occurred_at is not None and occurred_at >= began else "first_run"
    return "last_run" if occurred_at is not None and occurred_at < checked_at else None


def is_backfill(
    existed: Existed | None,
    *,
    revision: int,
    occurred_at: datetime | None,
    collected_at: datetime,
    max_age: timedelta,
) -> bool:
    """Return whether an event is back-fill.

    Everything that existed before the first run is. Later, a new item is if it existed before the last complete run and
    is older than `max_age`: an item of the time since the last run is new even after a long outage. A change of an old
    item is no back-fill.
    """
    if existed != "last_run":
        return existed == "first_run"
    return revision == 1 and occurred_at is not None and collected_at - occurred_at > max_age
