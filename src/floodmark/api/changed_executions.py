"""Executions that have changed, for the live feed. Table: `executions`, read by its indexes only.

Unfinished ones are read state by state, each in the order of its own index: in the order of ids SQLite would read the
whole history, because it takes the condition for a common one.
"""

import sys
from datetime import timedelta
from typing import Any

from sqlalchemy import Select, bindparam, literal, select, type_coerce, union_all
from sqlalchemy.types import NullType

from floodmark.model.clock import Clock
from floodmark.model.execution import ENDED, Execution, State
from floodmark.model.ids import floor_id
from floodmark.store.database import Database
from floodmark.store.execution_rows import SELECT_EXECUTION, read_executions
from floodmark.store.tables import job_executions

# The most executions of each kind; of more unfinished ones only those that come next are watched.
MOST_WATCHED = 1000
# Ids begin with their creation time; the clock may be off, or the transaction not committed yet.
_OVERLAP = timedelta(seconds=10)

_e = job_executions.c
_NEXT = {State.RUNNING: _e.lease_until, State.QUEUED: _e.queue_rank, State.WAITING: _e.not_before}
# As the driver returns them: most are only compared with those of the last time. A renewed lease is not a change.
_COMPARED = tuple(name for name in Execution.__struct_fields__ if name not in ("execution_id", "state", "lease_until"))
_MARKS = select(_e.execution_id, _e.state, *(type_coerce(_e[name], NullType()).label(name) for name in _COMPARED))


class ChangedExecutions:
    """Finds the executions that have changed since the last call."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._marks: dict[str, Any] | None = None

    async def next(self, most: int = sys.maxsize) -> list[Execution]:
        """Return the newest `most` executions that are new or different, oldest first; at the first call none."""
        before = self._marks
        marks = self._marks = await self._read_marks(before or {})
        if before is None:
            return []
        changed = sorted(execution_id for execution_id, mark in marks.items() if before.get(execution_id) != mark)
        query = SELECT_EXECUTION.where(_e.execution_id.in_(changed[-most:])).order_by(_e.execution_id)
        return await read_executions(self._database, query) if changed else []

    async def _read_marks(self, before: dict[str, Any]) -> dict[str, Any]:
        """Return, by id, all columns of unfinished executions, those of the last seconds, and those that have ended."""
        since = floor_id(self._clock.now() - _OVERLAP)
        async with self._database.reading() as connection:
            found = {row[0]: row for row in await connection.execute(_TOGETHER, {"since": since})}
            ended = [name for name, mark in before.items() if mark[1] not in ENDED and name not in found]
            if ended:
                query = _MARKS.where(_e.execution_id.in_(ended[:MOST_WATCHED]))
                found |= {row[0]: row for row in await connection.execute(query)}
        return found


def unfinished_queries() -> list[Select[Any]]:
    """Return a query for each state of an unfinished execution."""
    return [
        _MARKS.where(_e.state == literal(state, literal_execute=True)).order_by(column).limit(MOST_WATCHED)
        for state, column in _NEXT.items()
    ]


_NEWEST = _MARKS.where(_e.execution_id >= bindparam("since")).order_by(_e.execution_id.desc()).limit(MOST_WATCHED)
# One round trip instead of four, made once: to describe a statement takes longer than to run it.
_TOGETHER = union_all(*(select(query.subquery()) for query in (_NEWEST, *unfinished_queries())))
