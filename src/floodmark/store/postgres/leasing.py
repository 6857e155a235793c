"""Claims, heartbeats and outcomes on PostgreSQL.

Tables: `executions` (state, lease), `watermarks` (fence and lease of the stream), `jobs` (last run), `limits`. Rows of
`watermarks` are locked in order of stream; if two workers deadlock all the same, the server rolls one of them back and
its step is repeated.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from floodmark.model.execution import ENDED, Hold, Lease, Queued
from floodmark.model.job import Priority
from floodmark.model.outcome import Dead, Done, Snooze
from floodmark.rules.outcomes import CONTINUING, ENDING, consequence_of
from floodmark.rules.rank import rank_delays, waiting_seconds
from floodmark.rules.starting import JOB_DELETED, OBSTACLES, OFFERED
from floodmark.store.array_texts import array_text, number_array
from floodmark.store.database import PostgresDatabase, encode_json
from floodmark.store.holds import HELD_COLUMNS, SHARES_STREAM, first_held, may_go_on
from floodmark.store.port import Extended, Offer, Settled, Settlement
from floodmark.store.postgres_connection import Connection
from floodmark.store.rows import WORK_COLUMNS, WORK_SELECT, decode_columns, work_from_row
from floodmark.store.rule_sql import (
    ON_POSTGRES,
    STREAM,
    WAS_OFFERED,
    choose,
    fill_text,
    holds_pause,
    list_states,
    match_key,
    postgres_rank,
    quote,
)
from floodmark.store.settling import SETTLED, clean_outcomes, settled_row

_EXECUTION_COLUMNS = 12
_ITS_JOB = match_key("j.job_id", "e.job_id")

_MAY_START = f"""NOT {holds_pause("j.paused", "e.trigger")}
       AND NOT EXISTS (SELECT 1 FROM limits l WHERE l.key = j.limit_key AND l.until > clock_timestamp())"""

_CLAIM = f"""
WITH {{startable}}, taken AS (
    INSERT INTO watermarks AS w (stream, fence, holder, lease_until)
    SELECT {{one_each}} s.stream, 1, s.execution_id, clock_timestamp() + $1::interval FROM startable s {{in_order}}
    ON CONFLICT (stream) DO UPDATE
       SET fence = w.fence + 1, holder = excluded.holder, lease_until = excluded.lease_until
     WHERE w.lease_until IS NULL OR w.lease_until < clock_timestamp()
    RETURNING w.holder, w.fence, w.value
), claimed AS (
    UPDATE executions e
       SET state = 'running', attempt = e.attempt + 1, fence = t.fence, worker = $2, hold = NULL, not_before = NULL,
           -- An offer is recognised by its reason below: only new values can be returned.
           reason = CASE WHEN {WAS_OFFERED} THEN e.reason END,
           started_at = clock_timestamp(), lease_until = clock_timestamp() + $1::interval
      FROM taken t WHERE {match_key("e.execution_id", "t.holder")} AND e.state || '' = {{state}}
    RETURNING e.execution_id, e.job_id, e.scheduled_for, e.attempt, e.fence, e.trigger, e.params, e.traceparent,
              e.result, e.reason IS NOT NULL AS was_offered, t.value, e.queue_rank,
              EXTRACT(EPOCH FROM clock_timestamp() - e.queue_rank)::float8 AS since_rank,
              EXTRACT(EPOCH FROM clock_timestamp() - e.created_at)::float8 AS age
)
(SELECT claimed.execution_id, claimed.scheduled_for, claimed.attempt, claimed.fence, claimed.trigger, claimed.params,
        claimed.traceparent, claimed.value, claimed.since_rank, claimed.age,
        claimed.result, claimed.was_offered,
        {WORK_SELECT}
   FROM claimed LEFT JOIN jobs j ON {match_key("j.job_id", "claimed.job_id")} {{order}})
"""
_SEVERAL = {"one_each": "DISTINCT ON (s.stream)", "in_order": "ORDER BY s.stream, s.queue_rank"}
_QUEUED = {"state": "'queued'"}
# If some candidates could not start, their ids and those of the others follow: they must be parked, or they would stay
# first in line for ever. A join of candidates and claimed rows would compare each with each.
_CANDIDATES = f"""
UNION ALL SELECT c.execution_id, {", ".join(["NULL"] * (_EXECUTION_COLUMNS - 1 + len(WORK_COLUMNS)))} FROM candidate c
 WHERE (SELECT count(*) FROM claimed) < (SELECT count(*) FROM candidate)
