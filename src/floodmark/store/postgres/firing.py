"""The scheduler's transaction on PostgreSQL.

Reads `jobs` with `FOR UPDATE SKIP LOCKED`; writes `executions`, whose (job_id, scheduled_for) is unique. Adaptive jobs
are fired in the order of their budget: `budgets` (price), `budget_grants`.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from floodmark.model.execution import Queued, State
from floodmark.model.job import DueJob
from floodmark.rules.budgets import DEFAULT_BUDGET, GRANT_EXPIRES, Terms, price_after
from floodmark.rules.rank import rank_delays
from floodmark.store.array_texts import array_text, number_array
from floodmark.store.budget_rows import TERMS_SELECT, BudgetTurn, lateness_of, needs_budget, terms_from_row
from floodmark.store.database import PostgresDatabase
from floodmark.store.port import Decide, DecideInBudget, Decision, Fired, NewExecution
from floodmark.store.postgres_connection import Connection
from floodmark.store.rows import DUE_COLUMNS, DUE_SELECT, due_job_from_row
from floodmark.store.rule_sql import (
    ADAPTIVE,
    CLOCKED,
    ON_POSTGRES,
    REPLACE,
    UNMET_SINCE_LAST_RUN,
    match_key,
    postgres_rank,
)

T = TypeVar("T")

_IS_ACTIVE = ON_POSTGRES.is_unfinished("e", "j.job_id")
_LOOK_AT = f"""
SELECT {DUE_SELECT},
    (SELECT count(*) FROM executions e WHERE {_IS_ACTIVE}),
    -- Once per statement: is there any dependency at all?
    CASE WHEN (SELECT TRUE FROM job_dependencies LIMIT 1) THEN
    (SELECT array_agg(needed.name ORDER BY needed.name)
       FROM job_dependencies d
      CROSS JOIN LATERAL (SELECT * FROM jobs n WHERE n.job_id = d.depends_on LIMIT 1) needed
      WHERE d.job_id = j.job_id
        AND {UNMET_SINCE_LAST_RUN.format(last_run="j.last_run")}) END
  FROM jobs j WHERE {{which}} ORDER BY {{order}} LIMIT $1 FOR UPDATE OF j SKIP LOCKED
"""
_UNPLANNED = _LOOK_AT.format(which=f"j.next_run IS NULL AND {CLOCKED}", order="j.next_run")
_DUE = _LOOK_AT.format(which=f"j.next_run <= $2 AND {CLOCKED}", order="j.next_run")
_HINTED = _LOOK_AT.format(
    which=f"j.budget = $2 AND j.hinted_at IS NOT NULL AND j.next_run IS NOT NULL AND {ADAPTIVE}"
    f" AND NOT EXISTS (SELECT 1 FROM executions e WHERE {_IS_ACTIVE} {ON_POSTGRES.by_itself})",
    order="j.hinted_at",
)
_FIRST = _LOOK_AT.format(
    which=f"j.budget = $2 AND j.hinted_at IS NULL AND j.next_run IS NOT NULL AND {ADAPTIVE}", order="j.next_run"
)

_INSERT = f"""
INSERT INTO executions (execution_id, job_id, job_name, scheduled_for, state, priority, trigger, coalesced,
                            reason, hold, not_before, traceparent, queue_rank, completed_at)
SELECT n.*, CASE n.state WHEN 'queued' THEN {
    postgres_rank("$13::timestamptz", delays="$14", priority="n.priority")
} END,
       CASE n.state WHEN 'skipped' THEN $13::timestamptz END
  FROM unnest($1::text::text[], $2::text::text[], $3::text::text[], $4::timestamptz[], $5::text::text[],
              $6::text::smallint[], $7::text::text[], $8::text::int[], $9::text[], $10::text[], $11::timestamptz[],
              $12::text[])
    AS n(execution_id, job_id, job_name, scheduled_for, state, priority, trigger, coalesced, reason, hold, not_before,
         traceparent)
ON CONFLICT (job_id, scheduled_for) DO NOTHING
"""
_WRITTEN = "SELECT execution_id FROM executions WHERE execution_id = ANY($1)"

_ADVANCE = f"""
UPDATE jobs j SET next_run = n.next_run, planned_until = n.planned_until, invalid_reason = n.invalid_reason
  FROM unnest($1::text::text[], $2::timestamptz[], $3::timestamptz[], $4::text[])
    AS n(job_id, next_run, planned_until, invalid_reason)
 WHERE {match_key("j.job_id", "n.job_id")}
"""

_REPLACE = f"""
UPDATE executions SET {REPLACE.format(now="clock_timestamp()")}
 WHERE job_id || '' = ANY($1) AND completed_at IS NULL AND NOT execution_id = ANY($2)
