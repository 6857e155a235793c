"""Executions as bars of a chart. Pure. Templates call these functions: links and zones differ between viewers."""

from collections.abc import Sequence
from datetime import timedelta
from math import sqrt

from floodmark.model.counts import list_counts
from floodmark.model.durations import format_duration
from floodmark.model.execution import Execution, ExecutionMark

from .charts import Bar
from .rendering import exact
from .view import View


def bars_of_marks(view: View, marks: Sequence[Execution | ExecutionMark]) -> list[Bar]:
    """Return a bar for each execution: its colour is the state, its height the duration."""
    return [
        Bar(
            # The root, so that one long run does not hide the others.
            ((f"fill-{mark.state}", 1 + sqrt(mark.duration_seconds or 0.0)),),
            title_of(view, mark),
            view.url(f"/executions/{mark.execution_id}"),
        )
        for mark in marks
    ]


def bars_of_items(view: View, marks: Sequence[Execution | ExecutionMark]) -> list[Bar]:
    """Return a bar for each execution: its height is the number of new and changed items."""
    return [
        Bar(
            (("fill-new", sqrt(mark.items_new)), ("fill-changed", sqrt(mark.items_changed))),
            title_of(view, mark),
            view.url(f"/executions/{mark.execution_id}"),
        )
        for mark in marks
    ]


def title_of(view: View, mark: Execution | ExecutionMark) -> str:
    """Return "done in 2 s, 3 new; due 2026-06-01 14:06:40 CEST"."""
    took = "" if mark.duration_seconds is None else f" in {format_duration(timedelta(seconds=mark.duration_seconds))}"
    items = list_counts(new=mark.items_new, changed=mark.items_changed) or "nothing new"
    return f"{mark.state}{took}, {items}; due {exact(mark.scheduled_for, view.zone)}"