"""
_CLAIM_NEXT = (
    _CLAIM.format(
        startable=f"""candidate AS MATERIALIZED (
    SELECT e.execution_id, e.job_id, e.queue_rank, e.trigger FROM executions e
     WHERE e.state = 'queued' ORDER BY e.queue_rank LIMIT $3 FOR UPDATE SKIP LOCKED
), startable AS (
    SELECT e.execution_id, e.queue_rank, {STREAM} AS stream
      FROM candidate e JOIN jobs j ON {_ITS_JOB} WHERE {_MAY_START}
)""",
        **_SEVERAL,
        **_QUEUED,
        order="ORDER BY claimed.queue_rank",
    )
    + _CANDIDATES
)
# `state || ''` keeps the planner from reading the index of all queued executions to find a few ids.
_NAMED = f"""startable AS MATERIALIZED (
    SELECT e.execution_id, e.queue_rank, {STREAM} AS stream FROM executions e JOIN jobs j ON {_ITS_JOB}
     WHERE e.execution_id = {{which}} AND e.state || '' = 'queued' AND {_MAY_START}
       FOR UPDATE OF e SKIP LOCKED
)"""
_CLAIM_THESE = _CLAIM.format(startable=_NAMED.format(which="ANY($3)"), **_SEVERAL, **_QUEUED, order="")
# The usual claim of an idle worker: without sorting it is a tenth faster.
_CLAIM_ONE = _CLAIM.format(startable=_NAMED.format(which="$3"), one_each="", in_order="", **_QUEUED, order="")
# Offers end soon, so the index of waiting executions leads to few rows.
_CLAIM_OFFERS = _CLAIM.format(
    startable=f"""startable AS MATERIALIZED (
    SELECT e.execution_id, e.queue_rank, {STREAM} AS stream FROM executions e JOIN jobs j ON {_ITS_JOB}
     WHERE e.state = 'waiting' AND e.not_before > statement_timestamp()
       AND e.not_before <= statement_timestamp() + $4::interval
       AND e.hold IS NULL AND e.worker = $2 AND {WAS_OFFERED} AND {_MAY_START}
     ORDER BY e.not_before LIMIT $3 FOR UPDATE OF e SKIP LOCKED
)""",
    **_SEVERAL,
    state="'waiting'",
    order="",
)

_OFFER = f"""
WITH o AS (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[]) AS o(execution_id, fence, stream, worker)
), offered AS (
    UPDATE executions e
       SET state = 'waiting', attempt = e.attempt - 1, worker = o.worker, fence = NULL, lease_until = NULL,
           reason = {fill_text(OFFERED, worker="o.worker")}, not_before = clock_timestamp() + $5::interval
      FROM o WHERE {match_key("e.execution_id", "o.execution_id")} AND e.state || '' = 'running' AND e.fence = o.fence
               AND e.cancel_requested IS NULL
    RETURNING e.execution_id, o.stream, o.fence
), freed AS (
    UPDATE watermarks w SET lease_until = NULL
      FROM offered o WHERE {match_key("w.stream", "o.stream")} AND w.fence = o.fence
)
SELECT execution_id FROM offered
"""

# When each of `OBSTACLES` applies to a queued execution that could not start.
_APPLIES = ("why.job_id IS NULL", "why.until IS NOT NULL", "why.is_paused", "TRUE")
_PARK = f"""
UPDATE executions e
   SET state = {choose(_APPLIES, (quote(o.state) for o in OBSTACLES))},
       completed_at = {choose(_APPLIES, ("clock_timestamp()" if o.state in ENDED else "NULL" for o in OBSTACLES))},
       hold = {choose(_APPLIES, (quote(o.hold) if o.hold else "NULL" for o in OBSTACLES))},
       not_before = {choose(_APPLIES, ("why.until" if o.is_timed else "NULL" for o in OBSTACLES))},
       reason = {
    choose(_APPLIES, (fill_text(o.reason, stream="why.stream", limit="why.limit_reason") for o in OBSTACLES))
}
  FROM (SELECT p.execution_id, j.job_id, {STREAM} AS stream, l.until, l.reason AS limit_reason,
               {holds_pause("j.paused", "p.trigger")} AS is_paused
          FROM executions p LEFT JOIN jobs j ON {match_key("j.job_id", "p.job_id")}
          LEFT JOIN limits l ON {match_key("l.key", "j.limit_key")} AND l.until > clock_timestamp()
         WHERE p.execution_id = ANY($1)) why
 WHERE {match_key("e.execution_id", "why.execution_id")} AND e.state || '' = 'queued'
