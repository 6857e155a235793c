"""Queue rank: the order in which executions leave the queue, lowest rank first.

A rank is the time at which an execution was queued, later by one `patience` (`QUEUE_PATIENCE`) for each step of lower
priority. So urgent executions go first, and one that has waited long enough overtakes them.
"""

from datetime import datetime, timedelta

from floodmark.model.job import Priority

BATCH_SHARES = ((1.0,), (0.8, 0.2), (0.7, 0.2, 0.1))
"""The shares of a batch for one, two and three streams of a queue that have executions, lowest rank first."""


def rank_of(priority: int, queued_at: datetime, patience: timedelta) -> datetime:
    """Return the rank of an execution that is queued at `queued_at`."""
    return queued_at + rank_delay(priority, patience)


def rank_delay(priority: int, patience: timedelta) -> timedelta:
    """Return how much later than its time of queuing the rank of an execution is."""
    return (priority - Priority.HIGH) * patience


def rank_delays(patience: timedelta) -> list[timedelta]:
    """Return the delay of each priority, most urgent first: SQL and Lua get these and do not compute them."""
    return [rank_delay(priority, patience) for priority in Priority]


def waiting_seconds(since_rank: float, age: float, priority: int, patience: timedelta) -> float:
    """Return how many seconds an execution was queued, from the seconds since its rank and since it was stored.

    A forced execution has the rank of a high priority, so the result is at most its age.
    """
    return max(0.0, min(age, since_rank + rank_delay(priority, patience).total_seconds()))
