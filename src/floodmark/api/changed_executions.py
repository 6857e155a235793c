"""Executions that may have changed, for the live feed. Table: `executions`, read by its indexes only."""

from collections.abc import Sequence
from datetime import timedelta

from floodmark.model.clock import Clock
from floodmark.model.execution import Execution
from floodmark.model.ids import floor_id
from floodmark.store.database import Database
from floodmark.store.execution_rows import SELECT_EXECUTION, execution_from_row
from floodmark.store.tables import job_executions

# The most executions of each kind; of more only the newest are watched.
MOST_WATCHED = 1000
# Ids begin with their creation time; the clock may be off, or the transaction not committed yet.
_OVERLAP = timedelta(seconds=10)

_e = job_executions.c


async def changed_executions(database: Database, clock: Clock, known: Sequence[str]) -> list[Execution]:
    """Return unfinished executions, those of the last seconds, and those of the `known` ones that have ended."""
    recent = _e.execution_id >= floor_id(clock.now() - _OVERLAP)
    async with database.reading() as connection:
        found = {
            row.execution_id: row
            for which in (recent, _e.completed_at.is_(None))
            for row in await connection.execute(
                SELECT_EXECUTION.where(which).order_by(_e.execution_id.desc()).limit(MOST_WATCHED)
            )
        }
        ended = [execution_id for execution_id in known if execution_id not in found]
        if ended:
            query = SELECT_EXECUTION.where(_e.execution_id.in_(ended[:MOST_WATCHED]))
            found |= {row.execution_id: row for row in await connection.execute(query)}
    return [execution_from_row(found[execution_id]) for execution_id in sorted(found)]
