"""Executions that people and programs ask for, on PostgreSQL: one statement for all of them.

Reads `jobs` and the unfinished rows of `executions`; writes `executions` and `audit`. No row is locked: if two
processes ask for the same job in the same moment, both executions are queued, and the claim lets the second wait.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from floodmark.model.job import SCHEDULER_VERSION
from floodmark.process.failpoints import OPERATION_POINT, failpoint
from floodmark.rules.holding import WAITS_FOR_EXECUTION
from floodmark.store.database import PostgresDatabase
from floodmark.store.port import RunAnswer, RunRequest, is_accepted
from floodmark.store.postgres_connection import Connection
from floodmark.store.rule_sql import ON_POSTGRES, UNDER_WAY, fill_text

_MICROSECOND = timedelta(microseconds=1)
_JOB = "SELECT job_id, name, priority, version, scheduler_version FROM jobs"

# `place` is 2 and more for a job that this statement runs several times: they wait for its first.
_FORCE = f"""
WITH r AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::text[], $5::text[], $6::text[], $7::int[],
                         $8::text[], $9::text[], $10::text[], $11::text[]) WITH ORDINALITY
      AS r(execution_id, job, scheduled_for, trigger, params, traceparent, wanted, who, via, request_id, after, n)
), found AS (
    SELECT r.*, j.*, u.execution_id AS other, u.state AS other_state
      FROM r CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT 0 AS choice, by_name.* FROM ({_JOB} WHERE name = r.job LIMIT 1) by_name
             UNION ALL
            SELECT 1, by_id.* FROM ({_JOB} WHERE job_id IN (r.job, lower(replace(r.job, '-', ''))) LIMIT 1) by_id
        ) either ORDER BY choice LIMIT 1) j
      LEFT JOIN LATERAL (
        SELECT e.execution_id, e.state FROM executions e
         WHERE {ON_POSTGRES.is_unfinished("e", "j.job_id")} AND {UNDER_WAY}
         ORDER BY e.state = 'running' DESC, e.scheduled_for LIMIT 1) u ON true
), accepted AS (
    SELECT f.*, row_number() OVER w AS place, first_value(f.execution_id) OVER w AS first
      FROM found f WHERE f.scheduler_version = {SCHEDULER_VERSION} AND (f.wanted IS NULL OR f.wanted = f.version)
    WINDOW w AS (PARTITION BY f.job_id ORDER BY f.n)
), explained AS (
    SELECT a.*, CASE WHEN a.other IS NOT NULL THEN {
    fill_text(WAITS_FOR_EXECUTION, execution_id="a.other", state="a.other_state")
} WHEN a.place > 1 THEN {fill_text(WAITS_FOR_EXECUTION, execution_id="a.first", state="'queued'")} END AS reason
      FROM accepted a
), written AS (
    INSERT INTO executions (execution_id, job_id, job_name, scheduled_for, state, priority, trigger, params, reason,
                            hold, queue_rank, created_at, traceparent)
    SELECT x.execution_id, x.job_id, x.name, x.scheduled_for,
           CASE WHEN x.reason IS NULL THEN 'queued' ELSE 'waiting' END,
           x.priority, x.trigger, x.params::jsonb, x.reason,
           CASE WHEN x.reason IS NOT NULL THEN 'overlap' END,
           CASE WHEN x.reason IS NULL THEN clock_timestamp() END,
           clock_timestamp(), x.traceparent
      FROM explained x ORDER BY x.n
    ON CONFLICT DO NOTHING
    RETURNING execution_id, reason
), audited AS (
    INSERT INTO audit (at, who, via, action, object, after, request_id)
    SELECT clock_timestamp(), f.who, f.via, 'job.run', 'job:' || f.name, f.after::jsonb, f.request_id
      FROM found f WHERE f.who IS NOT NULL AND f.execution_id IN (SELECT w.execution_id FROM written w)
)
SELECT f.n, f.job_id, f.name, f.version, f.scheduler_version, w.execution_id IS NOT NULL, f.scheduled_for, w.reason
  FROM found f LEFT JOIN written w USING (execution_id)
"""

_STORED = """
SELECT r.n, e.scheduled_for, e.reason FROM unnest($1::text[]) WITH ORDINALITY AS r(execution_id, n)
 CROSS JOIN LATERAL (
    SELECT scheduled_for, reason FROM executions e WHERE e.execution_id = r.execution_id LIMIT 1) e
"""


class PostgresForcing:
    """Creates requested executions on PostgreSQL."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def force(self, requests: Sequence[RunRequest]) -> list[RunAnswer]:
        """Write all requests with one statement; repeat it for those whose instant was taken."""
        answers = [RunAnswer()] * len(requests)
        pending, step = dict(enumerate(requests)), 1
        while pending:
            places = list(pending)
            rows = await self._write(list(pending.values()))
            taken: dict[int, RunRequest] = {}
            for n, *columns in rows:
                place = places[n - 1]
                answer = answers[place] = _answer(columns)
                request = pending[place]
                if not answer.is_written and is_accepted(request, answer):
                    taken[place] = replace(request, scheduled_for=request.scheduled_for + step * _MICROSECOND)
            if taken:
                taken = await self._without_stored(taken, answers)
            pending, step = taken, 2 * step
        return answers

    async def _write(self, requests: Sequence[RunRequest]) -> Sequence[Any]:
        columns = list(map(list, zip(*map(_row, requests), strict=True)))

        async def work(connection: Connection) -> Sequence[Any]:
            failpoint(OPERATION_POINT)
            return await connection.fetch(_FORCE, *columns)

        return await self._database.hot("force", work)

    async def _without_stored(self, taken: dict[int, RunRequest], answers: list[RunAnswer]) -> dict[int, RunRequest]:
        """Return the requests without those that an attempt has stored whose connection was lost; answer these."""
        ids = [request.execution_id for request in taken.values()]
        places = list(taken)

        async def work(connection: Connection) -> Sequence[Any]:
            return await connection.fetch(_STORED, ids)

        for n, scheduled_for, reason in await self._database.hot("force", work):
            place = places[n - 1]
            answers[place] = replace(answers[place], is_written=True, scheduled_for=scheduled_for, reason=reason)
            del taken[place]
        return taken


def _row(request: RunRequest) -> tuple[Any, ...]:
    audit = request.audit
    entry = (None,) * 4 if audit is None else (audit.who, audit.via, audit.request_id, audit.after)
    return (
        request.execution_id,
        request.job,
        request.scheduled_for,
        request.trigger,
        request.params,
        request.traceparent,
        request.version,
        *entry,
    )


def _answer(columns: Sequence[Any]) -> RunAnswer:
    job_id, name, version, scheduler_version, is_written, scheduled_for, reason = columns
    return RunAnswer(
        job_id=job_id,
        name=name,
        version=version,
        scheduler_version=scheduler_version,
        is_written=is_written,
        scheduled_for=scheduled_for,
        reason=reason,
    )
