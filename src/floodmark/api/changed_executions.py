"""Executions that may have changed, for the live feed. Table: `executions`, read by its indexes only.

Unfinished ones are read state by state, each in the order of its own index: in the order of ids SQLite would read the
whole history, because it takes the condition for a common one.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Select, literal

from floodmark.model.clock import Clock
from floodmark.model.execution import Execution, State
from floodmark.model.ids import floor_id
from floodmark.store.database import Database
from floodmark.store.execution_rows import SELECT_EXECUTION, execution_from_row
from floodmark.store.tables import job_executions

# The most executions of each kind; of more unfinished ones only those that come next are watched.
MOST_WATCHED = 1000
# Ids begin with their creation time; the clock may be off, or the transaction not committed yet.
_OVERLAP = timedelta(seconds=10)

_e = job_executions.c
_NEXT = {State.RUNNING: _e.lease_until, State.QUEUED: _e.queue_rank, State.WAITING: _e.not_before}


async def changed_executions(database: Database, clock: Clock, known: Sequence[str]) -> list[Execution]:
    """Return unfinished executions, those of the last seconds, and those of the `known` ones that have ended."""
    recent = _e.execution_id >= floor_id(clock.now() - _OVERLAP)
    newest = SELECT_EXECUTION.where(recent).order_by(_e.execution_id.desc()).limit(MOST_WATCHED)
    async with database.reading() as connection:
        found = {
            row.execution_id: row
            for query in (newest, *unfinished_queries())
            for row in await connection.execute(query)
        }
        ended = [execution_id for execution_id in known if execution_id not in found]
        if ended:
            query = SELECT_EXECUTION.where(_e.execution_id.in_(ended[:MOST_WATCHED]))
            found |= {row.execution_id: row for row in await connection.execute(query)}
    return [execution_from_row(found[execution_id]) for execution_id in sorted(found)]


def unfinished_queries() -> list[Select[Any]]:
    """Return a query for each state of an unfinished execution."""
    return [
        SELECT_EXECUTION.where(_e.state == literal(state, literal_execute=True)).order_by(column).limit(MOST_WATCHED)
        for state, column in _NEXT.items()
    ]
