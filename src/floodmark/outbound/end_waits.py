"""Wakes waiting executions when a person has cleared a limit or reset a breaker. Table: `executions`.

An execution stores the reason for its wait, not the key of the limit. One that is woken while another limit still
applies is refused by it without a call and waits again.
"""

from datetime import datetime

from sqlalchemy import ColumnElement, update

from floodmark.model.execution import State
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.tables import job_executions


async def end_waits(connection: AsyncConnection, which: ColumnElement[bool], now: ColumnElement[datetime]) -> None:
    """End the wait of the executions that match `which`; the leader queues them in its next step."""
    cell = job_executions.c
    waiting = update(job_executions).where(cell.state == State.WAITING, cell.hold.is_(None), cell.not_before > now)
    await connection.execute(waiting.where(which).values(not_before=now))
