"""Times in words. Pure: the current time is a parameter."""

from datetime import datetime, timedelta, tzinfo

from floodmark.model.durations import format_duration
from floodmark.model.job import NEVER
from floodmark.triggers.upcoming import clock_changes, upcoming

__all__ = ["absolute", "both", "clock_changes", "due", "relative", "upcoming"]

_SOON = timedelta(seconds=1)


def relative(moment: datetime, now: datetime) -> str:
    """ "in 14 min", "3 h 5 min ago", "now"."""
    away = moment - now
    if abs(away) < _SOON:
        return "now"
    return f"in {format_duration(away)}" if away > timedelta() else f"{format_duration(-away)} ago"


def absolute(moment: datetime, now: datetime, zone: tzinfo | None = None) -> str:
    """Return the time in `zone` (default: of this machine), with its date unless that is today."""
    local, today = moment.astimezone(zone), now.astimezone(zone).date()
    return f"{local:%H:%M:%S}" if local.date() == today else f"{local:%Y-%m-%d %H:%M}"


def both(moment: datetime | None, now: datetime, zone: tzinfo | None = None) -> str:
    """ "in 14 min (14:06:40)", with the name of the zone if one is given; a dash for None."""
    if moment is None or moment == NEVER:
        return "-"
    named = f" {moment.astimezone(zone):%Z}" if zone is not None else ""
    return f"{relative(moment, now)} ({absolute(moment, now, zone)}{named})"


def due(moment: datetime | None, now: datetime, zone: tzinfo | None = None) -> str:
    """Return the same for a future run; one whose time has passed is due."""
    shown = both(moment, now, zone)
    return shown if moment is None or moment > now else f"due {shown}"
