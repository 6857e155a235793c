"""Executions: the list, and one of them with its phases."""

from collections.abc import Mapping, Sequence
from datetime import timedelta, tzinfo
from typing import Any

from floodmark.dashboard.charts import ChartSpan
from floodmark.dashboard.page import page
from floodmark.dashboard.phases import Phase, phases_of
from floodmark.dashboard.view import View
from floodmark.errors import InvalidInput, NotFound
from floodmark.model.dead_letters import fingerprint
from floodmark.model.durations import format_duration
from floodmark.model.execution import ACTIVE, Execution, State
from floodmark.model.job import Job
from floodmark.model.notes import notes_of
from floodmark.operations.executions import Logs
from floodmark.operations.timeline import (
    TimelineEntry,
    batches_of,
    failed_attempts,
    is_in_slices,
    sort_entries,
    timeline_of,
)

_ROWS, _LINES = 50, 50
# Batches are searched among this many events, for executions that ended lately.
_EVENTS, _REMEMBERED = 900, timedelta(minutes=30)
# Entries of the log that the timeline has in more detail.
_OWN = ("created", "started", "ended")


@page("/executions", "executions.html", live=("execution",))
async def list_executions(view: View) -> Mapping[str, Any]:
    """List executions, newest first."""
    state, job = view.query("state"), view.query("job")
    if state is not None and state not in list(State):
        raise InvalidInput(f"state is {state[:40]!r}", hint=f"use one of {', '.join(State)}")
    states = None if state is None else [State(state)]
    found = await view.operations.executions(
        job=None if job is None else job[:200], states=states, cursor=view.query("cursor"), limit=_ROWS
    )
    return {
        "executions": found,
        "choices": [("", "all"), *((one.value, one.value) for one in State)],
        "job": await _find_job(view, job),
    }


async def _find_job(view: View, name: str | None) -> Job | None:
    """Return the job of the list; None if it was removed."""
    try:
        return None if name is None else await view.operations.job(name[:200])
    except NotFound:
        return None


@page("/executions/{execution}", "execution.html", live=("execution", "change"))
async def show_execution(view: View) -> Mapping[str, Any]:
    """Show one execution."""
    execution = await view.operations.execution(view.param("execution")[:64])
    logs = await view.operations.execution_logs(execution.execution_id)
    job = await _find_job(view, execution.job_id)
    batches = await _batches(view, execution, job)
    return {
        "execution": execution,
        "job": job,
        "is_active": execution.state in ACTIVE,
        "phases": phases_of(execution, view.now),
        "spans_of": spans_of,
        "attempts": failed_attempts(execution, with_last=True),
        "group": fingerprint(execution.error_message) if execution.error_message else None,
        "notes": notes_of(execution.result),
        "log": lambda zone: log_of(execution, logs, batches, zone),
        "lateness": _lateness(execution),
    }


def _lateness(execution: Execution) -> str | None:
    """Return how long after its instant it has first started, as far as that is known."""
    started = execution.started_at
    if started is None or execution.rescues or execution.error_details or is_in_slices(execution):
        return None
    return format_duration(max(started - execution.scheduled_for, timedelta()))


async def _batches(view: View, execution: Execution, job: Job | None) -> list[TimelineEntry]:
    """Return the batches that it has stored, if they are among the newest events."""
    ended = execution.completed_at
    if job is None or (ended is not None and view.now - ended > _REMEMBERED):
        return []
    after = max(0, await view.operations.last_position() - _EVENTS)
    found = await view.operations.events(after=after, stream=job.stream, limit=_EVENTS)
    return batches_of(found.items, [execution])


def log_of(execution: Execution, logs: Logs, batches: Sequence[TimelineEntry], zone: tzinfo) -> list[TimelineEntry]:
    """Return what happened to an execution, newest first: its own entries, its batches and what people did."""
    acted = [
        TimelineEntry(at=entry.at, level="info", event=entry.event, text=entry.text or "")
        for entry in logs.events
        if entry.event not in _OWN
    ]
    return sort_entries([*timeline_of(execution, zone), *batches, *acted])[::-1][:_LINES]


def spans_of(phases: list[Phase]) -> list[ChartSpan]:
    """Return phases as parts of a line of time from the first begin to the last end."""
    if not phases:
        return []
    begin, end = min(phase.begin for phase in phases), max(phase.end for phase in phases)
    whole = max((end - begin).total_seconds(), 0.001)
    return [
        ChartSpan(
            phase.kind,
            (phase.begin - begin).total_seconds() / whole,
            (phase.end - begin).total_seconds() / whole,
            f"{phase.title}: {format_duration(phase.length)}",
        )
        # Moments are drawn over the phases around them.
        for phase in sorted(phases, key=lambda phase: phase.is_mark)
    ]


PAGES = (list_executions, show_execution)
