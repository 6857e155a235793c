"""What has changed since the last look, for those who watch. Table: `executions`, read through its indexes only."""

from collections.abc import Sequence
from datetime import timedelta

from floodmark.model.clock import Clock
from floodmark.model.execution import Execution
from floodmark.model.ids import floor_id
from floodmark.store.database import Database
from floodmark.store.execution_rows import SELECT_EXECUTION, execution_from_row
from floodmark.store.tables import job_executions

# So many of each kind are looked at; who has more than that under way sees the newest.
MOST_WATCHED = 1000
# Ids begin with the time at which a process made them; by then its clock may be off, or its transaction unfinished.
_OVERLAP = timedelta(seconds=10)

_e = job_executions.c


class Watching:
    """Looks at executions that can have changed."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def executions(self, known: Sequence[str]) -> list[Execution]:
        """Those that are unfinished, those made in the last seconds, and of the `known` ones those that have ended."""
        recent = _e.execution_id >= floor_id(self._clock.now() - _OVERLAP)
        async with self._database.reading() as connection:
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
