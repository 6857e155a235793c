"""The few things that SQLite and PostgreSQL say differently in statements that are otherwise the same."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, ColumnElement, DateTime, Float, Table, Text, cast, exists, func, select, type_coerce
from sqlalchemy.dialects import sqlite

from floodmark.model.clock import Clock
from floodmark.process.lazy import LazyModule

from .async_engine import AsyncConnection
from .database import Database
from .types import Json, UtcTime

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql
else:
    # Only PostgreSQL needs it.
    postgresql = LazyModule("sqlalchemy.dialects.postgresql")


def present(database: Database, clock: Clock, after: timedelta = timedelta()) -> ColumnElement[Any]:
    """The present moment inside a statement, or `after` it.

    It is that of the database or, SQLite being one machine, of the process.
    """
    if database.dialect != "postgresql":
        return type_coerce(clock.now() + after, UtcTime())
    now = func.clock_timestamp(type_=DateTime(timezone=True))
    return type_coerce(now + after if after else now, UtcTime())


async def present_moment(database: Database, clock: Clock, connection: AsyncConnection) -> datetime:
    """The same moment as a value."""
    if database.dialect != "postgresql":
        return clock.now()
    found: datetime = (await connection.execute(select(present(database, clock)))).scalar_one()
    return found


def seconds_between(database: Database, begin: ColumnElement[Any], end: ColumnElement[Any]) -> ColumnElement[float]:
    """How many seconds lie between two moments."""
    if database.dialect == "postgresql":
        # Said plainly: SQLAlchemy takes our own type of moments for text, which cannot be subtracted.
        first, last = (type_coerce(moment, DateTime(timezone=True)) for moment in (begin, end))
        return cast(func.extract("epoch", last - first), Float)
    return (func.julianday(end, type_=Float()) - func.julianday(begin, type_=Float())) * 86_400.0


def insert_into(database: Database, table: Table) -> Any:
    """An INSERT that knows ON CONFLICT."""
    return postgresql.insert(table) if database.dialect == "postgresql" else sqlite.insert(table)


def json_has(database: Database, column: Column[Any], entry: str) -> ColumnElement[bool]:
    """Whether a JSON list holds a text."""
    if database.dialect == "postgresql":
        return type_coerce(column, postgresql.JSONB()).contains([entry])
    entries = func.json_each(cast(column, Text)).table_valued("value")
    return exists(select(1).select_from(entries).where(entries.c.value == entry))


def raw(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """A JSON column as its text: decoded by whoever knows what it holds. Other columns stay as they are."""
    # A cast, not a coercion: the driver of PostgreSQL decodes JSON before SQLAlchemy sees it.
    return cast(column, Text) if isinstance(column.type, type(Json)) else column
