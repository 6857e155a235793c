"""Ends the wait of executions when a person has lifted what they wait for. Table: `executions`.

They remember how long and why, not under which key. One that is woken although something else still holds it meets
that at once, without a call, and waits again.
"""

from datetime import datetime

from sqlalchemy import ColumnElement, update

from floodmark.model.execution import State
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.tables import job_executions


async def end_waits(connection: AsyncConnection, which: ColumnElement[bool], now: ColumnElement[datetime]) -> None:
    """Let those of the executions that wait for a time wait no longer; the leader queues them with its next look."""
    cell = job_executions.c
    waiting = update(job_executions).where(cell.state == State.WAITING, cell.hold.is_(None), cell.not_before > now)
    await connection.execute(waiting.where(which).values(not_before=now))
