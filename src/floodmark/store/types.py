"""Column types for SQLite and PostgreSQL."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, Integer, String
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine


def to_text(moment: datetime) -> str:
    """Return a time as UTC text of fixed width: it sorts by time, and SQLite's date functions can read it."""
    return (moment if moment.tzinfo is UTC else moment.astimezone(UTC)).isoformat(sep=" ", timespec="microseconds")


def from_text(text: str) -> datetime:
    """Return the time of a text, also of one typed by hand. Without a zone it is UTC."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is UTC:
        return moment
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


class UtcTime(TypeDecorator[datetime]):
    """`timestamptz` on PostgreSQL, sortable UTC text on SQLite; aware UTC in Python."""

    impl = String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the column type of the database."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(DateTime(timezone=True))
        return dialect.type_descriptor(String(32))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """Write an aware time."""
        return value if value is None or dialect.name == "postgresql" else to_text(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Read a time as aware UTC."""
        if value is None:
            return None
        return value.astimezone(UTC) if isinstance(value, datetime) else from_text(value)


class _JsonColumn(TypeDecorator[Any]):
    """`jsonb` on PostgreSQL, JSON text on SQLite."""

    impl = JSON
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Choose the column type of the database."""
        if dialect.name == "postgresql":
            from sqlalchemy.dialects.postgresql import JSONB  # noqa: PLC0415 - SQLite does without the package

            return dialect.type_descriptor(JSONB(none_as_null=True))
        return dialect.type_descriptor(JSON(none_as_null=True))


Json = _JsonColumn(none_as_null=True)

# SQLite numbers rows automatically only in a column of this type.
Serial = BigInteger().with_variant(Integer, "sqlite")


class now_text(FunctionElement[Any]):  # noqa: N801 - reads as the SQL function it is
    """The present time of the database, in the format of `UtcTime`."""

    inherit_cache = True


class new_id(FunctionElement[Any]):  # noqa: N801 - reads as the SQL function it is
    """A random id made by the database, for rows inserted by hand."""

    inherit_cache = True


SQLITE_NOW = "strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')"


def _define(function: type[FunctionElement[Any]], **sql: str) -> None:
    for dialect, text in sql.items():
        compiles(function, dialect)(lambda element, compiler, text=text, **options: text)


_define(now_text, sqlite=f"({SQLITE_NOW})", postgresql="clock_timestamp()")
# Not gen_random_uuid(): PostgreSQL 12 has it only as an extension.
_define(new_id, sqlite="(lower(hex(randomblob(16))))", postgresql="md5(random()::text || clock_timestamp()::text)")