"""

_EXTEND = f"""
WITH held AS (SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[]) AS h(execution_id, fence, stream)),
extended AS (
    UPDATE executions e SET lease_until = clock_timestamp() + $4::interval
      FROM held h
     WHERE {match_key("e.execution_id", "h.execution_id")} AND e.state || '' = 'running' AND e.fence = h.fence
    RETURNING e.execution_id, e.job_id, e.cancel_requested, h.stream, h.fence
), locked AS (
    -- Sorted first: a plan that sorts last may read all of the index instead.
    SELECT w.stream FROM (SELECT stream, fence FROM extended ORDER BY stream OFFSET 0) x
      JOIN watermarks w ON {match_key("w.stream", "x.stream")} AND w.fence = x.fence FOR UPDATE OF w
), kept AS (
    UPDATE watermarks w SET lease_until = clock_timestamp() + $4::interval
      FROM locked WHERE {match_key("w.stream", "locked.stream")}
)
SELECT x.execution_id, CASE WHEN j.job_id IS NULL THEN {quote(JOB_DELETED)} ELSE x.cancel_requested END
  FROM extended x LEFT JOIN LATERAL (SELECT j.job_id FROM jobs j WHERE j.job_id = x.job_id LIMIT 1) j ON TRUE
"""

# The new values of a waiting execution without a hold: queued, or waiting until its jitter is over.
# Uses the time of the statement, which is the same in all its parts.
WOKEN = """
    state = CASE WHEN e.not_before > statement_timestamp() THEN 'waiting' ELSE 'queued' END, hold = NULL,
    reason = CASE WHEN e.not_before > statement_timestamp() THEN NULL ELSE e.reason END,
    not_before = CASE WHEN e.not_before > statement_timestamp() THEN e.not_before END,
    queue_rank = CASE WHEN e.not_before > statement_timestamp() THEN NULL
                      ELSE {rank} END
