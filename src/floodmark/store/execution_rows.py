"""Rows of `executions` as values."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Select, case, func, or_, select

from floodmark.model.execution import Execution, Hold, Queued, State
from floodmark.model.job import Priority

from .async_engine import AsyncConnection
from .database import Database
from .dialects import is_unfinished
from .tables import job_executions

SELECT_EXECUTION = select(*(job_executions.c[name] for name in Execution.__struct_fields__))

_UNREADABLE_SHOWN = 200


def execution_from_row(row: Any) -> Execution:
    """Return an execution from a row of `SELECT_EXECUTION`."""
    columns = dict(row._mapping)
    columns["state"] = State(columns["state"])
    columns["priority"] = Priority(columns["priority"])
    columns["hold"] = None if columns["hold"] is None else Hold(columns["hold"])
    if isinstance(columns["params"], str):
        # Nested too deeply: an unreadable value comes as its text.
        columns["params"] = {"unreadable": columns["params"][:_UNREADABLE_SHOWN]}
    return Execution(**columns)


async def read_executions(database: Database, query: Select[Any]) -> list[Execution]:
    """Return the executions of a query that is made of `SELECT_EXECUTION`."""
    async with database.reading() as connection:
        return [execution_from_row(row) for row in await connection.execute(query)]


def queued_from_rows(rows: Iterable[Sequence[Any]]) -> list[Queued]:
    """Return executions to put on the queue, from rows that start with id and priority and end with traceparent."""
    return [Queued(row[0], Priority(row[1]), row[-1]) for row in rows]


async def find_under_way(connection: AsyncConnection, job_ids: Sequence[str]) -> dict[str, Any]:
    """Return, by job, the execution that a new one has to wait for.

    Executions held by a pause or a dependency do not count, because they may be held for ever.
    """
    cell = job_executions.c
    counts = or_(cell.hold.is_(None), cell.hold == Hold.OVERLAP)
    running_first = case((cell.state == State.RUNNING, 0), else_=1)
    place = func.row_number().over(partition_by=cell.job_id, order_by=(running_first, cell.scheduled_for))
    ranked = (
        select(cell.job_id, cell.execution_id, cell.state, place.label("place"))
        .where(is_unfinished(connection.dialect.name, job_ids), counts)
        .subquery()
    )
    rows = await connection.execute(select(ranked).where(ranked.c.place == 1))
    return {row.job_id: row for row in rows}
