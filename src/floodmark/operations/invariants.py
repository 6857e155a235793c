"""Invariants of the store, each checked by a query.

A query returns a few examples of rows that break the rule. It reads a bounded window, the newest `SCANNED` rows of a
table or unfinished ones, so that a large installation can be checked while it works. Pruned rows cannot be checked:
rules about events begin with the oldest stored one.
"""

from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import BigInteger, TextClause, bindparam, func, select, text

from floodmark.store.async_engine import AsyncConnection
from floodmark.store.rule_sql import STREAM
from floodmark.store.tables import outbox
from floodmark.store.types import UtcTime

SCANNED = 100_000
_EXAMPLES = 5

# Overlapping transactions write events slightly out of order, so they are pruned out of order.
_PRUNING_BLUR = timedelta(minutes=10)


class Invariant(Struct, frozen=True, kw_only=True):
    """A rule: its code, the texts for when it holds and when it is broken, a hint, and the query."""

    code: str
    holds: str
    broken: str
    hint: str
    query: str


class Window(Struct, frozen=True, kw_only=True):
    """The times that the rules use. `since`: older events may have been pruned."""

    now: datetime
    overdue: datetime
    since: datetime


_RECENT_EVENTS = "(SELECT * FROM outbox ORDER BY seq DESC LIMIT :scanned)"
_RECENT_EXECUTIONS = "(SELECT * FROM executions ORDER BY execution_id DESC LIMIT :scanned)"
_BUG = "this is a bug in Floodmark, or someone changed rows by hand: keep a copy of the database and report it"

