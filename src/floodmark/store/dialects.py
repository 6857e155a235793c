"""The SQL expressions that differ between SQLite and PostgreSQL."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Date,
    DateTime,
    Float,
    Table,
    Text,
    and_,
    cast,
    exists,
    func,
    literal_column,
    select,
    type_coerce,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.selectable import TableValuedAlias

from floodmark.model.clock import Clock
from floodmark.process.lazy import LazyModule

from .async_engine import AsyncConnection
from .database import Database
from .tables import job_executions
from .types import Json, UtcTime

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql
else:
    # Only PostgreSQL needs it.
    postgresql = LazyModule("sqlalchemy.dialects.postgresql")

T = TypeVar("T")

# Every database accepts this many parameters in one statement, with room to spare.
_PARAMETERS = 500


def present(database: Database, clock: Clock, after: timedelta = timedelta()) -> ColumnElement[Any]:
    """Return the present time, or `after` it, as an expression.

    PostgreSQL uses the clock of the database; SQLite, which runs on one machine, the clock of the process.
    """
    if database.dialect != "postgresql":
        return type_coerce(clock.now() + after, UtcTime())
    now = func.clock_timestamp(type_=DateTime(timezone=True))
    return type_coerce(now + after if after else now, UtcTime())


async def present_moment(database: Database, clock: Clock, connection: AsyncConnection) -> datetime:
    """Return the same time as a value."""
    if database.dialect != "postgresql":
        return clock.now()
    found: datetime = (await connection.execute(select(present(database, clock)))).scalar_one()
    return found


def seconds_between(database: Database, begin: ColumnElement[Any], end: ColumnElement[Any]) -> ColumnElement[float]:
    """Return the seconds between two times."""
    if database.dialect == "postgresql":
        # Coerced, because SQLAlchemy takes our own type for text, which cannot be subtracted.
        first, last = (type_coerce(moment, DateTime(timezone=True)) for moment in (begin, end))
        return cast(func.extract("epoch", last - first), Float)
    return (func.julianday(end, type_=Float()) - func.julianday(begin, type_=Float())) * 86_400.0


def minute_of(database: Database, moment: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the beginning of the minute of a time."""
    if database.dialect == "postgresql":
        return func.date_trunc("minute", moment, type_=UtcTime())
    return type_coerce(func.substr(moment, 1, 16, type_=Text()) + ":00.000000+00:00", UtcTime())


def utc_day(database: Database, moment: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the UTC day of a time."""
    if database.dialect == "postgresql":
        return cast(func.timezone("UTC", moment), Date)
    return type_coerce(func.substr(moment, 1, 10), Date())


def insert_into(database: Database, table: Table) -> Any:
    """Return an INSERT that supports ON CONFLICT."""
    return postgresql.insert(table) if database.dialect == "postgresql" else sqlite.insert(table)


def json_has(database: Database, column: Column[Any], entry: str) -> ColumnElement[bool]:
    """Return the condition that a JSON list contains a text."""
    if database.dialect == "postgresql":
        return type_coerce(column, postgresql.JSONB()).contains([entry])
    entries = func.json_each(cast(column, Text)).table_valued("value")
    found = exists(select(1).select_from(entries).where(entries.c.value == entry))
    # Most lists do not have the letters, and need not be parsed. JSON writes other characters in several ways.
    is_plain = entry.isascii() and entry.isprintable() and not {'"', "\\", "/"}.intersection(entry)
    return and_(func.instr(cast(column, Text), entry) > 0, found) if is_plain else found


def fits_pattern(database: Database, column: ColumnElement[Any], pattern: str) -> ColumnElement[bool]:
    """Return the condition that a text fits a pattern, in which `*` stands for any text and `?` for one character."""
    if database.dialect == "postgresql":
        escaped = pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return column.like(escaped.replace("*", "%").replace("?", "_"), escape="\\")
    # Not LIKE, which ignores case on SQLite.
    return column.op("GLOB", is_comparison=True)(pattern.replace("[", "[[]"))


def json_entries(database: Database, column: Column[Any]) -> TableValuedAlias:
    """Return the entries of a JSON list of texts: a table with the column `value`, to be joined to its row."""
    if database.dialect == "postgresql":
        return func.jsonb_array_elements_text(column).table_valued("value").render_derived()
    return func.json_each(cast(column, Text)).table_valued("value")


def raw(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return a JSON column as undecoded text. Other columns stay as they are."""
    # A cast, not a coercion: the PostgreSQL driver decodes JSON before SQLAlchemy sees it.
    return cast(column, Text) if isinstance(column.type, type(Json)) else column


def chunks(values: Sequence[T], size: int = _PARAMETERS) -> Iterator[Sequence[T]]:
    """Yield the values in chunks that fit into one statement as parameters."""
    return (values[start : start + size] for start in range(0, len(values), size))


def is_unfinished(dialect: str, job_ids: Sequence[str]) -> ColumnElement[bool]:
    """Return the condition that an execution of one of the jobs has not ended, by the index of unfinished ones."""
    cell = job_executions.c
    of_job = literal_column("executions.job_id || ''", Text) if dialect == "postgresql" else cell.job_id
    return and_(of_job.in_(job_ids), cell.completed_at.is_(None))