"""

_ENDED = list_states(ENDING)
# All parts of a statement see the tables as they were before it: only `ended` has the executions that end here, and
# the new last run of their jobs.
_LAST_RUN = "CASE WHEN j.job_id = p.job_id THEN p.last_run ELSE j.last_run END"
# `streams.split_stream`.
_SOURCE = "substr(p.stream, 1, GREATEST(strpos(p.stream, ':') - 1, 0))"
_TARGET = "substr(p.stream, strpos(p.stream, ':') + 1)"
# One look-up for each way: to find the rows of any, a plan would read the whole table. A job that is found in two ways
# does not matter, because only one is taken.
_SHARING = " UNION ALL ".join(
    f"SELECT j.job_id, j.paused, j.last_run FROM jobs j WHERE {way.format(source=_SOURCE, target=_TARGET)}"
    for way in SHARES_STREAM
)
_BESIDES = f"""AND NOT EXISTS (
                   SELECT 1 FROM ended x WHERE x.execution_id = o.execution_id AND x.state IN {_ENDED} OFFSET 0)"""
_NEXT = f"""
    SELECT n.execution_id
      FROM (SELECT ended.job_id, ended.stream, max(ended.started_at) AS last_run FROM ended
             WHERE ended.state IN {_ENDED} GROUP BY ended.job_id, ended.stream) p
      CROSS JOIN LATERAL (
        SELECT e.execution_id
          FROM ({_SHARING}) j
          CROSS JOIN LATERAL ({first_held(ON_POSTGRES, HELD_COLUMNS, job_id="j.job_id", paused="j.paused")}) e
         WHERE {may_go_on(ON_POSTGRES, last_run=_LAST_RUN, besides=_BESIDES)}
         ORDER BY {_LAST_RUN} NULLS FIRST LIMIT 1) n
     WHERE EXISTS (SELECT 1 FROM executions h WHERE h.hold = 'overlap')"""

_SETTLE_FRAME = f"""
WITH s AS (
    SELECT * FROM unnest({{given}}) AS s({{columns}})
), ended AS (
    UPDATE executions e
       SET {{values}}, lease_until = NULL,
           started_at = clock_timestamp() - make_interval(secs => s.duration),
           duration_seconds = COALESCE(e.duration_seconds, 0) + s.duration,
           items_new = e.items_new + s.new, items_changed = e.items_changed + s.changed,
           items_known = e.items_known + s.known,
           result = COALESCE(s.result::jsonb, e.result)
      FROM s WHERE {match_key("e.execution_id", "s.execution_id")} AND e.state || '' = 'running' AND e.fence = s.fence
    RETURNING e.execution_id, e.job_id, e.state, e.started_at, e.completed_at, e.items_new + e.items_changed AS kept,
              s.stream, s.fence
), freed AS (
    UPDATE watermarks w SET lease_until = NULL, {{freed}}
      FROM ended WHERE {match_key("w.stream", "ended.stream")} AND w.fence = ended.fence
), updated_jobs AS (
    UPDATE jobs j SET last_run = ended.started_at, last_status = ended.state,
           last_success = CASE ended.state WHEN 'done' THEN ended.completed_at ELSE j.last_success END
      FROM ended WHERE {match_key("j.job_id", "ended.job_id")} AND ended.state IN {_ENDED}
), next AS ({_NEXT}
), startable AS (
    -- Only the first of each stream, never the next one: if another transaction has locked it, the leader wakes it.
    SELECT e.execution_id FROM executions e JOIN next ON {match_key("e.execution_id", "next.execution_id")}
       FOR UPDATE OF e SKIP LOCKED
), woken AS (
    UPDATE executions e SET {{woken}}
      FROM startable n
     WHERE {match_key("e.execution_id", "n.execution_id")} AND {ON_POSTGRES.is_held("e", Hold.OVERLAP)}
    RETURNING e.execution_id, e.priority, e.traceparent, e.state
)
SELECT execution_id, NULL::smallint, NULL FROM ended
UNION ALL SELECT execution_id, priority, traceparent FROM woken WHERE state = 'queued'
"""

_RANK = postgres_rank("clock_timestamp()", delays="$15")
# `outcomes.consequence_of`: a requested cancellation ends an execution that would run again.
_STATE = (
    f"CASE WHEN e.cancel_requested IS NOT NULL AND s.state IN {list_states(CONTINUING)}"
    " THEN 'cancelled' ELSE s.state END"
)
_SETTLE = _SETTLE_FRAME.format(
    given="""$1::text[], $2::bigint[], $3::text[], $4::text[], $5::int[], $6::float8[], $7::text[], $8::text[],
                         $9::text[], $10::text[], $11::int[], $12::int[], $13::int[], $14::float8[]""",
    columns=", ".join(SETTLED),
    values=f"""state = {_STATE}, attempt = e.attempt - s.refund,
           reason = CASE WHEN {_STATE} = 'cancelled' THEN COALESCE(e.cancel_requested, s.reason) ELSE s.reason END,
           not_before = CASE WHEN {_STATE} = 'waiting' THEN clock_timestamp() + make_interval(secs => s.after) END,
           queue_rank = CASE WHEN {_STATE} = 'queued' THEN {_RANK} END,
           completed_at = CASE WHEN {_STATE} IN {_ENDED} THEN clock_timestamp() END,
           error_message = COALESCE(s.error, e.error_message),
           error_details = CASE WHEN s.details IS NULL THEN e.error_details
                                ELSE COALESCE(e.error_details, '[]') || s.details::jsonb END""",
    freed="""
           high_water = CASE WHEN ended.state = 'done' THEN NULL ELSE w.high_water END,
           last_checked_at = CASE WHEN ended.state = 'done' THEN clock_timestamp() ELSE w.last_checked_at END,
           last_parsed_at = CASE WHEN ended.state = 'done' AND ended.kept > 0 THEN clock_timestamp()
                                 ELSE w.last_parsed_at END""",
    woken=WOKEN.format(rank=_RANK),
)

# The most common outcome, without the columns that only failures need. Lists come as the text of an array: the driver
# checks and encodes each element of a list by itself.
_DONE_COLUMNS = ("execution_id", "fence", "stream", "duration", "new", "changed", "known", "result")
_SETTLE_DONE = _SETTLE_FRAME.format(
    given="""$1::text::text[], $2::text::bigint[], $3::text::text[], $4::text::float8[], $5::text::int[],
                         $6::text::int[], $7::text::int[], $8::text[]""",
    columns=", ".join(_DONE_COLUMNS),
    values="""state = 'done', reason = NULL, not_before = NULL, queue_rank = NULL,
           completed_at = clock_timestamp()""",
    freed="""
           high_water = NULL, last_checked_at = clock_timestamp(),
           last_parsed_at = CASE WHEN ended.kept > 0 THEN clock_timestamp() ELSE w.last_parsed_at END""",
    woken=WOKEN.format(rank=postgres_rank("clock_timestamp()", delays="$9")),
)

# The executions that are being settled count too: they are already dead.
_PAUSE = f"""
UPDATE jobs j SET paused = TRUE, pause_reason = n.reason
  FROM unnest($1::text[], $2::text[], $3::int[]) AS n(job_id, reason, in_a_row)
 WHERE {match_key("j.job_id", "n.job_id")} AND NOT j.paused AND n.in_a_row <= (
       SELECT count(*) FROM (SELECT e.state FROM executions e
                              WHERE e.job_id = n.job_id AND e.state || '' IN ('done', 'dead')
                              ORDER BY e.scheduled_for DESC LIMIT n.in_a_row) last WHERE last.state = 'dead')
