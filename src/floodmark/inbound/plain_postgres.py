"""Plain deliveries on PostgreSQL: one statement to read, and one to write.

Reads `jobs`, `job_dependencies` and the unfinished rows of `executions`; writes `trigger_deliveries`, `executions`, and
the counts of `triggers`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

from floodmark.process.failpoints import OPERATION_POINT, failpoint
from floodmark.store.database import PostgresDatabase
from floodmark.store.postgres_connection import Connection
from floodmark.store.rows import WORK_SELECT
from floodmark.store.rule_sql import ON_POSTGRES, UNDER_WAY

from .plain import FACT_COLUMNS, MAY_FIRE, JobFacts, NewDelivery, WantedJobs, facts_from_row

_READ = f"""
WITH wanted AS (
    SELECT found.job_id FROM unnest($1::text[]) AS t(word) CROSS JOIN LATERAL (
        (SELECT by_id.job_id FROM jobs by_id WHERE by_id.job_id = t.word OFFSET 0)
         UNION ALL (SELECT by_name.job_id FROM jobs by_name WHERE by_name.name = t.word OFFSET 0)) found
     UNION
    SELECT naming.job_id FROM unnest($2::text[]) AS p(word) CROSS JOIN LATERAL (
        -- OFFSET lets PostgreSQL look each word up, instead of joining all jobs.
        SELECT n.job_id FROM jobs n WHERE n.{{pattern}} = p.word OFFSET 0) naming
)
SELECT clock_timestamp(), {", ".join(f"j.{name}" for name in FACT_COLUMNS)}, j.{{pattern}}, u.execution_id, u.state,
       EXISTS (SELECT 1 FROM job_dependencies d WHERE d.job_id = j.job_id OFFSET 0), {WORK_SELECT}
  FROM wanted CROSS JOIN LATERAL (SELECT * FROM jobs WHERE jobs.job_id = wanted.job_id LIMIT 1) j
  LEFT JOIN LATERAL (
    SELECT e.execution_id, e.state FROM executions e
     WHERE {ON_POSTGRES.is_unfinished("e", "j.job_id")} AND {UNDER_WAY}
     ORDER BY e.state = 'running' DESC, e.scheduled_for LIMIT 1) u ON true
"""
# No job names the stream that fires it.
_READS: Mapping[str, str] = {
    "webhook": _READ.format(pattern="trigger_webhook"),
    "channel": _READ.format(pattern="trigger_channel"),
    "stream": _READ.format(pattern="trigger_channel"),
}

_SIGNATURES = """
SELECT w.trigger_id, w.signature FROM unnest($1::text[], $2::text[]) AS w(trigger_id, signature) CROSS JOIN LATERAL (
    SELECT 1 FROM trigger_deliveries d WHERE d.trigger_id = w.trigger_id AND d.signature = w.signature LIMIT 1) known
"""

_WRITE = f"""
WITH d AS (
    SELECT * FROM unnest($1::int[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bool[], $8::int[])
      AS d(n, trigger_id, delivery_id, signature, subject, answer, is_registered, made)
), x AS (
    SELECT x.* FROM unnest($9::int[], $10::text[], $11::text[], $12::text[], $13::timestamptz[], $14::smallint[],
                           $15::text[], $16::text[], $17::text[], $18::timestamptz[], $19::text[])
      AS x(n, execution_id, job_id, job_name, scheduled_for, priority, trigger, params, reason, queue_rank, traceparent)
     CROSS JOIN LATERAL (SELECT 1 FROM jobs j WHERE j.job_id = x.job_id AND {MAY_FIRE} LIMIT 1) may_fire
), taken AS (
    INSERT INTO trigger_deliveries (trigger_id, delivery_id, signature, subject, received_at, answer)
    SELECT d.trigger_id, d.delivery_id, d.signature, d.subject, clock_timestamp(), d.answer::jsonb
      FROM d
     WHERE d.made = (SELECT count(*) FROM x WHERE x.n = d.n)
       AND (NOT d.is_registered OR EXISTS (SELECT 1 FROM triggers t WHERE t.trigger_id = d.trigger_id))
     ORDER BY d.trigger_id
    ON CONFLICT DO NOTHING
    RETURNING trigger_id, delivery_id
), new AS (
    SELECT d.n, d.trigger_id, d.made FROM taken JOIN d USING (trigger_id, delivery_id)
), written AS (
    INSERT INTO executions (execution_id, job_id, job_name, scheduled_for, state, priority, trigger, params, reason,
                            hold, queue_rank, created_at, traceparent)
    SELECT x.execution_id, x.job_id, x.job_name, x.scheduled_for,
           CASE WHEN x.reason IS NULL THEN 'queued' ELSE 'waiting' END,
           x.priority, x.trigger, x.params::jsonb, x.reason, CASE WHEN x.reason IS NOT NULL THEN 'overlap' END,
           x.queue_rank, clock_timestamp(), x.traceparent
      FROM x WHERE x.n IN (SELECT new.n FROM new)
), counted AS (
    UPDATE triggers t
       SET fired = t.fired + k.deliveries, matched = t.matched + k.made, last_fired_at = clock_timestamp()
      FROM (SELECT new.trigger_id, count(*) AS deliveries, sum(new.made) AS made FROM new GROUP BY new.trigger_id
             ORDER BY new.trigger_id) k
     WHERE t.trigger_id = k.trigger_id
)
SELECT n FROM new
"""


class PostgresPlainStore:
    """Plain deliveries on PostgreSQL."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def read(self, wanted: WantedJobs) -> list[JobFacts]:
        """Read all jobs with one statement."""

        async def work(connection: Connection) -> Sequence[Any]:
            return await connection.fetch(_READS[wanted.kind], list(wanted.texts), list(wanted.patterns))

        rows = [tuple(row) for row in await self._database.hot("deliver", work)]
        return [facts_from_row(row[1:], row[0]) for row in rows]

    async def find_signatures(self, scopes: Sequence[str], signatures: Sequence[str]) -> set[tuple[str, str]]:
        """Look up all signatures with one statement."""

        async def work(connection: Connection) -> Sequence[Any]:
            return await connection.fetch(_SIGNATURES, list(scopes), list(signatures))

        return {(scope, signature) for scope, signature in await self._database.hot("deliver", work)}

    async def write(self, new: Sequence[NewDelivery]) -> list[bool]:
        """Write all deliveries with one statement, which is one transaction."""
        deliveries = [_delivery_row(n, one) for n, one in enumerate(new)]
        executions = [_execution_row(n, row) for n, one in enumerate(new) for row in one.executions]
        columns = [*zip(*deliveries, strict=True), *(zip(*executions, strict=True) if executions else [()] * 11)]

        async def work(connection: Connection) -> Sequence[Any]:
            failpoint(OPERATION_POINT)
            return await connection.fetch(_WRITE, *columns)

        try:
            written = {row[0] for row in await self._database.hot("deliver", work)}
        except asyncpg.UniqueViolationError:
            # A job had an execution for the same microsecond. Nothing was written.
            return [False] * len(new)
        return [n in written for n in range(len(new))]


def _delivery_row(n: int, one: NewDelivery) -> tuple[Any, ...]:
    made = len(one.executions)
    return n, one.scope, one.delivery_id, one.signature, one.subject, one.answer, one.is_registered, made


def _execution_row(n: int, row: Any) -> tuple[Any, ...]:
    return (
        n,
        row.execution_id,
        row.job_id,
        row.job_name,
        row.scheduled_for,
        row.priority,
        row.trigger,
        row.params,
        row.reason,
        row.queue_rank,
        row.traceparent,
    )
