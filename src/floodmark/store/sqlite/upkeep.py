"""The leader's maintenance on SQLite: waking, rescuing, requeuing, pruning."""

import sqlite3
from collections import Counter
from datetime import timedelta
from typing import Any

from floodmark.model.clock import Clock
from floodmark.model.execution import Queued, State
from floodmark.model.ids import floor_id
from floodmark.model.job import Priority
from floodmark.rules.rank import rank_of
from floodmark.rules.rescue import rescue_of
from floodmark.store.database import SqliteDatabase, encode_json
from floodmark.store.execution_rows import queued_from_rows
from floodmark.store.holds import first_held, may_go_on
from floodmark.store.port import InQueue, QueuePlace, Rescued
from floodmark.store.rule_sql import ON_SQLITE, RESCUES, STREAM, unmet
from floodmark.store.types import from_text, to_text

from .leasing import queue_woken

_TIMED = """
SELECT execution_id, priority, not_before, traceparent FROM executions
 WHERE state = 'waiting' AND hold IS NULL AND not_before <= :now ORDER BY not_before LIMIT :limit
"""

# One execution per job: the query steps through the jobs in the index, not through all waiting executions.
_NEXT_HELD = f"""
WITH RECURSIVE held_job(job_id) AS (
    SELECT min(h.job_id) FROM executions h {ON_SQLITE.held_index} WHERE h.state = 'waiting' AND h.hold = 'overlap'
    UNION ALL
    SELECT (SELECT min(h.job_id) FROM executions h {ON_SQLITE.held_index}
             WHERE h.state = 'waiting' AND h.hold = 'overlap' AND h.job_id > p.job_id)
      FROM held_job p WHERE p.job_id IS NOT NULL
)
SELECT e.execution_id, e.priority, e.not_before, e.traceparent
  FROM held_job p LEFT JOIN jobs j ON j.job_id = p.job_id
  JOIN executions e ON e.execution_id = ({
    first_held(ON_SQLITE, "h.execution_id", job_id="p.job_id", paused="COALESCE(j.paused, FALSE)")
})
 WHERE j.job_id IS NULL
    OR (NOT EXISTS (SELECT 1 FROM watermarks w WHERE w.stream = {STREAM} AND w.lease_until > :now)
        AND {may_go_on(ON_SQLITE, last_run="j.last_run")})
 LIMIT :limit
"""

_FREED = f"""
SELECT e.execution_id, e.priority, e.not_before, e.traceparent
  FROM executions e {ON_SQLITE.held_index} LEFT JOIN jobs j ON j.job_id = e.job_id
 WHERE e.state = 'waiting' AND e.hold IN ('paused', 'dependency')
   AND (j.job_id IS NULL
        OR (e.hold = 'paused' AND NOT j.paused)
        OR (e.hold = 'dependency' AND NOT EXISTS ({unmet(ON_SQLITE, "j.last_run")})))
 LIMIT :limit
"""

_SILENT = f"""
SELECT e.execution_id, e.priority, e.worker, e.attempt, e.cancel_requested,
       {RESCUES}, COALESCE(j.source, 'none'),
       e.traceparent
  FROM executions e LEFT JOIN jobs j ON j.job_id = e.job_id
  LEFT JOIN watermarks w ON w.stream = {STREAM} AND w.fence = e.fence
 WHERE e.state = 'running' AND e.lease_until < :now ORDER BY e.lease_until LIMIT :limit
"""

_RESCUE = """
UPDATE executions
   SET state = 'queued', rescues = ?, attempt = attempt - 1, lease_until = NULL, reason = ?, queue_rank = ?
 WHERE execution_id = ?
"""

_GIVE_UP = """
UPDATE executions
   SET state = :state, completed_at = :now, rescues = :rescues, attempt = attempt - 1, lease_until = NULL,
       reason = :reason, error_message = COALESCE(:error, error_message),
       error_details = CASE WHEN :error IS NULL THEN error_details
                            ELSE json_insert(COALESCE(error_details, '[]'), '$[#]', json(:details)) END
 WHERE execution_id = :id
"""

_UPDATE_JOB = """
UPDATE jobs SET last_status = :state,
       last_run = (SELECT started_at FROM executions WHERE execution_id = :id)
 WHERE job_id = (SELECT job_id FROM executions WHERE execution_id = :id)
"""

_QUEUED = f"""
SELECT execution_id, priority, queue_rank, traceparent FROM executions INDEXED BY ix_job_executions_queued
 WHERE state = 'queued' AND queue_rank >= :rank AND (queue_rank, execution_id) > (:rank, :id)
   AND queue_rank < CASE priority {" ".join(f"WHEN {priority} THEN :before_{priority}" for priority in Priority)} END
 ORDER BY queue_rank, execution_id LIMIT :limit
"""

