"""Claims, heartbeats and outcomes on SQLite: the same rules as on PostgreSQL, with a single writer."""

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import chain, compress
from operator import not_
from typing import Any

from floodmark.model.clock import Clock
from floodmark.model.execution import ENDED, Lease, Queued, State
from floodmark.model.outcome import Dead, Done, Snooze
from floodmark.rules.outcomes import ENDING, Consequence, consequence_of
from floodmark.rules.rank import rank_of, waiting_seconds
from floodmark.rules.starting import JOB_DELETED, OFFERED, Obstacle, find_obstacle, wakes_to
from floodmark.rules.streams import split_stream
from floodmark.store.database import SqliteDatabase, encode_json
from floodmark.store.execution_rows import queued_from_rows
from floodmark.store.holds import SHARES_STREAM, first_held, may_go_on
from floodmark.store.port import Extended, Offer, Settled, Settlement
from floodmark.store.rows import WORK_SELECT, decode_columns, read_moment, work_from_row
from floodmark.store.rule_sql import ON_SQLITE, STREAM, WAS_OFFERED
from floodmark.store.settling import SETTLED, clean_outcomes, settled_row
from floodmark.store.types import from_text, to_text

_EXECUTION_COLUMNS = 17

# With all possible obstacles: the job is deleted or paused, a limit, the stream is leased.
_CANDIDATES = f"""
SELECT e.execution_id, e.scheduled_for, e.attempt, e.trigger, e.params, {STREAM}, l.until, l.reason,
       w.lease_until > :now, w.fence, w.value, j.paused, e.queue_rank, e.traceparent, e.created_at,
       e.result, {WAS_OFFERED},
       {WORK_SELECT}
  FROM executions e
  LEFT JOIN jobs j ON j.job_id = e.job_id
  LEFT JOIN limits l ON l.key = j.limit_key AND l.until > :now
  LEFT JOIN watermarks w ON w.stream = {STREAM}
 WHERE {{which}} ORDER BY e.queue_rank LIMIT :limit
"""
_NEXT = _CANDIDATES.format(which="e.state = 'queued'")
_THESE = _CANDIDATES.format(which="e.state = 'queued' AND e.execution_id IN (SELECT value FROM json_each(:ids))")
_OFFERED_TO = _CANDIDATES.format(
    which="e.state = 'waiting' AND e.not_before > :now AND e.not_before <= :end"
    f" AND e.hold IS NULL AND e.worker = :worker AND {WAS_OFFERED}"
)

# `n` are the rows that `_write` is given.
_TAKE = """
WITH n(stream, fence, holder, lease_until) AS ({rows})
INSERT INTO watermarks (stream, fence, holder, lease_until) SELECT * FROM n WHERE TRUE
ON CONFLICT (stream) DO UPDATE SET fence = excluded.fence, holder = excluded.holder, lease_until = excluded.lease_until
"""

_CLAIM = """
WITH n(execution_id, attempt, fence, worker, started_at, lease_until) AS ({rows})
UPDATE executions AS e
   SET state = 'running', attempt = n.attempt, fence = n.fence, worker = n.worker, reason = NULL, not_before = NULL,
       started_at = n.started_at, lease_until = n.lease_until
  FROM n WHERE e.execution_id = n.execution_id
"""

_PARK = """
UPDATE executions SET state = ?, completed_at = ?, hold = ?, not_before = ?, reason = ? WHERE execution_id = ?
"""

_OFFER = """
UPDATE executions
   SET state = 'waiting', attempt = attempt - 1, fence = NULL, lease_until = NULL, worker = ?, reason = ?,
       not_before = ?
 WHERE execution_id = ? AND state = 'running' AND fence = ? AND cancel_requested IS NULL
"""

_EXTEND = """
UPDATE executions SET lease_until = ? WHERE execution_id = ? AND state = 'running' AND fence = ?
RETURNING cancel_requested, (SELECT 1 FROM jobs j WHERE j.job_id = executions.job_id)
"""

_MINE = """
SELECT execution_id, fence, cancel_requested FROM executions
 WHERE execution_id IN (SELECT value FROM json_each(?)) AND state = 'running'
"""

