"""The leader's maintenance on PostgreSQL: waking, rescuing, requeuing, pruning."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from floodmark.model.execution import Queued
from floodmark.model.ids import floor_id
from floodmark.rules.rank import rank_delays
from floodmark.rules.rescue import GIVEN_UP, SILENT
from floodmark.store.database import PostgresDatabase
from floodmark.store.execution_rows import queued_from_rows
from floodmark.store.holds import HELD_COLUMNS, first_held, may_go_on
from floodmark.store.port import InQueue, QueuePlace, Rescued
from floodmark.store.postgres_connection import Connection
from floodmark.store.rule_sql import ON_POSTGRES, RESCUES, STREAM, fill_text, match_key, postgres_rank, unmet

from .leasing import WOKEN

# One execution per job: the query steps through the jobs in the index, not through all waiting executions.
_WAKE = f"""
WITH RECURSIVE timed AS (
    SELECT e.execution_id FROM executions e
     WHERE e.state = 'waiting' AND e.hold IS NULL AND e.not_before <= statement_timestamp()
     ORDER BY e.not_before LIMIT $1 FOR UPDATE SKIP LOCKED
), held_job AS (
    (SELECT h.job_id || '' AS job_id FROM executions h WHERE h.hold = 'overlap' ORDER BY h.job_id || '' LIMIT 1)
    UNION ALL
    SELECT (SELECT h.job_id || '' FROM executions h
             WHERE h.hold = 'overlap' AND h.job_id || '' > p.job_id ORDER BY h.job_id || '' LIMIT 1)
      FROM held_job p WHERE p.job_id IS NOT NULL
), next AS (
    SELECT e.execution_id
      FROM held_job p LEFT JOIN LATERAL (SELECT * FROM jobs j WHERE j.job_id = p.job_id LIMIT 1) j ON TRUE
      CROSS JOIN LATERAL ({
    first_held(ON_POSTGRES, HELD_COLUMNS, job_id="p.job_id", paused="COALESCE(j.paused, FALSE)")
}) e
     WHERE j.job_id IS NULL
        OR (NOT EXISTS (SELECT 1 FROM watermarks w
                         WHERE {match_key("w.stream", STREAM)} AND w.lease_until > clock_timestamp() OFFSET 0)
            AND {may_go_on(ON_POSTGRES, last_run="j.last_run")})
     LIMIT $1
), freed AS (
    SELECT e.execution_id FROM executions e
      LEFT JOIN LATERAL (SELECT * FROM jobs j WHERE j.job_id = e.job_id LIMIT 1) j ON TRUE
     WHERE e.hold IN ('paused', 'dependency') AND e.state || '' = 'waiting'
       AND (j.job_id IS NULL
            OR (e.hold = 'paused' AND NOT j.paused)
            OR (e.hold = 'dependency' AND NOT EXISTS ({unmet(ON_POSTGRES, "j.last_run")})))
     LIMIT $1
), held AS (
    SELECT e.execution_id FROM (SELECT execution_id FROM next UNION ALL SELECT execution_id FROM freed) c
      JOIN executions e ON {match_key("e.execution_id", "c.execution_id")} FOR UPDATE OF e SKIP LOCKED
), ready AS (SELECT execution_id FROM timed UNION ALL SELECT execution_id FROM held), woken AS (
    UPDATE executions e SET {WOKEN.format(rank=postgres_rank("clock_timestamp()", delays="$2"))}
      FROM ready WHERE {match_key("e.execution_id", "ready.execution_id")} AND e.state || '' = 'waiting'
    RETURNING e.execution_id, e.priority, e.traceparent, e.state
)
SELECT execution_id, priority, traceparent FROM woken WHERE state = 'queued'
"""

_RESCUE = f"""
WITH silent AS MATERIALIZED (
    SELECT e.execution_id, e.job_id, e.fence, e.started_at, e.rescues, e.cancel_requested
      FROM executions e WHERE e.state = 'running' AND e.lease_until < clock_timestamp()
     ORDER BY e.lease_until LIMIT $1 FOR UPDATE SKIP LOCKED
), counted AS (
    -- LIMIT keeps the planner from joining in another order.
    SELECT e.execution_id, e.cancel_requested, {RESCUES} AS rescues
      FROM silent e
      LEFT JOIN LATERAL (SELECT {STREAM} AS stream FROM jobs j WHERE j.job_id = e.job_id LIMIT 1) j ON true
      LEFT JOIN LATERAL (
        SELECT w.moved_at FROM watermarks w WHERE w.stream = j.stream AND w.fence = e.fence LIMIT 1) w ON true
), judged AS (
    SELECT c.execution_id, c.rescues, c.cancel_requested,
           CASE WHEN c.cancel_requested IS NOT NULL THEN 'cancelled' WHEN c.rescues > $2 THEN 'dead'
                ELSE 'queued' END AS state,
           {fill_text(GIVEN_UP, rescues="c.rescues")} AS error
      FROM counted c
), rescued AS (
    UPDATE executions e
       SET state = n.state,
           completed_at = CASE WHEN n.state <> 'queued' THEN clock_timestamp() END,
           error_message = CASE WHEN n.state = 'dead' THEN n.error ELSE e.error_message END,
           error_details = CASE WHEN n.state = 'dead' THEN COALESCE(e.error_details, '[]') || jsonb_build_object(
                                    'attempt', e.attempt, 'worker', e.worker, 'error', n.error, 'details', NULL)
                                ELSE e.error_details END,
           rescues = n.rescues, attempt = e.attempt - 1, lease_until = NULL,
           reason = COALESCE(n.cancel_requested, {fill_text(SILENT, worker="e.worker")}),
           queue_rank = {postgres_rank("clock_timestamp()", delays="$3")}
      FROM judged n WHERE {match_key("e.execution_id", "n.execution_id")} AND e.state || '' = 'running'
    RETURNING e.execution_id, e.job_id, e.priority, e.state, e.started_at, e.traceparent
), updated_jobs AS (
    UPDATE jobs j SET last_run = r.started_at, last_status = r.state
      FROM rescued r WHERE {match_key("j.job_id", "r.job_id")} AND r.state <> 'queued'
)
SELECT r.execution_id, r.priority, r.state, COALESCE(j.source, 'none'), r.traceparent
  FROM rescued r LEFT JOIN jobs j ON {match_key("j.job_id", "r.job_id")}
