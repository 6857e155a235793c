"""The scheduler's transaction on SQLite: with a single writer it needs no row locks."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from floodmark.model.clock import Clock
from floodmark.model.execution import Queued, State
from floodmark.model.job import DueJob, Priority
from floodmark.rules.budgets import DEFAULT_BUDGET, GRANT_EXPIRES, Terms, price_after
from floodmark.rules.rank import rank_of
from floodmark.store.budget_rows import TERMS_SELECT, BudgetTurn, lateness_of, needs_budget, terms_from_row
from floodmark.store.database import SqliteDatabase
from floodmark.store.port import Decide, DecideInBudget, Decision, Fired, NewExecution
from floodmark.store.rows import DUE_COLUMNS, DUE_SELECT, decode_json, due_job_from_row, read_moment
from floodmark.store.rule_sql import ADAPTIVE, CLOCKED, REPLACE, UNMET_SINCE_LAST_RUN
from floodmark.store.types import from_text, to_text

_LOOK_AT = f"""
SELECT {DUE_SELECT},
    (SELECT count(*) FROM executions e
      WHERE e.job_id = j.job_id AND e.completed_at IS NULL),
    (SELECT json_group_array(needed.name)
       FROM job_dependencies d JOIN jobs needed ON needed.job_id = d.depends_on
      WHERE d.job_id = j.job_id
        AND {UNMET_SINCE_LAST_RUN.format(last_run="j.last_run")})
  FROM jobs j WHERE {{which}} ORDER BY {{order}} LIMIT ?
"""
_UNPLANNED = _LOOK_AT.format(which=f"j.next_run IS NULL AND {CLOCKED}", order="j.next_run")
_DUE = _LOOK_AT.format(which=f"j.next_run <= ? AND {CLOCKED}", order="j.next_run")
_HINTED = _LOOK_AT.format(
    which=f"j.budget = ? AND j.hinted_at IS NOT NULL AND j.next_run IS NOT NULL AND {ADAPTIVE} AND NOT EXISTS"
    " (SELECT 1 FROM executions e WHERE e.job_id = j.job_id AND e.completed_at IS NULL)",
    order="j.hinted_at",
)
_FIRST = _LOOK_AT.format(
    which=f"j.budget = ? AND j.hinted_at IS NULL AND j.next_run IS NOT NULL AND {ADAPTIVE}", order="j.next_run"
)

_INSERT = """
INSERT INTO executions (execution_id, job_id, job_name, scheduled_for, state, priority, trigger, coalesced,
                            reason, hold, not_before, queue_rank, completed_at, created_at, traceparent)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (job_id, scheduled_for) DO NOTHING
"""

_ADVANCE = "UPDATE jobs SET next_run = ?, planned_until = ?, invalid_reason = ? WHERE job_id = ?"

_REPLACE = f"""
UPDATE executions SET {REPLACE.format(now=":now")}
 WHERE job_id = :job AND completed_at IS NULL AND scheduled_for < :newest
"""

_NEXT_DUE = f"SELECT j.next_run FROM jobs j WHERE j.next_run IS NOT NULL AND {CLOCKED} ORDER BY j.next_run LIMIT 1"


_BUDGETS = f"""
SELECT b.next_free, (SELECT count(*) FROM budget_grants g WHERE g.budget = b.name AND g.granted_at > ?), {TERMS_SELECT}
  FROM budgets b WHERE b.sources > 0 ORDER BY b.name
