"""Points in time as people read them. Pure: whoever asks says what time it is."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from itertools import islice

from floodmark.durations import format_duration
from floodmark.job import NEVER, Job
from floodmark.triggers import instants, trigger_of

_INSTANT = timedelta(microseconds=1)
_SOON = timedelta(seconds=1)


def relative(moment: datetime, now: datetime) -> str:
    """ "in 14 min", "3 h 5 min ago", "now"."""
    away = moment - now
    if abs(away) < _SOON:
        return "now"
    return f"in {format_duration(away)}" if away > timedelta() else f"{format_duration(-away)} ago"


def absolute(moment: datetime, now: datetime, zone: tzinfo | None = None) -> str:
    """The time on the clocks of `zone` (of this machine), with its date unless that is today."""
    local, today = moment.astimezone(zone), now.astimezone(zone).date()
    return f"{local:%H:%M:%S}" if local.date() == today else f"{local:%Y-%m-%d %H:%M}"


def both(moment: datetime | None, now: datetime, zone: tzinfo | None = None) -> str:
    """ "in 14 min (14:06:40)", with the name of the zone if one is given; a dash for a time there is not."""
    if moment is None or moment == NEVER:
        return "-"
    named = f" {moment.astimezone(zone):%Z}" if zone is not None else ""
    return f"{relative(moment, now)} ({absolute(moment, now, zone)}{named})"


def due(moment: datetime | None, now: datetime, zone: tzinfo | None = None) -> str:
    """The same for a run to come: one whose time has passed is due, not past."""
    shown = both(moment, now, zone)
    return shown if moment is None or moment > now else f"due {shown}"


def upcoming(job: Job, now: datetime, count: int) -> list[datetime]:
    """The next instants of a job, as the scheduler will see them; one that is overdue comes first."""
    trigger = trigger_of(job.when, anchor=job.created_at)
    since = job.planned_until or job.created_at - _INSTANT
    overdue = trigger.latest(now)
    due = [overdue] if overdue is not None and overdue > since else []
    return [*due, *islice(instants(trigger, max(since, now)), count)][:count]


def clock_changes(moments: Sequence[datetime], since: datetime, zone: tzinfo) -> Iterator[str]:
    """Beside each moment, what the clocks of `zone` did since the one before it."""
    before = since.astimezone(zone).utcoffset() or timedelta()
    for moment in moments:
        offset = moment.astimezone(zone).utcoffset() or timedelta()
        moved = offset - before
        before = offset
        yield (
            f"clocks went {'forward' if moved > timedelta() else 'back'} {format_duration(abs(moved))}" if moved else ""
        )
