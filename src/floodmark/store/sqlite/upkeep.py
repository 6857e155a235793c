"""The leader's broom on SQLite: waiting, abandoned, forgotten and outdated rows."""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from floodmark.clock import Clock
from floodmark.execution import Queued
from floodmark.ids import floor_id
from floodmark.job import Priority
from floodmark.store.database import SqliteDatabase, encode_json
from floodmark.store.port import Rescued
from floodmark.store.rows import STREAM
from floodmark.store.types import to_text

_TIMED = """
SELECT execution_id, priority, traceparent FROM executions
 WHERE state = 'waiting' AND hold IS NULL AND not_before <= :now ORDER BY not_before LIMIT :limit
"""

# The run before it has used up their successes, so one that waited for its turn asks again.
_UNMET = """
SELECT 1 FROM job_dependencies d JOIN jobs needed ON needed.job_id = d.depends_on
 WHERE d.job_id = e.job_id AND (needed.last_success IS NULL OR needed.last_success <= j.last_run)
"""

_HELD = f"""
SELECT e.execution_id, e.priority, e.traceparent FROM executions e LEFT JOIN jobs j ON j.job_id = e.job_id
 WHERE e.state = 'waiting' AND e.hold IS NOT NULL AND (
        j.job_id IS NULL
     OR (e.hold = 'paused' AND NOT j.paused)
     OR (e.hold = 'overlap'
         AND NOT EXISTS (SELECT 1 FROM watermarks w WHERE w.stream = {STREAM} AND w.lease_until > :now)
         AND NOT EXISTS (SELECT 1 FROM executions o
                          WHERE o.job_id = e.job_id AND o.execution_id <> e.execution_id
                            AND (o.state IN ('queued', 'running')
                                 OR (o.state = 'waiting'
                                     AND (o.hold IS NULL
                                          OR (o.hold = 'overlap' AND o.scheduled_for < e.scheduled_for)))))
         AND (e.trigger = 'manual' OR NOT EXISTS ({_UNMET})))
     OR (e.hold = 'dependency' AND NOT EXISTS ({_UNMET})))
 LIMIT :limit
"""

_QUEUE = "UPDATE executions SET state = 'queued', hold = NULL, not_before = NULL, queue_rank = ? WHERE execution_id = ?"

_SILENT = f"""
SELECT e.execution_id, e.priority, e.worker, e.attempt, e.cancel_requested,
       CASE WHEN w.moved_at > e.started_at THEN 0 ELSE e.rescues + 1 END, COALESCE(j.source, 'none'),
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

_TELL = """
UPDATE jobs SET last_status = :state,
       last_run = (SELECT started_at FROM executions WHERE execution_id = :id)
 WHERE job_id = (SELECT job_id FROM executions WHERE execution_id = :id)
"""

_QUEUED = """
SELECT execution_id, priority, traceparent FROM executions
 WHERE state = 'queued' AND execution_id > ? AND queue_rank < CASE priority WHEN 1 THEN ? WHEN 2 THEN ? ELSE ? END
 ORDER BY execution_id LIMIT ?
"""

_OLD = """
DELETE FROM executions WHERE execution_id IN (
    SELECT execution_id FROM executions
     WHERE execution_id < ? AND state IN ('done', 'dead', 'cancelled', 'skipped') ORDER BY execution_id LIMIT ?)
"""
_HEARD = """
DELETE FROM outbox WHERE seq IN (
    SELECT seq FROM outbox WHERE sent_at IS NOT NULL AND created_at < ? ORDER BY seq LIMIT ?)
"""


class SqliteUpkeep:
    """Brings back what is due again or was left lying, on SQLite."""

    def __init__(self, database: SqliteDatabase, *, patience: timedelta, clock: Clock) -> None:
        self._database, self._patience, self._clock = database, patience, clock

    async def wake(self, *, limit: int) -> list[Queued]:
        """waiting -> queued for those whose time has come or whose hold is gone."""

        def work(connection: sqlite3.Connection) -> list[Queued]:
            arguments = {"now": to_text(self._clock.now()), "limit": limit}
            rows = connection.execute(_TIMED, arguments).fetchall()
            rows += connection.execute(_HELD, arguments).fetchall()
            connection.executemany(_QUEUE, [(self._rank(row[1]), row[0]) for row in rows])
            return _queued(rows)

        return await self._database.hot("wake", work)

    async def rescue(self, *, limit: int, rescue_max: int) -> Rescued:
        """running -> queued for those whose worker went silent."""

        def work(connection: sqlite3.Connection) -> Rescued:
            now = to_text(self._clock.now())
            rescued, dead = list[Any](), Counter[str]()
            for row in connection.execute(_SILENT, {"now": now, "limit": limit}).fetchall():
                execution_id, priority, worker, attempt, cancelled, rescues, source, _ = row
                silent = f"worker {worker} went silent"
                if cancelled is None and rescues <= rescue_max:
                    connection.execute(_RESCUE, (rescues, silent, self._rank(priority), execution_id))
                    rescued.append(row)
                    continue
                error = f"its worker died {rescues} times in a row without progress"
                details = {"attempt": attempt, "worker": worker, "error": error, "details": None}
                given_up = {
                    "id": execution_id,
                    "state": "dead" if cancelled is None else "cancelled",
                    "now": now,
                    "rescues": rescues,
                    "reason": cancelled or silent,
                    "error": error if cancelled is None else None,
                    "details": encode_json(details),
                }
                connection.execute(_GIVE_UP, given_up)
                connection.execute(_TELL, {"state": given_up["state"], "id": execution_id})
                dead.update([source] if cancelled is None else [])
            return Rescued(queued=_queued(rescued), dead=dead)

        return await self._database.hot("rescue", work)

    async def queued(self, *, after: str, older_than: timedelta, limit: int) -> list[Queued]:
        """Executions that have been queued for a while, in order of id."""

        def work(connection: sqlite3.Connection) -> list[Queued]:
            since = self._clock.now() - older_than
            ranks = [to_text(since + step * self._patience) for step in range(3)]
            return _queued(connection.execute(_QUEUED, (after, *ranks, limit)).fetchall())

        return await self._database.hot("queued", work)

    async def prune(self, *, history: timedelta, events: timedelta, limit: int) -> int:
        """Forget what ended long ago."""

        def work(connection: sqlite3.Connection) -> int:
            now = self._clock.now()
            yesterday = to_text(now - timedelta(days=1))
            connection.execute("DELETE FROM limits WHERE until < ?", (yesterday,))
            connection.execute(
                "DELETE FROM breakers WHERE max(updated_at, COALESCE(open_until, updated_at)) < ?", (yesterday,)
            )
            connection.execute("DELETE FROM workers WHERE seen_until < ?", (yesterday,))
            old = connection.execute(_OLD, (floor_id(now - history), limit)).rowcount
            heard = connection.execute(_HEARD, (to_text(now - events), limit)).rowcount
            return old + heard

        return await self._database.hot("prune", work)

    def _rank(self, priority: int) -> str:
        return to_text(self._clock.now() + (priority - 1) * self._patience)


def _queued(rows: Sequence[Any]) -> list[Queued]:
    """Of rows that begin with id and priority, and end with traceparent."""
    return [Queued(row[0], Priority(row[1]), row[-1]) for row in rows]
