"""From rows of `executions` to the values the history shows."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import case, func, or_, select

from floodmark.model.execution import Execution, Hold, State
from floodmark.model.job import Priority

from .async_engine import AsyncConnection
from .tables import job_executions

SELECT_EXECUTION = select(*(job_executions.c[name] for name in Execution.__struct_fields__))


def execution_from_row(row: Any) -> Execution:
    """An execution from a row of `SELECT_EXECUTION`."""
    columns = dict(row._mapping)
    columns["state"] = State(columns["state"])
    columns["priority"] = Priority(columns["priority"])
    columns["hold"] = None if columns["hold"] is None else Hold(columns["hold"])
    return Execution(**columns)


async def find_under_way(connection: AsyncConnection, job_ids: Sequence[str]) -> dict[str, Any]:
    """Return, by job, the execution that a new one has to wait for.

    One that is itself held by a pause or a dependency is not waited for: it may be held for ever.
    """
    cell = job_executions.c
    held = or_(cell.hold.is_(None), cell.hold == Hold.OVERLAP)
    most_lasting = case((cell.state == State.RUNNING, 0), else_=1)
    place = func.row_number().over(partition_by=cell.job_id, order_by=(most_lasting, cell.scheduled_for))
    ranked = (
        select(cell.job_id, cell.execution_id, cell.state, place.label("place"))
        .where(cell.job_id.in_(job_ids), cell.completed_at.is_(None), held)
        .subquery()
    )
    rows = await connection.execute(select(ranked).where(ranked.c.place == 1))
    return {row.job_id: row for row in rows}