"""

_QUEUED = f"""
SELECT execution_id, priority, queue_rank, traceparent FROM executions
 WHERE state = 'queued' AND queue_rank >= $1 AND (queue_rank, execution_id) > ($1, $2)
   AND queue_rank < {postgres_rank("clock_timestamp() - $4::interval", delays="$3", priority="priority")}
 ORDER BY queue_rank, execution_id LIMIT $5
"""

# Reads only the primary key: ids start with the time.
_NEWEST = "SELECT execution_id FROM executions ORDER BY execution_id DESC LIMIT 1 OFFSET $1"

_PRUNE = f"""
WITH old AS (
    SELECT execution_id FROM executions
     WHERE execution_id < $1 AND state IN ('done', 'dead', 'cancelled', 'skipped')
     ORDER BY execution_id LIMIT $3
), sent AS (
    -- Events are in the order of time: only the oldest are looked at.
    SELECT seq FROM (SELECT seq, created_at FROM outbox WHERE sent_at IS NOT NULL ORDER BY seq LIMIT $3) oldest
     WHERE created_at < clock_timestamp() - $2::interval
), deleted_limits AS (
    DELETE FROM limits WHERE until < clock_timestamp() - interval '1 day'
), deleted_breakers AS (
    DELETE FROM breakers WHERE greatest(updated_at, open_until) < clock_timestamp() - interval '1 day'
), deleted_workers AS (
    DELETE FROM workers WHERE seen_until < clock_timestamp() - interval '1 day'
), deleted_executions AS (
    DELETE FROM executions e USING old WHERE {match_key("e.execution_id", "old.execution_id")} RETURNING 1
), deleted_events AS (
    -- The newest position stays: the next one is counted from it.
    DELETE FROM outbox o USING sent WHERE {match_key("o.seq", "sent.seq")}
       -- A condition in plain sight would offer the index of all positions.
       AND CASE WHEN o.position < (SELECT max(position) FROM outbox WHERE position IS NOT NULL) THEN TRUE END
    RETURNING 1
)
SELECT (SELECT count(*) FROM deleted_executions) + (SELECT count(*) FROM deleted_events)
"""


class PostgresUpkeep:
    """Wakes, rescues, requeues and prunes executions on PostgreSQL."""

    def __init__(self, database: PostgresDatabase, *, patience: timedelta) -> None:
        self._database, self._delays = database, rank_delays(patience)

    async def wake(self, *, limit: int) -> list[Queued]:
        """waiting -> queued for executions whose time has come or whose hold has ended."""
        return queued_from_rows(await self._fetch("wake", _WAKE, limit, self._delays))

    async def rescue(self, *, limit: int, rescue_max: int) -> Rescued:
        """running -> queued for executions whose lease has expired."""
        rows = await self._fetch("rescue", _RESCUE, limit, rescue_max, self._delays)
        return Rescued(
            queued=queued_from_rows(row for row in rows if row[2] == "queued"),
            dead=Counter(source for _, _, state, source, _ in rows if state == "dead"),
        )

    async def queued(self, *, after: QueuePlace, older_than: timedelta, limit: int) -> list[InQueue]:
        """Return executions that have been queued for `older_than`, in order."""
        rows = await self._fetch("queued", _QUEUED, *after, self._delays, older_than, limit)
        places = (QueuePlace(row[2], row[0]) for row in rows)
        return [InQueue(*found) for found in zip(queued_from_rows(rows), places, strict=True)]

    async def prune(self, *, history: timedelta, events: timedelta, limit: int, most: int | None = None) -> int:
        """Delete old executions and events."""
        newest = [] if most is None else await self._fetch("prune", _NEWEST, most - 1)
        oldest = max(floor_id(datetime.now(UTC) - history), newest[0][0] if newest else "")
        rows = await self._fetch("prune", _PRUNE, oldest, events, limit)
        return int(rows[0][0])

    async def _fetch(self, step: str, statement: str, *arguments: Any) -> list[Any]:
        async def work(connection: Connection) -> list[Any]:
            return await connection.fetch(statement, *arguments)

        return await self._database.hot(step, work)