# The most common outcome, without the columns that only failures need.
_SETTLE_DONE = """
WITH n(execution_id, fence, started_at, completed_at, duration, new, changed, known, result) AS ({rows})
UPDATE executions AS e
   SET state = 'done', lease_until = NULL, started_at = n.started_at, completed_at = n.completed_at,
       duration_seconds = COALESCE(e.duration_seconds, 0) + n.duration,
       items_new = e.items_new + n.new, items_changed = e.items_changed + n.changed,
       items_known = e.items_known + n.known, result = COALESCE(n.result, e.result)
  FROM n WHERE e.execution_id = n.execution_id AND e.fence = n.fence AND e.state = 'running'
"""

_SETTLE = """
UPDATE executions
   SET state = :state, attempt = attempt - :refund, reason = :reason, lease_until = NULL, not_before = :not_before,
       queue_rank = :queue_rank, started_at = :started_at, completed_at = :completed_at,
       duration_seconds = COALESCE(duration_seconds, 0) + :duration,
       items_new = items_new + :new, items_changed = items_changed + :changed, items_known = items_known + :known,
       error_message = COALESCE(:error, error_message),
       error_details = CASE WHEN :details IS NULL THEN error_details
                            ELSE json_insert(COALESCE(error_details, '[]'), '$[#]', json(:details)) END,
       result = COALESCE(:result, result)
 WHERE execution_id = :execution_id
"""

_FREE_DONE = """
WITH n(stream, fence, execution_id, completed_at) AS ({rows})
UPDATE watermarks AS w
   SET lease_until = NULL, high_water = NULL, last_checked_at = n.completed_at,
       last_parsed_at = CASE WHEN (SELECT e.items_new + e.items_changed FROM executions e
                                    WHERE e.execution_id = n.execution_id) > 0
                             THEN n.completed_at ELSE w.last_parsed_at END
  FROM n WHERE w.stream = n.stream AND w.fence = n.fence
"""
_FREE = "UPDATE watermarks SET lease_until = NULL WHERE stream = ? AND fence = ?"

_UPDATE_JOBS = """
WITH n(job_id, last_run, last_status, last_success) AS ({rows})
UPDATE jobs AS j
   SET last_run = n.last_run, last_status = n.last_status, last_success = COALESCE(n.last_success, j.last_success)
  FROM n WHERE j.job_id = n.job_id
"""
# The execution that is being settled counts too: it is already dead.
_PAUSE = """
UPDATE jobs SET paused = TRUE, pause_reason = :reason
 WHERE job_id = :job_id AND NOT paused AND :in_a_row <= (
       SELECT count(*) FROM (SELECT state FROM executions WHERE job_id = :job_id AND state IN ('done', 'dead')
                              ORDER BY scheduled_for DESC LIMIT :in_a_row) WHERE state = 'dead')
"""

_LIMIT = """
INSERT INTO limits (key, until, reason, updated_at) VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE
   SET until = max(until, excluded.until), reason = excluded.reason, hits = hits + 1, updated_at = excluded.updated_at
"""


_SHARES_STREAM = " OR ".join(f"({way.format(source='p.source', target='p.target')})" for way in SHARES_STREAM)
_IS_ANY_HELD = f"SELECT 1 FROM executions {ON_SQLITE.held_index} WHERE hold = 'overlap' LIMIT 1"
_NEXT_HELD = f"""
SELECT e.execution_id, e.priority, e.not_before, e.traceparent
  FROM (SELECT ? AS job_id, ? AS stream, ? AS source, ? AS target) p
  JOIN jobs j ON {_SHARES_STREAM}
  JOIN executions e ON e.execution_id = (
    {first_held(ON_SQLITE, "h.execution_id", job_id="j.job_id", paused="j.paused")})
 WHERE {may_go_on(ON_SQLITE, last_run="j.last_run")}
 ORDER BY j.last_run NULLS FIRST LIMIT 1
"""

_QUEUE = "UPDATE executions SET state = 'queued', hold = NULL, not_before = NULL, queue_rank = ? WHERE execution_id = ?"
_UNHOLD = "UPDATE executions SET hold = NULL, reason = NULL WHERE execution_id = ?"

# Rows per statement: few sizes, so that all statements stay prepared.
_SIZES = (50, 10, 1)


class _NotAllOurs(Exception):
    """Some leases have passed to another worker: roll back, and check them one by one."""


