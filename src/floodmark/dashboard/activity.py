"""The charts of the overview, and the calendar of a stream. Pure; equal charts are drawn once for a time zone."""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import pairwise
from typing import Any

from markupsafe import Markup
from msgspec import Struct

from floodmark.model.durations import format_duration
from floodmark.model.minutes import MinuteReport, MinuteRow, StreamDay

from .cells import Day, calendar
from .charts import nice_top
from .plots import Axes, Series, lines, stacked
from .regions import version_of

_A_DAY = timedelta(days=1)
_STEPS = (*(timedelta(minutes=n) for n in (5, 10, 15, 30, 60, 120, 240, 480)), _A_DAY, 7 * _A_DAY)
_MOST_MARKS = 7
_LENGTHS = (30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400, 172_800)
_EPOCH = datetime.fromtimestamp(0, UTC)


class ActivityCharts(Struct, frozen=True):
    """The charts of the last hours."""

    executions: Markup
    items: Markup
    lateness: Markup
    queue: Markup
    each: str
    """What one bar is: "a minute", "5 minutes"."""
    version: str


def activity_charts(report: MinuteReport, zone: tzinfo) -> ActivityCharts:
    """Return the charts of a report."""
    return _draw(tuple(report.rows), report.step_minutes, zone)


@lru_cache(maxsize=32)
def _draw(rows: tuple[MinuteRow, ...], step: int, zone: tzinfo) -> ActivityCharts:
    marks, times = _marks(rows, zone), [f"{row.at.astimezone(zone):%a %H:%M}" for row in rows]

    def axes(label: str, title: Callable[[MinuteRow], str], **options: Any) -> Axes:
        titles = [f"{time}: {title(row)}" for time, row in zip(times, rows, strict=True)]
        return Axes(label, titles, marks, **{"unit": _number, **options})

    executions = [
        _series("done", "done", [row.done for row in rows]),
        _series("failed", "failed", [row.dead for row in rows]),
        _series("skipped", "skipped or cancelled", [row.skipped + row.cancelled for row in rows]),
    ]
    items = [
        _series("new", "new", [row.items_new for row in rows]),
        _series("changed", "changed", [row.items_changed for row in rows]),
    ]
    late = [
        Series("warn", "95th percentile", [row.lateness_p95_seconds for row in rows]),
        Series("items", "median", [row.lateness_p50_seconds for row in rows]),
    ]
    queue = [Series("queued", "longest", [row.queued for row in rows], f"{max((r.queued for r in rows), default=0):,}")]
    drawn = (
        stacked(executions, axes("Ended executions over time", _ends_of)),
        stacked(items, axes("Stored items over time", _items_of)),
        lines(late, axes("Time from due to started", _lateness_of, unit=_seconds, round_up=_round_seconds)),
        stacked(queue, axes("The longest queue over time", lambda row: f"{row.queued:,} queued")),
    )
    each = "a minute" if step == 1 else f"{step} minutes" if step < 60 else f"{step / 60:g} h"
    return ActivityCharts(*drawn, each, version_of(*drawn))


def item_calendar(days: Sequence[StreamDay], until: date, *, weeks: int = 53) -> Markup:
    """Return a calendar of the items of a stream by UTC day, up to a day."""
    shown = {
        day.day: Day(day.new + day.changed, f"{day.day}: {day.new:,} new, {day.changed:,} changed") for day in days
    }
    total = sum(day.new for day in days)
    return calendar(shown, until=until, label=f"Items by day: {total:,} new in {weeks} weeks", weeks=weeks)


def _series(kind: str, name: str, values: Sequence[int]) -> Series:
    return Series(kind, name, values, f"{sum(values):,}")


def _ends_of(row: MinuteRow) -> str:
    rest = row.skipped + row.cancelled
    return f"{row.done:,} done, {row.dead:,} failed" + (f", {rest:,} skipped or cancelled" if rest else "")


def _items_of(row: MinuteRow) -> str:
    return f"{row.items_new:,} new, {row.items_changed:,} changed"


def _lateness_of(row: MinuteRow) -> str:
    if row.lateness_p50_seconds is None or row.lateness_p95_seconds is None:
        return "nothing started"
    words = (_seconds(value) for value in (row.lateness_p50_seconds, row.lateness_p95_seconds))
    return "median {}, 95th percentile {}, {} started".format(*words, f"{row.started:,}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else ""


def _seconds(value: float) -> str:
    if value < 1:
        return f"{value * 1000:.0f} ms" if value else "0"
    return format_duration(timedelta(seconds=value))


def _round_seconds(value: float) -> float:
    """Return the smallest usual length of time that is not below a value; below a minute a round number."""
    return next((step for step in _LENGTHS if step >= value), nice_top(value)) if value > 20 else nice_top(value)


def _marks(rows: Sequence[MinuteRow], zone: tzinfo) -> list[tuple[int, str]]:
    """Return round times along the axis."""
    if len(rows) < 2:
        return []
    length = rows[-1].at - rows[0].at
    every = next((step for step in _STEPS if length / step <= _MOST_MARKS), _STEPS[-1])
    local = [row.at.astimezone(zone) for row in rows]
    # By the clock of the viewer: midnight there, not in UTC.
    steps = [(at.replace(tzinfo=UTC) - _EPOCH) // every for at in local]
    return [
        (n + 1, f"{local[n + 1]:%H:%M}" if every < _A_DAY else f"{local[n + 1]:%a %d}")
        for n, (before, after) in enumerate(pairwise(steps))
        if after != before
    ]
