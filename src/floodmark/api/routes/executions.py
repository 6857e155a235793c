"""Executions: what ran, what runs, and how it went."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import Path as InPath
from fastapi import Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from floodmark.api.deps import Administering, Operating, Reading
from floodmark.api.models import ExecutionOut, Given, Name, StatisticsOut
from floodmark.api.paging import Cursor, Limit, Page, key_of, page
from floodmark.api.routing import answer, router
from floodmark.errors import Conflict
from floodmark.model.execution import Execution, State
from floodmark.model.shapes import execution_shape
from floodmark.operations.port import Letters

executions = router(tag="Executions")

ExecutionId = Annotated[
    str, InPath(description="The id of an execution, or the beginning of one.", min_length=1, max_length=64)
]
OfJob = Annotated[Name | None, Query(description="Only of this job: its name or id, also of one that is gone.")]


class LogEntry(BaseModel):
    """Something that happened to an execution."""

    at: datetime
    event: str = Field(description="created, started, ended, or an action of the audit.", examples=["started"])
    text: str | None = Field(description="More about it.")


class LogsOut(BaseModel):
    """What is known of how an execution went."""

    execution_id: str
    job_name: str
    state: State
    error_message: str | None
    attempts: list[Any] = Field(description="Every failed attempt, the first one first.")
    events: list[LogEntry]


class CleanupIn(Given):
    """Which executions are old."""

    days: float = Field(ge=0, le=3650, description="Older than this many days.", examples=[90])


class CleanedOut(BaseModel):
    """What was deleted."""

    deleted: int


@executions.get("/executions", response_model=Page[ExecutionOut], summary="List executions")
async def list_executions(
    office: Reading,
    *,
    job: OfJob = None,
    state: Annotated[list[State] | None, Query(description="Only in these states; can be repeated.")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Response:
    """Newest first, also of jobs that are gone."""
    key = key_of("executions", cursor, str)
    before = None if key is None else key[0]
    found = await office.executions(job=job, states=state or None, before=before, limit=limit + 1)
    return answer(page(found, limit, "executions", lambda row: [row.execution_id], execution_shape))


@executions.get("/executions/recent", response_model=Page[ExecutionOut], summary="List recent executions")
async def recent_executions(
    office: Reading,
    hours: Annotated[float, Query(gt=0, le=8760, description="How many hours to look back.")] = 24,
    limit: Annotated[int, Query(ge=1, le=1000, description="How many at most; there is no next page.")] = 100,
) -> Response:
    """What was written down within the last hours, died then, or is still unfinished; newest first."""
    found = await office.recent(hours, limit)
    return answer({"items": [execution_shape(row) for row in found], "next": None})


@executions.post("/executions/cleanup", response_model=CleanedOut, summary="Delete old executions")
async def cleanup_executions(office: Administering, body: CleanupIn) -> Response:
    """Delete executions that ended and were written down longer ago. Those that are unfinished stay."""
    return answer({"deleted": await office.cleanup_old_executions(body.days)})


@executions.get("/executions/{execution_id}", response_model=ExecutionOut, summary="Show an execution")
async def show_execution(office: Reading, execution_id: ExecutionId) -> Response:
    """One execution with start, end, duration, state, error and result."""
    return answer(execution_shape(await office.execution(execution_id)))


@executions.get("/executions/{execution_id}/logs", response_model=LogsOut, summary="Show what happened to it")
async def show_logs(office: Reading, execution_id: ExecutionId) -> Response:
    """Every failed attempt with its error, and what happened to it when."""
    execution = await office.execution(execution_id)
    told = await office.audit(what=f"execution:{execution.execution_id}", limit=200)
    events = _story(execution)
    events += [{"at": row.at, "event": row.action, "text": f"by {row.who}"} for row in told]
    return answer(
        {
            "execution_id": execution.execution_id,
            "job_name": execution.job_name,
            "state": execution.state,
            "error_message": execution.error_message,
            "attempts": _attempts(execution.error_details),
            "events": sorted(events, key=lambda event: event["at"]),
        }
    )


@executions.post("/executions/{execution_id}/cancel", response_model=ExecutionOut, summary="Cancel an execution")
async def cancel_execution(office: Operating, execution_id: ExecutionId) -> Response:
    """End it: at once if it has not started, else as soon as its worker hears of it."""
    return answer(execution_shape(await office.cancel_execution(execution_id)))


@executions.post(
    "/executions/{execution_id}/retry", status_code=202, response_model=ExecutionOut, summary="Retry an execution"
)
async def retry_execution(office: Operating, execution_id: ExecutionId) -> Response:
    """Run an execution that failed for good again, with all attempts ahead of it."""
    before = await office.execution(execution_id)
    if before.state is not State.DEAD:
        raise Conflict(
            f"execution {before.execution_id} is {before.state}: only one that failed for good (dead) can be retried",
            hint=f"run its job again: POST /api/v2/jobs/{before.job_id}/force-run",
        )
    await office.retry_letters(Letters(ids=(before.execution_id,)))
    return answer(execution_shape(await office.execution(before.execution_id)), 202)


@executions.get("/statistics", response_model=StatisticsOut, summary="Show how executions went")
async def show_statistics(
    office: Reading,
    days: Annotated[float, Query(gt=0, le=3650, description="How many days to look back.")] = 7,
    job: OfJob = None,
) -> Response:
    """How the executions of the last days went, of all jobs or of one."""
    return answer(await office.statistics(days, job))


def _attempts(details: Any) -> list[Any]:
    return details if isinstance(details, list) else [] if details is None else [details]


def _story(execution: Execution) -> list[dict[str, Any]]:
    reason = execution.error_message or execution.reason
    moments: Mapping[str, tuple[datetime | None, str | None]] = {
        "created": (execution.created_at, f"{execution.trigger}, for {execution.scheduled_for.isoformat()}"),
        "started": (execution.started_at, f"attempt {execution.attempt}, worker {execution.worker}"),
        "ended": (execution.completed_at, f"{execution.state}: {reason}" if reason else execution.state),
    }
    return [{"at": at, "event": name, "text": text} for name, (at, text) in moments.items() if at is not None]
