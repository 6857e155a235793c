"""What is counted by the minute: ends of executions, and how late they started. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

from msgspec import Struct

from floodmark.model.execution import State
from floodmark.model.minutes import MinuteRow

MINUTE = timedelta(minutes=1)
# Bucket n holds delays below the n-th bound, in seconds; the last one holds all longer ones.
BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600, 10_800, 43_200, 86_400)
ENDS = (State.DONE, State.DEAD, State.CANCELLED, State.SKIPPED)

# A transaction that wrote executions of this minute may not have committed yet; clocks differ by a few seconds.
_YOUNG = timedelta(seconds=90)
# Minutes with unfinished executions are counted again after a tenth of their age, until they are too old.
_SHARE_OF_AGE, _LEAST_PAUSE, _MOST_PAUSE = 10, timedelta(seconds=10), timedelta(minutes=30)
GIVEN_UP = timedelta(days=7)

# How many executions ended in each state of `ENDS`, by the minute in which they ended.
Ends = Mapping[datetime, tuple[int, ...]]


class Lateness(Struct, frozen=True):
    """How late executions started: the sum, the highest, and the number in each bucket."""

    seconds: float = 0.0
    highest: float = 0.0
    buckets: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)

    @property
    def started(self) -> int:
        """The number of executions."""
        return sum(self.buckets)

    def quantile(self, share: float) -> float | None:
        """Return a lateness that this share of the executions did not exceed, interpolated within its bucket."""
        wanted, before = self.started * share, 0
        for bucket, total in enumerate(accumulate(self.buckets)):
            if total >= wanted and total > before:
                low = BOUNDS[bucket - 1] if bucket else 0.0
                high = min(BOUNDS[bucket], self.highest) if bucket < len(BOUNDS) else self.highest
                return min(low, high) + max(0.0, high - low) * (wanted - before) / (total - before)
            before = total
        return None


class CountedGroup(Struct, frozen=True):
    """Executions with the same end, state and bucket of lateness. `bucket` is None if the first start is not known."""

    ended: datetime | None
    state: str
    bucket: int | None
    count: int
    seconds: float | None = None
    highest: float | None = None


class MinuteCount(Struct, frozen=True, kw_only=True):
    """The executions that were created in one minute."""

    created: int
    unfinished: int
    ends: Ends
    lateness: Lateness


def count_minute(groups: Iterable[CountedGroup]) -> MinuteCount:
    """Return the sum of all groups."""
    created, unfinished, ends, lateness = 0, 0, dict[datetime, tuple[int, ...]](), Lateness()
    for group in groups:
        created += group.count
        if group.ended is None or group.state not in ENDS:
            unfinished += group.count
        else:
            ended = tuple(group.count if state == group.state else 0 for state in ENDS)
            ends[group.ended] = _sum(ends.get(group.ended), ended)
        if group.bucket is not None:
            alone = tuple(group.count if n == group.bucket else 0 for n in range(len(BOUNDS) + 1))
            lateness = sum_lateness([lateness, Lateness(group.seconds or 0.0, group.highest or 0.0, alone)])
    return MinuteCount(created=created, unfinished=unfinished, ends=ends, lateness=lateness)


def add_ends(counted: Ends, found: Ends) -> tuple[Ends, Ends]:
    """Return all ends that are counted now, and those that were not counted before.

    Nothing is subtracted: an execution that has ended may be deleted, or retried by a person.
    """
    merged, added = dict(counted), dict[datetime, tuple[int, ...]]()
    for minute, ends in found.items():
        before = counted.get(minute, (0,) * len(ENDS))
        more = tuple(max(0, now - then) for now, then in zip(ends, before, strict=True))
        if any(more):
            merged[minute], added[minute] = _sum(before, more), more
    return merged, added


def sum_ends(one: Ends, other: Ends) -> dict[datetime, tuple[int, ...]]:
    """Return the sum of both."""
    return {**one, **{minute: _sum(one.get(minute), ends) for minute, ends in other.items()}}


def pause_before_recount(minute: datetime, unfinished: int, now: datetime) -> timedelta | None:
    """Return how long the count of a minute is good enough; None if it is final."""
    age = now - minute - MINUTE
    if age < _YOUNG:
        return timedelta()
    if not unfinished or age > GIVEN_UP:
        return None
    return min(max(age / _SHARE_OF_AGE, _LEAST_PAUSE), _MOST_PAUSE)


def begin_of_minute(moment: datetime, step: int = 1) -> datetime:
    """Return the beginning of the minute of a time, or of the step of several minutes that contains it."""
    seconds = int(moment.timestamp()) // (60 * step) * (60 * step)
    return datetime.fromtimestamp(seconds, moment.tzinfo)


def step_for(hours: float, most: int) -> int:
    """Return the shortest usual step, in minutes, with at most `most` steps in this time."""
    wanted = hours * 60 / most
    return next((step for step in (1, 2, 5, 10, 15, 30, 60, 120, 240, 480) if step >= wanted), 1440)


def sum_minutes(rows: Iterable[Mapping[str, Any]], since: datetime, until: datetime, step: int) -> list[MinuteRow]:
    """Return one row for each step from `since` to `until`; steps without a stored minute are empty."""
    begin, end = begin_of_minute(since, step), begin_of_minute(until, step)
    by_step: dict[datetime, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_step.setdefault(begin_of_minute(row["minute"], step), []).append(row)
    count = int((end - begin) / (step * MINUTE)) + 1
    return [_row(at, by_step.get(at, ())) for at in (begin + n * step * MINUTE for n in range(count))]


def _row(at: datetime, rows: Sequence[Mapping[str, Any]]) -> MinuteRow:
    if not rows:
        return MinuteRow(at=at)
    lateness = sum_lateness([row["lateness"] for row in rows if row["lateness"] is not None])
    summed = ("done", "dead", "cancelled", "skipped", "items_new", "items_changed", "created", "unfinished")
    is_known = lateness.started > 0
    return MinuteRow(
        at=at,
        **{name: sum([row[name] or 0 for row in rows]) for name in summed},
        started=lateness.started,
        lateness_p50_seconds=lateness.quantile(0.5) if is_known else None,
        lateness_p95_seconds=lateness.quantile(0.95) if is_known else None,
        lateness_max_seconds=lateness.highest if is_known else None,
        queued=max([row["queued"] for row in rows]),
    )


def sum_lateness(found: Sequence[Lateness]) -> Lateness:
    """Return the lateness of the executions of all."""
    if len(found) <= 1:
        return found[0] if found else Lateness()
    return Lateness(
        sum([one.seconds for one in found]),
        max([one.highest for one in found]),
        tuple([sum(counts) for counts in zip(*[one.buckets for one in found], strict=True)]),
    )


def _sum(one: tuple[int, ...] | None, other: tuple[int, ...]) -> tuple[int, ...]:
    return other if one is None else tuple(a + b for a, b in zip(one, other, strict=True))
