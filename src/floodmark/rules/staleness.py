"""When a job is stale: its target was not read to its end for much longer than usual."""

from datetime import datetime, timedelta

from floodmark.model.freshness_map import FreshnessLevel
from floodmark.model.job import Frequency, ScheduleType, When

# A job is stale after this many of its usual intervals, but never sooner than the shortest time.
GAPS = 2
# The interval of a cron expression is measured once, and may be short by chance.
SHORTEST = timedelta(minutes=1)
# A source is fresh for this many of its usual intervals, and very late after this many times its patience.
FRESH_GAPS, VERY_LATE = 1.5, 5
_DAY = timedelta(days=1)
INTERVALS = {
    Frequency.HOURLY: timedelta(hours=1),
    Frequency.DAILY: _DAY,
    Frequency.WEEKLY: 7 * _DAY,
    Frequency.MONTHLY: 31 * _DAY,
}
# Only jobs with these schedules can be stale.
TIMED = (ScheduleType.INTERVAL, ScheduleType.CRON, ScheduleType.CALENDAR, ScheduleType.ADAPTIVE)


def is_stale(unchecked: timedelta, *, interval: timedelta | None, catches_up: timedelta) -> bool:
    """Return whether a job is stale whose target was last read to its end `unchecked` ago.

    `catches_up`: for how long its source catches up by itself after an outage.
    """
    return unchecked > patience_of(interval, catches_up)


def patience_of(interval: timedelta | None, catches_up: timedelta) -> timedelta:
    """Return after which time without a check a job is stale."""
    return max(GAPS * (interval or timedelta()), SHORTEST, catches_up)


def freshness_level(
    unchecked: timedelta, *, usual: timedelta | None, patience: timedelta, was_checked: bool
) -> FreshnessLevel:
    """Return how late a source is that was last read to its end, or created, `unchecked` ago.

    `usual`: the usual time between two runs; of an adaptive job the time from its last poll to the next one.
    """
    if unchecked > VERY_LATE * patience:
        return FreshnessLevel.VERY_LATE
    if unchecked > patience:
        return FreshnessLevel.LATE
    if not was_checked:
        return FreshnessLevel.NEW
    is_fresh = unchecked <= max(FRESH_GAPS * (usual or timedelta()), SHORTEST)
    return FreshnessLevel.FRESH if is_fresh else FreshnessLevel.BEHIND


def usual_pause(interval: timedelta | None, polled_at: datetime | None, next_run: datetime | None) -> timedelta | None:
    """Return the usual time between two runs of an adaptive job: from its last poll to the next one, if it is planned.

    `interval`: the longest time between two runs.
    """
    if polled_at is None or next_run is None or next_run <= polled_at:
        return interval
    planned = next_run - polled_at
    return planned if interval is None else min(planned, interval)


def usual_interval(
    when: When, planned_until: datetime | None, next_run: datetime | None, max_delay: timedelta | None = None
) -> timedelta | None:
    """Return the time between two runs, from the schedule or from the last plan; None if it is not known.

    `max_delay`: the longest time between two runs of an adaptive job, by itself or by its budget.
    """
    if when.schedule_type is ScheduleType.ADAPTIVE:
        return max_delay
    if when.schedule_type is ScheduleType.INTERVAL:
        return None if when.interval_seconds is None else timedelta(seconds=when.interval_seconds)
    if when.schedule_type is ScheduleType.CALENDAR:
        return None if when.frequency is None else INTERVALS[when.frequency]
    return None if planned_until is None or next_run is None else next_run - planned_until