class SqliteLeasing:
    """Leases and outcomes on SQLite."""

    def __init__(self, database: SqliteDatabase, *, patience: timedelta, clock: Clock) -> None:
        self._database, self._patience, self._clock = database, patience, clock

    async def prepare(self) -> None:
        """Do nothing: there is nothing to connect to, and little to plan."""

    async def claim(self, ids: Sequence[str], *, worker: str, ttl: timedelta) -> list[Lease]:
        """Claim those of `ids` that may start now; park the others."""
        return await self._claim(_THESE, worker, ttl, ids=encode_json(ids), limit=len(ids))

    async def claim_next(self, limit: int, *, worker: str, ttl: timedelta) -> list[Lease]:
        """Claim the first executions in line; park those that may not start."""
        return await self._claim(_NEXT, worker, ttl, limit=limit)

    async def claim_offers(self, limit: int, *, worker: str, ttl: timedelta, within: timedelta) -> list[Lease]:
        """Claim executions that are offered to `worker`."""
        return await self._claim(_OFFERED_TO, worker, ttl, within=within, limit=limit)

    async def _claim(
        self, statement: str, worker: str, ttl: timedelta, *, within: timedelta | None = None, **arguments: Any
    ) -> list[Lease]:
        def work(connection: sqlite3.Connection) -> list[Lease]:
            now = self._clock.now()
            if within is not None:
                arguments.update(worker=worker, end=to_text(now + within))
            rows = connection.execute(statement, {"now": to_text(now), **arguments}).fetchall()
            parked, leases = _sort_candidates(rows, worker, now, self._patience)
            stamp, until = to_text(now), to_text(now + ttl)
            if within is None:
                # An offer that may not start is left to the waker.
                connection.executemany(_PARK, parked)
            _write(connection, _TAKE, [(lease.job.stream, lease.fence, lease.execution_id, until) for lease in leases])
            _write(
                connection,
                _CLAIM,
                [(lease.execution_id, lease.attempt, lease.fence, worker, stamp, until) for lease in leases],
            )
            return leases

        return await self._database.hot("claim", work)

    async def offer(self, offers: Sequence[Offer], *, within: timedelta) -> list[bool]:
        """Offer executions to the workers that are preferred for them."""

        def work(connection: sqlite3.Connection) -> list[bool]:
            until, offered = to_text(self._clock.now() + within), []
            for lease, worker in ((offer.lease, offer.worker) for offer in offers):
                reason = OFFERED.format(worker=worker)
                written = connection.execute(_OFFER, (worker, reason, until, lease.execution_id, lease.fence)).rowcount
                if written:
                    connection.execute(_FREE, (lease.job.stream, lease.fence))
                offered.append(bool(written))
            return offered

        return await self._database.hot("offer", work)

    async def extend(self, leases: Sequence[Lease], *, ttl: timedelta) -> Extended:
        """Extend the leases by `ttl`."""

        def work(connection: sqlite3.Connection) -> Extended:
            until = to_text(self._clock.now() + ttl)
            lost, cancelled = set(), {}
            for lease in leases:
                row = connection.execute(_EXTEND, (until, lease.execution_id, lease.fence)).fetchone()
                if row is None:
                    lost.add(lease.execution_id)
                elif row[0] is not None or row[1] is None:
                    cancelled[lease.execution_id] = row[0] or JOB_DELETED
            connection.executemany(
                "UPDATE watermarks SET lease_until = ? WHERE stream = ? AND fence = ?",
                [(until, lease.job.stream, lease.fence) for lease in leases if lease.execution_id not in lost],
            )
            return Extended(lost=frozenset(lost), cancelled=cancelled)

        return await self._database.hot("extend", work)

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        """Write the outcomes and their consequences for jobs, limits and waiting executions."""
        settlements = clean_outcomes(settlements)

        def work(connection: sqlite3.Connection) -> Settled:
            return _settle(connection, settlements, self._clock.now(), self._patience)

        # The most common case: all are done and ours. Whether they are ours is found by writing, not by reading first.
        done = [(s, s.outcome) for s in settlements if isinstance(s.outcome, Done)]

        def quick_work(connection: sqlite3.Connection) -> Settled:
            now = self._clock.now()
            if _settle_done(connection, done, now) < len(done):
                raise _NotAllOurs
            woken = _wake_next(connection, [s for s, _ in done], now, self._patience)
            return Settled(mine=[True] * len(done), woken=woken)

        if len(done) == len(settlements):
            with suppress(_NotAllOurs):
                return await self._database.hot("settle", quick_work)
        return await self._database.hot("settle", work)


