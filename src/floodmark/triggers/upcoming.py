"""The next runs of a job, and the clock changes between them."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from itertools import islice
from typing import Any

from floodmark.model.durations import format_duration
from floodmark.model.job import NEVER, Job, ScheduleType

from . import instants, trigger_of, zone_of

_INSTANT = timedelta(microseconds=1)


def upcoming(job: Job, now: datetime, count: int) -> list[datetime]:
    """Return the next instants of a job as the scheduler will plan them; an overdue one comes first.

    Of an adaptive job only the next one is known, and it may run earlier, if its budget has requests left.
    """
    if job.when.schedule_type is ScheduleType.ADAPTIVE:
        return [] if job.next_run in (None, NEVER) else [job.next_run]
    trigger = trigger_of(job.when, anchor=job.created_at)
    since = job.planned_until or job.created_at - _INSTANT
    overdue = trigger.latest(now)
    due = [overdue] if overdue is not None and overdue > since else []
    return [*due, *islice(instants(trigger, max(since, now)), count)][:count]


def clock_changes(moments: Sequence[datetime], since: datetime, zone: tzinfo) -> Iterator[str]:
    """Yield for each moment the change of the clocks of `zone` since the previous one."""
    before = since.astimezone(zone).utcoffset() or timedelta()
    for moment in moments:
        offset = moment.astimezone(zone).utcoffset() or timedelta()
        moved = offset - before
        before = offset
        yield (
            f"clocks went {'forward' if moved > timedelta() else 'back'} {format_duration(abs(moved))}" if moved else ""
        )


def runs_shape(runs: Sequence[datetime], now: datetime, zone_name: str) -> list[dict[str, Any]]:
    """Return runs as JSON: the time, the local time in the zone, and the clock change since the previous run."""
    zone = zone_of(zone_name)
    changes = clock_changes(runs, now, zone)
    return [
        {"at": run, "local": run.astimezone(zone).isoformat(), "clock_change": change or None}
        for run, change in zip(runs, changes, strict=True)
    ]
