"""Executions that people and programs ask for, on SQLite: one transaction for all of them."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import count

from msgspec.structs import replace

from floodmark.model.clock import Clock
from floodmark.process.failpoints import OPERATION_POINT, failpoint
from floodmark.rules.holding import wait_for_execution
from floodmark.store.database import SqliteDatabase
from floodmark.store.port import RunAnswer, RunRequest, is_accepted
from floodmark.store.rule_sql import UNDER_WAY
from floodmark.store.types import from_text, to_text

_MICROSECOND = timedelta(microseconds=1)
_JOB = "SELECT job_id, name, priority, version, scheduler_version FROM jobs"
_BY_NAME = f"{_JOB} WHERE name = ?"
_BY_ID = f"{_JOB} WHERE job_id IN (?, ?) LIMIT 1"
_OTHER = f"""
SELECT e.execution_id, e.state FROM executions e INDEXED BY ix_job_executions_active
 WHERE e.job_id = ? AND {UNDER_WAY} ORDER BY e.state = 'running' DESC, e.scheduled_for LIMIT 1
"""
_INSERT = """
INSERT INTO executions (execution_id, job_id, job_name, scheduled_for, state, priority, trigger, params, reason, hold,
                        queue_rank, created_at, traceparent)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_STORED = "SELECT scheduled_for, reason FROM executions WHERE execution_id = ?"
_AUDIT = """
INSERT INTO audit (at, who, via, action, object, after, request_id) VALUES (?, ?, ?, 'job.run', ?, ?, ?)
"""


class SqliteForcing:
    """Creates requested executions on SQLite."""

    def __init__(self, database: SqliteDatabase, *, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def force(self, requests: Sequence[RunRequest]) -> list[RunAnswer]:
        """Write all requests in one transaction, in their order: each sees the earlier ones."""

        def work(connection: sqlite3.Connection) -> list[RunAnswer]:
            now = to_text(self._clock.now())
            answers = [_force(connection, request, now) for request in requests]
            failpoint(OPERATION_POINT)
            return answers

        return await self._database.hot("force", work)


def _force(connection: sqlite3.Connection, request: RunRequest, now: str) -> RunAnswer:
    found = connection.execute(_BY_NAME, (request.job,)).fetchone()
    if found is None:
        found = connection.execute(_BY_ID, (request.job, request.job.replace("-", "").lower())).fetchone()
    if found is None:
        return RunAnswer()
    job_id, name, priority, version, scheduler_version = found
    answer = RunAnswer(job_id=job_id, name=name, version=version, scheduler_version=scheduler_version)
    if not is_accepted(request, answer):
        return answer
    other = connection.execute(_OTHER, (job_id,)).fetchone()
    reason = None if other is None else wait_for_execution(*other)
    scheduled_for = _insert(connection, request, (job_id, name, priority), reason, now)
    if scheduled_for is None:
        stored, reason = connection.execute(_STORED, (request.execution_id,)).fetchone()
        return replace(answer, is_written=True, scheduled_for=from_text(stored), reason=reason)
    if request.audit is not None:
        entry = request.audit
        connection.execute(_AUDIT, (now, entry.who, entry.via, f"job:{name}", entry.after, entry.request_id))
    return replace(answer, is_written=True, scheduled_for=scheduled_for, reason=reason)


def _insert(
    connection: sqlite3.Connection, request: RunRequest, job: tuple[str, str, int], reason: str | None, now: str
) -> datetime | None:
    """Insert an execution at the first microsecond that the job has not used; return it, or None if it is there."""
    job_id, name, priority = job
    state, hold, rank = ("queued", None, now) if reason is None else ("waiting", "overlap", None)
    for step in count():
        scheduled_for = request.scheduled_for + step * _MICROSECOND
        given = (request.execution_id, job_id, name, to_text(scheduled_for), state, priority, request.trigger)
        more = (request.params, reason, hold, rank, now, request.traceparent)
        if connection.execute(_INSERT, (*given, *more)).rowcount:
            return scheduled_for
        if connection.execute(_STORED, (request.execution_id,)).fetchone() is not None:
            return None
    raise AssertionError("unreachable")