INVARIANTS = (
    Invariant(
        code="I2.events",
        holds="every item has its event",
        broken="items without an event",
        hint=_BUG,
        query="""
        SELECT i.stream || '/' || i.key || '/' || i.revision
          FROM (SELECT stream, key, revision FROM items WHERE collected_at > :since LIMIT :scanned) i
          LEFT JOIN outbox o ON o.stream = i.stream AND o.key = i.key AND o.revision = i.revision
         WHERE o.seq IS NULL LIMIT :examples
        """,
    ),
    Invariant(
        code="I2.items",
        holds="every event has its item",
        broken="events without an item",
        hint=_BUG,
        query=f"""
        SELECT o.stream || '/' || o.key || '/' || o.revision FROM {_RECENT_EVENTS} o
          LEFT JOIN items i ON i.stream = o.stream AND i.key = o.key AND i.revision = o.revision
          LEFT JOIN item_revisions r ON r.stream = o.stream AND r.key = o.key AND r.revision = o.revision
         WHERE i.key IS NULL AND r.key IS NULL LIMIT :examples
        """,
    ),
    Invariant(
        code="I2.once",
        holds="no event is announced twice",
        broken="events announced twice",
        hint=_BUG,
        query=f"""
        SELECT o.stream || '/' || o.key || '/' || o.revision FROM {_RECENT_EVENTS} o
         GROUP BY o.stream, o.key, o.revision HAVING count(*) > 1 LIMIT :examples
        """,
    ),
    Invariant(
        code="I3",
        holds="no item is newer than the fence of its stream",
        broken="items with a fence their stream has not reached",
        hint="the table watermarks was set back by hand or by a restored backup: floodmark watermark --help",
        query=f"""
        SELECT i.stream || '/' || i.key FROM {_RECENT_EVENTS} o
          JOIN items i ON i.stream = o.stream AND i.key = o.key
          LEFT JOIN (SELECT COALESCE(items_stream, stream) AS stream, max(fence) AS fence
                       FROM watermarks GROUP BY 1) w ON w.stream = i.stream
         WHERE w.fence IS NULL OR i.fence > w.fence LIMIT :examples
        """,
    ),
    Invariant(
        code="I4",
        holds="every running execution was given its fence, and no two the same",
        broken="running executions with a fence that is not theirs",
        hint=_BUG,
        query=f"""
        SELECT e.execution_id FROM executions e
          JOIN jobs j ON j.job_id = e.job_id
          LEFT JOIN watermarks w ON w.stream = {STREAM}
         WHERE e.state = 'running'
           AND (w.fence IS NULL OR e.fence > w.fence OR (e.fence = w.fence AND w.holder <> e.execution_id))
           -- A job that was moved to another stream while it runs keeps the fence of its old one.
           AND NOT EXISTS (SELECT 1 FROM watermarks o WHERE o.holder = e.execution_id AND o.fence = e.fence)
         LIMIT :examples
        """,
    ),
    Invariant(
        code="I6.running",
        holds="no execution is left with a silent worker",
        broken="executions that nobody has rescued from a silent worker",
        hint="is a scheduler running? start one with: floodmark up",
        query="""
        SELECT e.execution_id FROM executions e
         WHERE e.state = 'running' AND e.lease_until < :overdue LIMIT :examples
        """,
    ),
    Invariant(
        code="I6.waiting",
        holds="nothing waits past its time",
        broken="executions whose time to wait is over, but which nobody has queued",
        hint="is a scheduler running? start one with: floodmark up",
        query="""
        SELECT e.execution_id FROM executions e
         WHERE e.state = 'waiting' AND e.hold IS NULL AND e.not_before < :overdue LIMIT :examples
        """,
    ),
    Invariant(
        code="I6.queued",
        holds="the queue moves",
        broken="executions that are queued while nothing runs",
        hint="is a worker running, and not drained? start one with: floodmark up",
        query="""
        SELECT e.execution_id FROM executions e
         WHERE e.state = 'queued' AND e.queue_rank < :overdue
           AND NOT EXISTS (SELECT 1 FROM executions r WHERE r.state = 'running' AND r.lease_until >= :now)
         LIMIT :examples
        """,
    ),
    Invariant(
        code="I8.order",
        holds="the events of each stream are in order",
        broken="events numbered in another order than they were written",
        hint=_BUG,
        query=f"""
        SELECT n.stream || ' at ' || n.position FROM (
            SELECT o.stream, o.position, o.seq, lag(o.seq) OVER (PARTITION BY o.stream ORDER BY o.position) AS before
              FROM {_RECENT_EVENTS} o WHERE o.position IS NOT NULL) n
         WHERE n.before > n.seq LIMIT :examples
        """,
    ),
    Invariant(
        code="I8.gapless",
        holds="no event is missing between two others",
        broken="gaps in the numbering of events",
        hint="rows were deleted from outbox by hand: readers have missed these events",
        query="""
        SELECT 'before ' || n.position FROM (
            SELECT o.position, lag(o.position) OVER (ORDER BY o.position) AS before
              FROM (SELECT * FROM outbox WHERE position IS NOT NULL AND created_at > :since
                     ORDER BY position DESC LIMIT :scanned) o) n
         WHERE n.before <> n.position - 1
           -- A restore leaves out positions: see `restored_database.py`.
           AND n.before NOT IN (SELECT CAST(CAST(f.value AS TEXT) AS BIGINT) FROM facts f WHERE f.name LIKE 'gap.%')
         LIMIT :examples
        """,
    ),
    Invariant(
        code="I8.relayed",
        holds="events leave the outbox",
        broken="events that nobody relays",
        hint="is a scheduler running? start one with: floodmark up",
        query="""
        SELECT o.stream || '/' || o.key || '/' || o.revision FROM outbox o
         WHERE o.sent_at IS NULL AND o.created_at < :overdue ORDER BY o.seq LIMIT :examples
        """,
    ),
    Invariant(
        code="I10",
        holds="no instant of a job was fired twice",
        broken="instants fired twice",
        hint=_BUG,
        query=f"""
        SELECT e.job_id FROM {_RECENT_EXECUTIONS} e
         GROUP BY e.job_id, e.scheduled_for HAVING count(*) > 1 LIMIT :examples
        """,
    ),
    Invariant(
        code="states",
        holds="the columns of every execution fit its state",
        broken="executions whose columns do not fit their state",
        hint=_BUG,
        query=f"""
        SELECT e.execution_id || ' (' || e.state || ')' FROM {_RECENT_EXECUTIONS} e
         WHERE (e.state IN ('done', 'dead', 'cancelled', 'skipped')) <> (e.completed_at IS NOT NULL)
            OR (e.state = 'running' AND (e.lease_until IS NULL OR e.worker IS NULL OR e.fence IS NULL))
            OR (e.state <> 'running' AND e.lease_until IS NOT NULL)
            OR (e.state = 'queued' AND e.queue_rank IS NULL)
            OR (e.state = 'waiting' AND e.hold IS NULL AND e.not_before IS NULL)
         LIMIT :examples
        """,
    ),
)


async def window(connection: AsyncConnection, *, now: datetime, patience: timedelta) -> Window:
    """Return the window of a check now; `patience` is how long anything may wait before it is overdue."""
    oldest = (await connection.execute(select(func.min(outbox.c.seq), func.min(outbox.c.created_at)))).one()
    if oldest[0] is None:
        # There is no event to compare with.
        since = now
    elif oldest[0] == 1:
        # Nothing has been pruned yet.
        since = datetime.min.replace(year=1970, tzinfo=now.tzinfo)
    else:
        since = oldest[1] + _PRUNING_BLUR
    return Window(now=now, overdue=now - patience, since=since)


async def examples(connection: AsyncConnection, rule: Invariant, within: Window) -> list[str]:
    """Return some examples that break the rule."""
    rows = await connection.execute(_prepare(rule.query), _arguments(rule.query, within))
    return [str(row[0]) for row in rows]


def _prepare(query: str) -> TextClause:
    times = [bindparam(name, type_=UtcTime()) for name in ("now", "overdue", "since") if f":{name}" in query]
    counts = [bindparam(name, type_=BigInteger()) for name in ("scanned", "examples") if f":{name}" in query]
    return text(query).bindparams(*times, *counts)


def _arguments(query: str, within: Window) -> dict[str, Any]:
    everything = {**asdict(within), "scanned": SCANNED, "examples": _EXAMPLES}
    return {name: value for name, value in everything.items() if f":{name}" in query}
