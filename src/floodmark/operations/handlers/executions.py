"""Handlers of executions and dead letters."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from floodmark.coordination.signals.port import Topic
from floodmark.errors import Conflict
from floodmark.model.dead_letters import DeadLetterGroup
from floodmark.model.execution import Execution, ExecutionMark, State
from floodmark.model.page import Page, key_of, last_key, page_of
from floodmark.operations.executions import DeadLetterOperations, ExecutionOperations, Letters, LogEntry, Logs

from .base import Handlers

_ENTRIES_SHOWN = 200


class ExecutionHandlers(ExecutionOperations, Handlers):
    """Executions in the store."""

    async def executions(
        self,
        *,
        job: str | None = None,
        states: Sequence[State] | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Execution]:
        before = last_key("executions", cursor, str)
        rows = await self.store.executions.page(await self.find_job_id(job), states or None, before, limit + 1)
        return page_of(rows, limit, "executions", lambda row: [row.execution_id])

    async def recent_executions(self, hours: float = 24, limit: int = 100) -> list[Execution]:
        return await self.store.executions.get_recent_executions(hours, limit)

    async def latest_executions(self, jobs: Sequence[str], count: int = 10) -> list[ExecutionMark]:
        return await self.store.executions.latest(jobs, count)

    async def cleanup_old_executions(self, days: float = 90) -> int:
        deleted = await self.store.executions.cleanup_old_executions(days)
        async with self.transaction():
            await self.record("executions.cleaned", "executions", after={"days": days, "deleted": deleted})
        return deleted

    async def execution(self, execution_id: str) -> Execution:
        return await self.store.executions.get_execution(execution_id)

    async def execution_logs(self, execution_id: str) -> Logs:
        execution = await self.store.executions.get_execution(execution_id)
        entries = await self.store.audit.page(what=f"execution:{execution.execution_id}", limit=_ENTRIES_SHOWN)
        events = [*_moments(execution), *(LogEntry(row.at, row.action, f"by {row.who}") for row in entries)]
        details = execution.error_details
        return Logs(
            execution_id=execution.execution_id,
            job_name=execution.job_name,
            state=execution.state,
            error_message=execution.error_message,
            attempts=details if isinstance(details, list) else [] if details is None else [details],
            events=sorted(events, key=lambda event: event.at),
        )

    async def cancel_execution(self, execution_id: str) -> Execution:
        async with self.transaction(Topic.CANCEL):
            before = await self.store.executions.get_execution(execution_id)
            after = await self.store.jobs.cancel_execution(before)
            was, now = {"state": before.state}, {"state": after.state}
            await self.record("execution.cancelled", f"execution:{after.execution_id}", before=was, after=now)
        return after

    async def retry_execution(self, execution_id: str) -> Execution:
        before = await self.store.executions.get_execution(execution_id)
        if before.state is not State.DEAD:
            raise Conflict(
                f"execution {before.execution_id} is {before.state}: "
                "only one that failed permanently (dead) can be retried",
                hint=f"run its job again: POST /api/v2/jobs/{before.job_id}/force-run",
            )
        await retry_dead_letters(self, Letters(ids=(before.execution_id,)))
        return await self.store.executions.get_execution(before.execution_id)

    async def statistics(self, days: float = 7, job: str | None = None) -> dict[str, Any]:
        job_id = None if job is None else (await self.store.jobs.get(job)).job_id
        return await self.store.executions.statistics_of(days, job_id)


class DeadLetterHandlers(DeadLetterOperations, Handlers):
    """Dead letters in the store."""

    async def letters(
        self, *, job: str | None = None, group: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[Execution]:
        before = key_of("letters", cursor, datetime, str)
        rows = await self.store.dead_letters.page(await self.find_job_id(job), before, limit + 1, group=group)
        return page_of(rows, limit, "letters", lambda row: [row.completed_at, row.execution_id])

    async def letter_groups(self, job: str | None = None) -> list[DeadLetterGroup]:
        return await self.store.dead_letters.groups(await self.find_job_id(job))

    async def retry_letters(self, which: Letters) -> int:
        return await retry_dead_letters(self, which)

    async def drop_letters(self, which: Letters) -> int:
        which.require_choice()
        async with self.transaction():
            count = await self.store.dead_letters.drop(
                which.ids, group=which.group, job=await self.find_job_id(which.job)
            )
            await self.record("letters.dropped", _name_letters(which), after={"count": count})
        return count


async def retry_dead_letters(handlers: Handlers, which: Letters) -> int:
    """Queue dead letters again; return how many."""
    which.require_choice()
    letters = handlers.store.dead_letters
    async with handlers.transaction():
        job, patience = await handlers.find_job_id(which.job), handlers.resources.settings.queue_patience
        queued = await letters.retry(which.ids, group=which.group, job=job, patience=patience)
        retried = [one.execution_id for one in queued]
        await handlers.record("letters.retried", _name_letters(which), after={"executions": retried})
    # Again: the worker that failed may not have removed the old entry yet.
    await handlers.resources.queue.put(queued, again=True)
    return len(queued)


def _name_letters(which: Letters) -> str:
    if which.ids:
        return f"execution:{which.ids[0]}" if len(which.ids) == 1 else f"executions:{len(which.ids)}"
    return f"letters:{which.group}" if which.group is not None else f"job:{which.job}"


def _moments(execution: Execution) -> list[LogEntry]:
    reason = execution.error_message or execution.reason
    moments: Mapping[str, tuple[datetime | None, str | None]] = {
        "created": (execution.created_at, f"{execution.trigger}, for {execution.scheduled_for.isoformat()}"),
        "started": (execution.started_at, f"attempt {execution.attempt}, worker {execution.worker}"),
        "ended": (execution.completed_at, f"{execution.state}: {reason}" if reason else execution.state),
    }
    return [LogEntry(at, name, text) for name, (at, text) in moments.items() if at is not None]