"""

_NEXT_DUE = f"SELECT j.next_run FROM jobs j WHERE j.next_run IS NOT NULL AND {CLOCKED} ORDER BY j.next_run LIMIT 1"


_BUDGETS = f"""
SELECT b.next_free, (SELECT count(*) FROM budget_grants g WHERE g.budget = b.name AND g.granted_at > $1), {TERMS_SELECT}
  FROM budgets b WHERE b.sources > 0 ORDER BY b.name
"""
_GRANT = "INSERT INTO budget_grants (execution_id, budget, granted_at) SELECT n, $2, $3 FROM unnest($1::text[]) n"
_CLEAR_HINTS = "UPDATE jobs SET hinted_at = NULL WHERE job_id = ANY($1)"
_SET_PRICE = "UPDATE budgets SET price = $2 WHERE name = $1"
# An adaptive job that was written with SQL may have no budget.
_USE_DEFAULT = "UPDATE jobs SET budget = $2 WHERE job_id = ANY($1)"


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
                if without := needs_budget(decisions):
                    await connection.execute(_USE_DEFAULT, without, DEFAULT_BUDGET)
                queued, written = await self._write(connection, decisions, now) if decisions else ([], 0)
                # A full portion means that there may be more: fire again at once.
                next_due = await connection.fetchval(_NEXT_DUE) if len(rows) < limit else now
            return Fired(queued=queued, written=written, looked_at=len(rows), next_due=next_due, now=now)

        return await self._database.hot("fire", work)

    async def hand_out(self, decide: DecideInBudget, *, limit: int) -> Fired:
        """Fire adaptive jobs as far as their budgets allow, in one transaction."""

        async def work(connection: Connection) -> Fired:
            async with connection.transaction():
                now: datetime = await connection.fetchval("SELECT clock_timestamp()")
                turn = BudgetTurn(now, limit)
                for next_free, granted, *row in await connection.fetch(_BUDGETS, now - GRANT_EXPIRES):
                    terms = terms_from_row(row)
                    free, ids = turn.count_free(terms, next_free, granted), list[str]()
                    if free:
                        decisions = await self._hand_out(connection, terms, free, decide, now)
                        queued, written = await self._write(connection, decisions, now) if decisions else ([], 0)
                        ids = turn.add(decisions, queued, written)
                        await connection.execute(_GRANT, ids, terms.name, now)
                    turn.end(terms, next_free, granted + len(ids))
            return turn.make_fired()

        return await self._database.hot("hand out", work)

    async def _hand_out(
        self, connection: Connection, terms: Terms, free: int, decide: DecideInBudget, now: datetime
    ) -> list[Decision]:
        hinted = [_due_job(row) for row in await connection.fetch(_HINTED, free, terms.name)]
        if hinted:
            await connection.execute(_CLEAR_HINTS, [job.job_id for job in hinted])
        rest = free - len(hinted)
        due = [_due_job(row) for row in await connection.fetch(_FIRST, rest, terms.name)] if rest else []
        decisions = [*decide(terms, [*hinted, *due], now)]
        late = lateness_of(decisions[len(hinted) :], now)
        if late:
            await connection.execute(_SET_PRICE, terms.name, price_after(terms, late))
        return decisions

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
            array_text([decision.job.job_id for decision in decisions]),
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
        ids = [n.execution_id for _, n in new]
        status = await connection.execute(
            _INSERT,
            array_text(ids),
            array_text([job.job_id for job, _ in new]),
            array_text([job.name for job, _ in new]),
            [n.scheduled_for for _, n in new],
            array_text([n.state for _, n in new]),
            number_array([n.priority for _, n in new]),
            array_text([n.trigger for _, n in new]),
            number_array([n.coalesced for _, n in new]),
            _sparse([n.reason for _, n in new]),
            _sparse([n.hold for _, n in new]),
            _sparse([n.not_before for _, n in new]),
            _sparse([n.traceparent for _, n in new]),
            now,
            self._delays,
        )
        # Cheaper than returning all ids: only instants that another scheduler has written are missing.
        if status == f"INSERT 0 {len(ids)}":
            return frozenset(ids)
        return frozenset(row[0] for row in await connection.fetch(_WRITTEN, ids))


def _sparse(values: list[T | None]) -> list[T | None]:
    """Return an empty list if all values are None: `unnest` fills it up with NULL, and there is less to send."""
    return [] if all(value is None for value in values) else values


def _due_job(row: Any) -> DueJob:
    columns = tuple(row)
    active, waits_for = columns[len(DUE_COLUMNS) :]
    return due_job_from_row(columns[: len(DUE_COLUMNS)], active, waits_for or ())
