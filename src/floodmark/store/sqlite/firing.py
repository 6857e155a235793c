"""The scheduler's transaction on SQLite: with a single writer it needs no row locks."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from floodmark.model.clock import Clock
from floodmark.model.execution import Queued, State
from floodmark.model.job import DueJob, Priority
from floodmark.rules.rank import rank_of
from floodmark.store.database import SqliteDatabase
from floodmark.store.port import Decide, Decision, Fired, NewExecution
from floodmark.store.rows import DUE_COLUMNS, DUE_SELECT, decode_json, due_job_from_row, read_moment
from floodmark.store.rule_sql import CLOCKED, REPLACE, UNMET_SINCE_LAST_RUN
from floodmark.store.types import to_text

_LOOK_AT = f"""
SELECT {DUE_SELECT},
    (SELECT count(*) FROM executions e
      WHERE e.job_id = j.job_id AND e.completed_at IS NULL),
    (SELECT json_group_array(needed.name)
       FROM job_dependencies d JOIN jobs needed ON needed.job_id = d.depends_on
      WHERE d.job_id = j.job_id
        AND {UNMET_SINCE_LAST_RUN.format(last_run="j.last_run")})
  FROM jobs j WHERE {{which}} AND {CLOCKED} ORDER BY j.next_run LIMIT ?
"""
_UNPLANNED = _LOOK_AT.format(which="j.next_run IS NULL")
_DUE = _LOOK_AT.format(which="j.next_run <= ?")

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


def _next_plan(decision: Decision) -> tuple[Any, ...]:
    next_run = None if decision.next_run is None else to_text(decision.next_run)
    return next_run, to_text(decision.planned_until), decision.invalid_reason, decision.job.job_id


def _due_job(row: Sequence[Any]) -> DueJob:
    active, waits_for = row[len(DUE_COLUMNS) :]
    return due_job_from_row(row[: len(DUE_COLUMNS)], active, sorted(decode_json(waits_for)))