"""
_GRANT = "INSERT INTO budget_grants (execution_id, budget, granted_at) VALUES (?, ?, ?)"
_CLEAR_HINT = "UPDATE jobs SET hinted_at = NULL WHERE job_id = ?"
_SET_PRICE = "UPDATE budgets SET price = ? WHERE name = ?"
# An adaptive job that was written with SQL may have no budget.
_USE_DEFAULT = "UPDATE jobs SET budget = ? WHERE job_id = ?"


class SqliteFiring:
    """Fires due jobs on SQLite."""

    def __init__(self, database: SqliteDatabase, *, patience: timedelta, clock: Clock) -> None:
        self._database, self._patience, self._clock = database, patience, clock

    async def fire(self, decide: Decide, *, limit: int) -> Fired:
        """Read due jobs, decide, and write, in one transaction."""

        def work(connection: sqlite3.Connection) -> Fired:
            now = self._clock.now()
            rows = connection.execute(_UNPLANNED, (limit,)).fetchall()
            if len(rows) < limit:
                rows += connection.execute(_DUE, (to_text(now), limit - len(rows))).fetchall()
            decisions = decide([_due_job(row) for row in rows], now) if rows else ()
            connection.executemany(_USE_DEFAULT, [(DEFAULT_BUDGET, job_id) for job_id in needs_budget(decisions)])
            queued, written = self._write(connection, decisions, now)
            following = connection.execute(_NEXT_DUE).fetchone()
            return Fired(
                queued=queued,
                written=written,
                looked_at=len(rows),
                next_due=read_moment(following[0]) if following else None,
                now=now,
            )

        return await self._database.hot("fire", work)

    async def hand_out(self, decide: DecideInBudget, *, limit: int) -> Fired:
        """Fire adaptive jobs as far as their budgets allow, in one transaction."""

        def work(connection: sqlite3.Connection) -> Fired:
            now = self._clock.now()
            turn = BudgetTurn(now, limit)
            for moment, granted, *row in connection.execute(_BUDGETS, (to_text(now - GRANT_EXPIRES),)).fetchall():
                terms, next_free = terms_from_row(row), from_text(moment)
                free, ids = turn.count_free(terms, next_free, granted), list[str]()
                if free:
                    decisions = _hand_out(connection, terms, free, decide, now)
                    ids = turn.add(decisions, *self._write(connection, decisions, now))
                    connection.executemany(_GRANT, [(new, terms.name, to_text(now)) for new in ids])
                turn.end(terms, next_free, granted + len(ids))
            return turn.make_fired()

        return await self._database.hot("hand out", work)

    def _write(
        self, connection: sqlite3.Connection, decisions: Sequence[Decision], now: datetime
    ) -> tuple[list[Queued], int]:
        queued, written = [], 0
        for decision in decisions:
            for new in decision.executions:
                cursor = connection.execute(_INSERT, self._row(decision, new, now))
                written += cursor.rowcount
                if cursor.rowcount and new.state == State.QUEUED:
                    queued.append(Queued(new.execution_id, Priority(new.priority), new.traceparent))
            if decision.replace:
                newest = max(new.scheduled_for for new in decision.executions)
                connection.execute(
                    _REPLACE, {"now": to_text(now), "job": decision.job.job_id, "newest": to_text(newest)}
                )
        connection.executemany(_ADVANCE, [_next_plan(decision) for decision in decisions])
        return queued, written

    def _row(self, decision: Decision, new: NewExecution, now: datetime) -> tuple[Any, ...]:
        stamp = to_text(now)
        return (
            new.execution_id,
            decision.job.job_id,
            decision.job.name,
            to_text(new.scheduled_for),
            new.state.value,
            int(new.priority),
            new.trigger,
            new.coalesced,
            new.reason,
            None if new.hold is None else new.hold.value,
            None if new.not_before is None else to_text(new.not_before),
            to_text(rank_of(new.priority, now, self._patience)) if new.state == State.QUEUED else None,
            stamp if new.state == State.SKIPPED else None,
            stamp,
            new.traceparent,
        )


def _hand_out(
    connection: sqlite3.Connection, terms: Terms, free: int, decide: DecideInBudget, now: datetime
) -> list[Decision]:
    hinted = [_due_job(row) for row in connection.execute(_HINTED, (terms.name, free)).fetchall()]
    connection.executemany(_CLEAR_HINT, [(job.job_id,) for job in hinted])
    due = [_due_job(row) for row in connection.execute(_FIRST, (terms.name, free - len(hinted))).fetchall()]
    decisions = [*decide(terms, [*hinted, *due], now)]
    late = lateness_of(decisions[len(hinted) :], now)
    if late:
        connection.execute(_SET_PRICE, (price_after(terms, late), terms.name))
    return decisions


def _next_plan(decision: Decision) -> tuple[Any, ...]:
    next_run = None if decision.next_run is None else to_text(decision.next_run)
    return next_run, to_text(decision.planned_until), decision.invalid_reason, decision.job.job_id


def _due_job(row: Sequence[Any]) -> DueJob:
    active, waits_for = row[len(DUE_COLUMNS) :]
    return due_job_from_row(row[: len(DUE_COLUMNS)], active, sorted(decode_json(waits_for)))
