"""Plain deliveries on SQLite: read without the write lock, and written in one transaction."""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime

from floodmark.model.clock import Clock
from floodmark.process.failpoints import OPERATION_POINT, failpoint
from floodmark.store.database import SqliteDatabase, encode_json
from floodmark.store.rows import WORK_SELECT
from floodmark.store.rule_sql import UNDER_WAY
from floodmark.store.types import to_text

from .plain import FACT_COLUMNS, MAY_FIRE, FiredRow, JobFacts, NewDelivery, WantedJobs, facts_from_row

_READ = f"""
SELECT {", ".join(f"j.{name}" for name in FACT_COLUMNS)}, j.{{pattern}}, NULL, NULL,
       EXISTS (SELECT 1 FROM job_dependencies d WHERE d.job_id = j.job_id), {WORK_SELECT}
  FROM jobs j WHERE j.job_id IN (
    SELECT job_id FROM jobs WHERE job_id IN (SELECT value FROM json_each(:texts))
     UNION SELECT job_id FROM jobs WHERE name IN (SELECT value FROM json_each(:texts))
     UNION SELECT job_id FROM jobs WHERE {{pattern}} IN (SELECT value FROM json_each(:patterns)))
"""
# No job names the stream that fires it.
_READS: Mapping[str, str] = {
    "webhook": _READ.format(pattern="trigger_webhook"),
    "channel": _READ.format(pattern="trigger_channel"),
    "stream": _READ.format(pattern="trigger_channel"),
}
_OTHER = f"""
SELECT e.execution_id, e.state FROM executions e INDEXED BY ix_job_executions_active
 WHERE e.job_id = ? AND {UNDER_WAY} ORDER BY e.state = 'running' DESC, e.scheduled_for LIMIT 1
"""
_PLACE = len(FACT_COLUMNS) + 1

_SIGNATURE = "SELECT 1 FROM trigger_deliveries WHERE trigger_id = ? AND signature = ?"
_HAS_TRIGGER = "SELECT 1 FROM triggers WHERE trigger_id = ?"
_MAY_FIRE = f"SELECT 1 FROM jobs j WHERE j.job_id = ? AND {MAY_FIRE}"
_DELIVERY = """
INSERT INTO trigger_deliveries (trigger_id, delivery_id, signature, subject, received_at, answer)
VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_EXECUTION = """
INSERT INTO executions (execution_id, job_id, job_name, scheduled_for, state, priority, trigger, params, reason, hold,
                        queue_rank, created_at, traceparent)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_COUNT = "UPDATE triggers SET fired = fired + 1, matched = matched + ?, last_fired_at = ? WHERE trigger_id = ?"


class SqlitePlainStore:
    """Plain deliveries on SQLite."""

    def __init__(self, database: SqliteDatabase, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def read(self, wanted: WantedJobs) -> list[JobFacts]:
        """Read the jobs, and the execution of each that a new one has to wait for."""
        texts, patterns = encode_json(list(wanted.texts)), encode_json(list(wanted.patterns))

        def work(connection: sqlite3.Connection) -> list[JobFacts]:
            now = self._clock.now()
            rows = connection.execute(_READS[wanted.kind], {"texts": texts, "patterns": patterns}).fetchall()
            found = []
            for row in rows:
                other = connection.execute(_OTHER, (row[0],)).fetchone() or (None, None)
                found.append(facts_from_row((*row[:_PLACE], *other, *row[_PLACE + 2 :]), now))
            return found

        return await self._database.hot_read(work)

    async def find_signatures(self, scopes: Sequence[str], signatures: Sequence[str]) -> set[tuple[str, str]]:
        """Look up the signatures one by one."""
        pairs = list(zip(scopes, signatures, strict=True))

        def work(connection: sqlite3.Connection) -> set[tuple[str, str]]:
            return {pair for pair in pairs if connection.execute(_SIGNATURE, pair).fetchone() is not None}

        return await self._database.hot_read(work)

    async def write(self, new: Sequence[NewDelivery]) -> list[bool]:
        """Write all deliveries in one transaction."""

        def work(connection: sqlite3.Connection) -> list[bool]:
            now = self._clock.now()
            written = [_write(connection, one, now) for one in new]
            failpoint(OPERATION_POINT)
            return written

        try:
            return await self._database.hot("deliver", work)
        except sqlite3.IntegrityError:
            # A job had an execution for the same microsecond. Nothing was written.
            return [False] * len(new)


def _write(connection: sqlite3.Connection, one: NewDelivery, now: datetime) -> bool:
    if one.is_registered and connection.execute(_HAS_TRIGGER, (one.scope,)).fetchone() is None:
        return False
    if any(connection.execute(_MAY_FIRE, (row.job_id,)).fetchone() is None for row in one.executions):
        return False
    stamp = to_text(now)
    delivery = (one.scope, one.delivery_id, one.signature, one.subject, stamp, one.answer)
    if not connection.execute(_DELIVERY, delivery).rowcount:
        return False
    connection.executemany(_EXECUTION, [_execution(row, stamp) for row in one.executions])
    if one.is_registered:
        connection.execute(_COUNT, (len(one.executions), stamp, one.scope))
    return True


def _execution(row: FiredRow, stamp: str) -> tuple[str | int | None, ...]:
    state, hold = ("queued", None) if row.reason is None else ("waiting", "overlap")
    rank = None if row.queue_rank is None else to_text(row.queue_rank)
    named = (row.execution_id, row.job_id, row.job_name, to_text(row.scheduled_for), state, row.priority)
    return (*named, row.trigger, row.params, row.reason, hold, rank, stamp, row.traceparent)