"""

_LIMIT = """
INSERT INTO limits AS l (key, until, reason)
SELECT n.key, clock_timestamp() + make_interval(secs => max(n.after)), min(n.reason)
  FROM unnest($1::text[], $2::float8[], $3::text[]) AS n(key, after, reason) GROUP BY n.key ORDER BY n.key
ON CONFLICT (key) DO UPDATE
   SET until = GREATEST(l.until, excluded.until), reason = excluded.reason, hits = l.hits + 1,
       updated_at = clock_timestamp()
"""


class PostgresLeasing:
    """Leases and outcomes on PostgreSQL."""

    def __init__(self, database: PostgresDatabase, *, patience: timedelta) -> None:
        self._database, self._patience, self._delays = database, patience, rank_delays(patience)

    async def prepare(self) -> None:
        """Connect and plan the first statements of a worker: that takes longer than a hundred claims."""
        nothing: list[list[Any]] = [[]] * len(SETTLED)

        async def work(connection: Connection) -> None:
            await connection.fetch(_CLAIM_ONE, timedelta(), "", "")
            await connection.fetch(_CLAIM_THESE, timedelta(), "", [])
            await connection.fetch(_SETTLE_DONE, *_done_columns(()), self._delays)
            await connection.fetch(_SETTLE, *nothing, self._delays)

        # On two connections: the next claim often runs while the last outcome is being written.
        await asyncio.gather(*(self._database.hot("prepare", work) for _ in range(2)))

    async def claim(self, ids: Sequence[str], *, worker: str, ttl: timedelta) -> list[Lease]:
        """Claim those of `ids` that may start now, in their order; park the others."""
        statement, which = (_CLAIM_ONE, ids[0]) if len(ids) == 1 else (_CLAIM_THESE, list(ids))

        async def work(connection: Connection) -> list[Lease]:
            rows = await connection.fetch(statement, ttl, worker, which)
            found = {row[0]: row for row in rows}
            if len(found) < len(ids):
                await connection.execute(_PARK, [i for i in ids if i not in found])
            return [_lease(found[i], worker, self._patience) for i in ids if i in found]

        return await self._database.hot("claim", work)

    async def claim_next(self, limit: int, *, worker: str, ttl: timedelta) -> list[Lease]:
        """Claim the first executions in line; park those that may not start."""

        async def work(connection: Connection) -> list[Lease]:
            rows = await connection.fetch(_CLAIM_NEXT, ttl, worker, limit)
            claimed = {row[0]: row for row in rows if row[1] is not None}
            if len(claimed) < len(rows):
                await connection.execute(_PARK, [row[0] for row in rows if row[0] not in claimed])
            return [_lease(row, worker, self._patience) for row in claimed.values()]

        return await self._database.hot("claim", work)

    async def offer(self, offers: Sequence[Offer], *, within: timedelta) -> list[bool]:
        """Offer executions to the workers that are preferred for them."""
        # In order of stream, as in a claim.
        in_order = sorted(offers, key=lambda offer: offer.lease.job.stream)
        columns = (
            [o.lease.execution_id for o in in_order],
            [o.lease.fence for o in in_order],
            [o.lease.job.stream for o in in_order],
            [o.worker for o in in_order],
        )

        async def work(connection: Connection) -> list[bool]:
            offered = {row[0] for row in await connection.fetch(_OFFER, *columns, within)}
            return [offer.lease.execution_id in offered for offer in offers]

        return await self._database.hot("offer", work)

    async def claim_offers(self, limit: int, *, worker: str, ttl: timedelta, within: timedelta) -> list[Lease]:
        """Claim executions that are offered to `worker`."""

        async def work(connection: Connection) -> list[Lease]:
            rows = await connection.fetch(_CLAIM_OFFERS, ttl, worker, limit, within)
            return [_lease(row, worker, self._patience) for row in rows]

        return await self._database.hot("claim", work)

    async def extend(self, leases: Sequence[Lease], *, ttl: timedelta) -> Extended:
        """Extend the leases by `ttl`."""
        ids = [lease.execution_id for lease in leases]

        async def work(connection: Connection) -> Extended:
            rows = await connection.fetch(
                _EXTEND, ids, [lease.fence for lease in leases], [lease.job.stream for lease in leases], ttl
            )
            return Extended(
                lost=frozenset(ids) - {row[0] for row in rows},
                cancelled={row[0]: row[1] for row in rows if row[1] is not None},
            )

        return await self._database.hot("extend", work)

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        """Write the outcomes and their consequences for jobs, limits and waiting executions."""
        settlements = clean_outcomes(settlements)
        # In order of stream, as in a claim, so that two workers seldom deadlock.
        in_order = sorted(settlements, key=lambda s: s.lease.job.stream)
        statement, columns = _settle_columns(in_order)
        pauses = [(s.lease, s.outcome) for s in settlements if isinstance(s.outcome, Dead) and s.outcome.pause]
        # A rate limit applies to all workers, even if this lease was lost.
        limits = [s.outcome for s in settlements if isinstance(s.outcome, Snooze) and s.outcome.key is not None]

        async def work(connection: Connection) -> Settled:
            if not pauses and not limits:
                # By far the most common case: one statement is one transaction and one round trip.
                rows = await connection.fetch(statement, *columns, self._delays)
            else:
                async with connection.transaction():
                    rows = await connection.fetch(statement, *columns, self._delays)
                    await _follow_up(connection, {row[0] for row in rows if row[1] is None}, pauses, limits)
            mine = {row[0] for row in rows if row[1] is None}
            return Settled(
                mine=[s.lease.execution_id in mine for s in settlements],
                woken=[Queued(row[0], Priority(row[1]), row[2]) for row in rows if row[1] is not None],
            )

        return await self._database.hot("settle", work)


def _settle_columns(settlements: Sequence[Settlement]) -> tuple[str, Sequence[Any]]:
    """Return the statement that settles these, and its columns."""
    if all(type(s.outcome) is Done for s in settlements):
        return _SETTLE_DONE, _done_columns(settlements)
    return _SETTLE, list(zip(*(settled_row(s, consequence_of(s.outcome)) for s in settlements), strict=True))


def _done_columns(settlements: Sequence[Settlement]) -> tuple[Any, ...]:
    """Return the columns `_DONE_COLUMNS`."""
    leases, kept = [s.lease for s in settlements], [s.outcome.kept for s in settlements]
    results = [s.outcome.result for s in settlements]
    return (
        array_text([lease.execution_id for lease in leases]),
        number_array([lease.fence for lease in leases]),
        array_text([lease.job.stream for lease in leases]),
        number_array([s.duration for s in settlements]),
        number_array([one.new for one in kept]),
        number_array([one.changed for one in kept]),
        number_array([one.known for one in kept]),
        # A shorter list is filled up with NULL.
        [None if result is None else encode_json(result) for result in results] if any(results) else [],
    )


async def _follow_up(
    connection: Connection, mine: set[str], pauses: Sequence[tuple[Lease, Dead]], limits: Sequence[Snooze]
) -> None:
    dead = [(lease.job.job_id, o.error, o.in_a_row) for lease, o in pauses if lease.execution_id in mine]
    if dead:
        await connection.execute(_PAUSE, *map(list, zip(*dead, strict=True)))
    if limits:
        seconds = [outcome.after.total_seconds() for outcome in limits]
        await connection.execute(_LIMIT, [o.key for o in limits], seconds, [o.reason for o in limits])


def _lease(row: Any, worker: str, patience: timedelta) -> Lease:
    columns = tuple(row)
    (
        execution_id, scheduled_for, attempt, fence, trigger, params, traceparent, watermark, since_rank, age,
        result, was_offered,
    ) = columns[:_EXECUTION_COLUMNS]  # fmt: skip
    work = work_from_row(columns[_EXECUTION_COLUMNS:])
    job, mark, given, so_far = decode_columns(work, watermark, params, result)
    return Lease(
        execution_id=execution_id,
        job=job,
        scheduled_for=scheduled_for,
        attempt=attempt,
        worker=worker,
        fence=fence,
        watermark=mark,
        trigger=trigger,
        params=given,
        waited=waiting_seconds(since_rank, age, job.priority, patience),
        traceparent=traceparent,
        result=so_far,
        was_offered=was_offered,
    )