def _write(connection: sqlite3.Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
    """Run a statement over many rows at once; returns how many it wrote.

    Row by row, each would open the table and its indexes again, and wait for the event loop's thread.
    """
    before, at = connection.total_changes, 0
    for size in _SIZES:
        while len(rows) - at >= size:
            some = rows[at : at + size]
            connection.execute(_prepare_statement(statement, len(some[0]), size), list(chain.from_iterable(some)))
            at += size
    return connection.total_changes - before


@lru_cache
def _prepare_statement(statement: str, columns: int, rows: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return statement.format(rows=f"VALUES {', '.join([row] * rows)}")


def _sort_candidates(
    rows: Sequence[Sequence[Any]], worker: str, now: datetime, patience: timedelta
) -> tuple[list[tuple[Any, ...]], list[Lease]]:
    """Return the rows of candidates to park, and the leases of those that may start."""
    parked: list[tuple[Any, ...]] = []
    leases: list[Lease] = []
    taken: set[str] = set()
    for row in rows:
        (
            execution_id, scheduled_for, attempt, trigger, params, stream, until, limit, busy, fence, value, paused,
            rank, traceparent, created_at, result, was_offered,
        ) = row[:_EXECUTION_COLUMNS]  # fmt: skip
        obstacle = find_obstacle(
            is_deleted=row[_EXECUTION_COLUMNS] is None,
            is_limited=until is not None,
            is_paused=bool(paused),
            trigger=trigger,
            is_busy=bool(busy) or stream in taken,
        )
        if obstacle is not None:
            parked.append((*_park_columns(obstacle, stream, until, limit, now), execution_id))
        else:
            taken.add(stream)
            work = work_from_row(row[_EXECUTION_COLUMNS:])
            job, watermark, given, so_far = decode_columns(work, value, params, result)
            since_rank = (now - from_text(rank)).total_seconds()
            age = (now - from_text(created_at)).total_seconds()
            leases.append(
                Lease(
                    execution_id=execution_id,
                    job=job,
                    scheduled_for=from_text(scheduled_for),
                    attempt=attempt + 1,
                    worker=worker,
                    fence=(fence or 0) + 1,
                    watermark=watermark,
                    trigger=trigger,
                    params=given,
                    waited=waiting_seconds(since_rank, age, job.priority, patience),
                    traceparent=traceparent,
                    result=so_far,
                    was_offered=bool(was_offered),
                )
            )
    return parked, leases


def _park_columns(
    obstacle: Obstacle, stream: str | None, until: str | None, limit: str | None, now: datetime
) -> tuple[str | None, ...]:
    """Return the columns state, completed_at, hold, not_before and reason."""
    return (
        obstacle.state,
        to_text(now) if obstacle.state in ENDED else None,
        obstacle.hold,
        until if obstacle.is_timed else None,
        obstacle.reason.format(stream=stream, limit=limit),
    )


def _settle(
    connection: sqlite3.Connection, settlements: Sequence[Settlement], now: datetime, patience: timedelta
) -> Settled:
    ids = encode_json([s.lease.execution_id for s in settlements])
    held = {row[0]: row for row in connection.execute(_MINE, (ids,))}
    settled = [held.get(s.lease.execution_id, (None, None))[1] == s.lease.fence for s in settlements]
    mine = [
        (s, consequence_of(s.outcome, held[s.lease.execution_id][2]))
        for s, is_mine in zip(settlements, settled, strict=True)
        if is_mine
    ]
    done = [(s, s.outcome) for s, _ in mine if isinstance(s.outcome, Done)]
    _settle_done(connection, done, now)
    if len(done) < len(mine):
        _settle_others(connection, [both for both in mine if both[1].state is not State.DONE], now, patience)
    _follow_up(connection, settlements, [s for s, _ in mine], now)
    ended = [s for s, follows in mine if follows.state in ENDING]
    return Settled(mine=settled, woken=_wake_next(connection, ended, now, patience))


def _wake_next(
    connection: sqlite3.Connection, ended: Sequence[Settlement], now: datetime, patience: timedelta
) -> list[Queued]:
    """Queue the next execution of each stream in which an execution has ended."""
    if connection.execute(_IS_ANY_HELD).fetchone() is None:
        return []
    streams = {(s.lease.job.job_id, s.lease.job.stream) for s in ended}
    found = [
        row
        for job_id, stream in streams
        for row in connection.execute(_NEXT_HELD, (job_id, stream, *split_stream(stream)))
    ]
    return queue_woken(connection, found, now, patience)


def queue_woken(
    connection: sqlite3.Connection, rows: Sequence[Sequence[Any]], now: datetime, patience: timedelta
) -> list[Queued]:
    """Queue executions whose hold has ended; those whose jitter is not over wait for it.

    Rows are id, priority, not_before and traceparent.
    """
    is_early = [wakes_to(read_moment(row[2]), now) is State.WAITING for row in rows]
    ready = list(compress(rows, map(not_, is_early)))
    connection.executemany(_UNHOLD, [(row[0],) for row in compress(rows, is_early)])
    connection.executemany(_QUEUE, [(to_text(rank_of(row[1], now, patience)), row[0]) for row in ready])
    return queued_from_rows(ready)


def _settle_done(connection: sqlite3.Connection, done: Sequence[tuple[Settlement, Done]], now: datetime) -> int:
    """Write outcomes; returns how many leases were ours."""
    executions, streams, jobs, stamp = [], [], {}, to_text(now)
    for s, outcome in done:
        lease, kept, started = s.lease, outcome.kept, to_text(now - timedelta(seconds=s.duration))
        result = None if outcome.result is None else encode_json(outcome.result)
        counts = (kept.new, kept.changed, kept.known)
        executions.append((lease.execution_id, lease.fence, started, stamp, s.duration, *counts, result))
        streams.append((lease.job.stream, lease.fence, lease.execution_id, stamp))
        # One row per job: the last one counts.
        jobs[lease.job.job_id] = (lease.job.job_id, started, "done", stamp)
    written = _write(connection, _SETTLE_DONE, executions)
    _write(connection, _FREE_DONE, streams)
    _write(connection, _UPDATE_JOBS, list(jobs.values()))
    return written


def _settle_others(
    connection: sqlite3.Connection, others: Sequence[tuple[Settlement, Consequence]], now: datetime, patience: timedelta
) -> None:
    connection.executemany(_SETTLE, [_settle_row(s, follows, now, patience) for s, follows in others])
    connection.executemany(_FREE, [(s.lease.job.stream, s.lease.fence) for s, _ in others])
    ended: dict[str, tuple[Any, ...]] = {}
    for s, follows in others:
        if follows.state in ENDING:
            started, job_id = to_text(now - timedelta(seconds=s.duration)), s.lease.job.job_id
            ended[job_id] = (job_id, started, follows.state.value, None)
    _write(connection, _UPDATE_JOBS, list(ended.values()))


def _settle_row(settlement: Settlement, follows: Consequence, now: datetime, patience: timedelta) -> dict[str, Any]:
    rank = to_text(rank_of(settlement.lease.job.priority, now, patience)) if follows.state is State.QUEUED else None
    return {
        **dict(zip(SETTLED, settled_row(settlement, follows), strict=True)),
        "not_before": None if follows.after is None else to_text(now + follows.after),
        "queue_rank": rank,
        "started_at": to_text(now - timedelta(seconds=settlement.duration)),
        "completed_at": to_text(now) if follows.state in ENDING else None,
    }


def _follow_up(
    connection: sqlite3.Connection, settlements: Sequence[Settlement], mine: Sequence[Settlement], now: datetime
) -> None:
    """Set rate limits, which apply to all workers even if a lease was lost, and pause failing jobs."""
    stamp = to_text(now)
    for outcome in (s.outcome for s in settlements):
        if isinstance(outcome, Snooze) and outcome.key is not None:
            connection.execute(_LIMIT, (outcome.key, to_text(now + outcome.after), outcome.reason, stamp))
    for s in mine:
        if isinstance(s.outcome, Dead) and s.outcome.pause:
            reason, job_id = s.outcome.error, s.lease.job.job_id
            connection.execute(_PAUSE, {"reason": reason, "job_id": job_id, "in_a_row": s.outcome.in_a_row})