# Reads only the primary key: ids start with the time.
_NEWEST = "SELECT execution_id FROM executions ORDER BY execution_id DESC LIMIT 1 OFFSET ?"

_OLD = """
DELETE FROM executions WHERE execution_id IN (
    SELECT execution_id FROM executions
     WHERE execution_id < ? AND state IN ('done', 'dead', 'cancelled', 'skipped') ORDER BY execution_id LIMIT ?)
"""
_SENT = """
DELETE FROM outbox WHERE seq IN (
    -- Events are in the order of time: only the oldest are looked at.
    SELECT seq FROM (SELECT seq, created_at FROM outbox WHERE sent_at IS NOT NULL ORDER BY seq LIMIT :limit)
     WHERE created_at < :before)
"""


class SqliteUpkeep:
    """Wakes, rescues, requeues and prunes executions on SQLite."""

    def __init__(self, database: SqliteDatabase, *, patience: timedelta, clock: Clock) -> None:
        self._database, self._patience, self._clock = database, patience, clock

    async def wake(self, *, limit: int) -> list[Queued]:
        """waiting -> queued for executions whose time has come or whose hold has ended."""

        def work(connection: sqlite3.Connection) -> list[Queued]:
            now = self._clock.now()
            arguments = {"now": to_text(now), "limit": limit}
            rows = [
                row
                for statement in (_TIMED, _NEXT_HELD, _FREED)
                for row in connection.execute(statement, arguments).fetchall()
            ]
            return queue_woken(connection, rows, now, self._patience)

        return await self._database.hot("wake", work)

    async def rescue(self, *, limit: int, rescue_max: int) -> Rescued:
        """running -> queued for executions whose lease has expired."""

        def work(connection: sqlite3.Connection) -> Rescued:
            now = to_text(self._clock.now())
            rescued, dead = list[Any](), Counter[str]()
            for row in connection.execute(_SILENT, {"now": now, "limit": limit}).fetchall():
                execution_id, priority, worker, attempt, cancelled, rescues, source, _ = row
                found = rescue_of(worker=worker, rescues=rescues, cancel_requested=cancelled, rescue_max=rescue_max)
                if found.state is State.QUEUED:
                    connection.execute(_RESCUE, (rescues, found.reason, self._rank(priority), execution_id))
                    rescued.append(row)
                    continue
                details = {"attempt": attempt, "worker": worker, "error": found.error, "details": None}
                given_up = {
                    "id": execution_id,
                    "state": found.state,
                    "now": now,
                    "rescues": rescues,
                    "reason": found.reason,
                    "error": found.error,
                    "details": encode_json(details),
                }
                connection.execute(_GIVE_UP, given_up)
                connection.execute(_UPDATE_JOB, {"state": given_up["state"], "id": execution_id})
                dead.update([source] if found.state is State.DEAD else [])
            return Rescued(queued=queued_from_rows(rescued), dead=dead)

        return await self._database.hot("rescue", work)

    async def queued(self, *, after: QueuePlace, older_than: timedelta, limit: int) -> list[InQueue]:
        """Return executions that have been queued for `older_than`, in order."""

        def work(connection: sqlite3.Connection) -> list[InQueue]:
            since = self._clock.now() - older_than
            before = {f"before_{priority}": to_text(rank_of(priority, since, self._patience)) for priority in Priority}
            given = {"rank": to_text(after.rank), "id": after.execution_id, "limit": limit, **before}
            rows = connection.execute(_QUEUED, given).fetchall()
            places = (QueuePlace(from_text(row[2]), row[0]) for row in rows)
            return [InQueue(*found) for found in zip(queued_from_rows(rows), places, strict=True)]

        return await self._database.hot("queued", work)

    async def prune(self, *, history: timedelta, events: timedelta, limit: int, most: int | None = None) -> int:
        """Delete old executions and events."""

        def work(connection: sqlite3.Connection) -> int:
            now = self._clock.now()
            yesterday = to_text(now - timedelta(days=1))
            connection.execute("DELETE FROM limits WHERE until < ?", (yesterday,))
            connection.execute(
                "DELETE FROM breakers WHERE max(updated_at, COALESCE(open_until, updated_at)) < ?", (yesterday,)
            )
            connection.execute("DELETE FROM workers WHERE seen_until < ?", (yesterday,))
            newest = None if most is None else connection.execute(_NEWEST, (most - 1,)).fetchone()
            oldest = max(floor_id(now - history), newest[0] if newest else "")
            old = connection.execute(_OLD, (oldest, limit)).rowcount
            sent = connection.execute(_SENT, {"before": to_text(now - events), "limit": limit}).rowcount
            return old + sent

        return await self._database.hot("prune", work)

    def _rank(self, priority: int) -> str:
        return to_text(rank_of(priority, self._clock.now(), self._patience))
