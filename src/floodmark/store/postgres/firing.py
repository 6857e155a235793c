"""The scheduler's transaction on PostgreSQL.

Reads `jobs` with `FOR UPDATE SKIP LOCKED`; writes `executions`, whose (job_id, scheduled_for) is unique.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from floodmark.model.execution import Queued, State
from floodmark.model.job import DueJob
from floodmark.rules.rank import rank_delays
from floodmark.store.database import PostgresDatabase
from floodmark.store.port import Decide, Decision, Fired, NewExecution
from floodmark.store.postgres_connection import Connection
from floodmark.store.rows import DUE_COLUMNS, DUE_SELECT, due_job_from_row
from floodmark.store.rule_sql import CLOCKED, REPLACE, UNMET_SINCE_LAST_RUN, postgres_rank

T = TypeVar("T")

_LOOK_AT = f"""
SELECT {DUE_SELECT},
    (SELECT count(*) FROM executions e WHERE e.job_id = j.job_id AND e.completed_at IS NULL),
    (SELECT array_agg(needed.name ORDER BY needed.name)
       FROM job_dependencies d JOIN jobs needed ON needed.job_id = d.depends_on
      WHERE d.job_id = j.job_id
        AND {UNMET_SINCE_LAST_RUN.format(last_run="j.last_run")})
  FROM jobs j WHERE {{which}} AND {CLOCKED} ORDER BY j.next_run LIMIT $1 FOR UPDATE OF j SKIP LOCKED
"""
_UNPLANNED = _LOOK_AT.format(which="j.next_run IS NULL")
_DUE = _LOOK_AT.format(which="j.next_run <= $2")

_INSERT = f"""
INSERT INTO executions (execution_id, job_id, job_name, scheduled_for, state, priority, trigger, coalesced,
                            reason, hold, not_before, traceparent, queue_rank, completed_at)
SELECT n.*, CASE n.state WHEN 'queued' THEN {
    postgres_rank("$13::timestamptz", delays="$14", priority="n.priority")
} END,
       CASE n.state WHEN 'skipped' THEN $13::timestamptz END
  FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::text[], $6::smallint[], $7::text[],
              $8::int[], $9::text[], $10::text[], $11::timestamptz[], $12::text[])
    AS n(execution_id, job_id, job_name, scheduled_for, state, priority, trigger, coalesced, reason, hold, not_before,
         traceparent)
ON CONFLICT (job_id, scheduled_for) DO NOTHING
RETURNING execution_id
"""

_ADVANCE = """
UPDATE jobs j SET next_run = n.next_run, planned_until = n.planned_until, invalid_reason = n.invalid_reason
  FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[], $4::text[])
    AS n(job_id, next_run, planned_until, invalid_reason)
 WHERE j.job_id = n.job_id
"""

_REPLACE = f"""
UPDATE executions SET {REPLACE.format(now="clock_timestamp()")}
 WHERE job_id = ANY($1) AND completed_at IS NULL AND NOT execution_id = ANY($2)
"""

_NEXT_DUE = f"SELECT j.next_run FROM jobs j WHERE j.next_run IS NOT NULL AND {CLOCKED} ORDER BY j.next_run LIMIT 1"


class PostgresFiring:
    """Fires due jobs on PostgreSQL."""

    def __init__(self, database: PostgresDatabase, *, patience: timedelta) -> None:
        self._database, self._delays = database, rank_delays(patience)

    async def fire(self, decide: Decide, *, limit: int) -> Fired:
        """Read due jobs, decide, and write, in one transaction."""

        async def work(connection: Connection) -> Fired:
            async with connection.transaction():
                now: datetime = await connection.fetchval("SELECT clock_timestamp()")
                rows = await connection.fetch(_UNPLANNED, limit)
                if len(rows) < limit:
                    rows += await connection.fetch(_DUE, limit - len(rows), now)
                decisions = decide([_due_job(row) for row in rows], now) if rows else ()
                queued, written = await self._write(connection, decisions, now) if decisions else ([], 0)
                # A full portion means that there may be more: fire again at once.
                next_due = await connection.fetchval(_NEXT_DUE) if len(rows) < limit else now
            return Fired(queued=queued, written=written, looked_at=len(rows), next_due=next_due, now=now)

        return await self._database.hot("fire", work)

    async def _write(
        self, connection: Connection, decisions: Sequence[Decision], now: datetime
    ) -> tuple[list[Queued], int]:
        new = [(decision.job, execution) for decision in decisions for execution in decision.executions]
        written = await self._insert(connection, new, now) if new else frozenset()
        replaced = [decision.job.job_id for decision in decisions if decision.replace]
        if replaced:
            await connection.execute(_REPLACE, replaced, list(written))
        await connection.execute(
            _ADVANCE,
            [decision.job.job_id for decision in decisions],
            _sparse([decision.next_run for decision in decisions]),
            [decision.planned_until for decision in decisions],
            _sparse([decision.invalid_reason for decision in decisions]),
        )
        queued = [
            Queued(n.execution_id, n.priority, n.traceparent)
            for _, n in new
            if n.state is State.QUEUED and n.execution_id in written
        ]
        return queued, len(written)

    async def _insert(
        self, connection: Connection, new: Sequence[tuple[DueJob, NewExecution]], now: datetime
    ) -> frozenset[str]:
        """Insert executions; returns the ids of new ones. Instants that another scheduler has written stay."""
        rows = await connection.fetch(
            _INSERT,
            [n.execution_id for _, n in new],
            [job.job_id for job, _ in new],
            [job.name for job, _ in new],
            [n.scheduled_for for _, n in new],
            [n.state for _, n in new],
            [n.priority for _, n in new],
            [n.trigger for _, n in new],
            [n.coalesced for _, n in new],
            _sparse([n.reason for _, n in new]),
            _sparse([n.hold for _, n in new]),
            _sparse([n.not_before for _, n in new]),
            _sparse([n.traceparent for _, n in new]),
            now,
            self._delays,
        )
        return frozenset(row[0] for row in rows)


def _sparse(values: list[T | None]) -> list[T | None]:
    """Return an empty list if all values are None: `unnest` fills it up with NULL, and there is less to send."""
    return [] if all(value is None for value in values) else values


def _due_job(row: Any) -> DueJob:
    columns = tuple(row)
    active, waits_for = columns[len(DUE_COLUMNS) :]
    return due_job_from_row(columns[: len(DUE_COLUMNS)], active, waits_for or ())
