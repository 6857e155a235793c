"""Small statements that are repeated all the time, on tables that grow.

PostgreSQL keeps the plan of such a statement. One that was made while a table was empty reads all of it later, for as
long as nothing analyses the table. So these statements use the connections of the hot steps, which plan for large
tables, and leave no choice: a range of positions instead of a limit, and lookups row by row.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from .database import Database, PostgresDatabase, SqliteDatabase
from .postgres_connection import Connection

_COLUMNS = "occurred_at, collected_at, data, deleted"
# By the existence of the revision, not of the value: an older revision may have no `occurred_at`.
_EVENT = """
SELECT o.position, o.stream, o.key, o.revision,
       CASE WHEN r.key IS NULL THEN i.occurred_at ELSE r.occurred_at END,
       CASE WHEN r.key IS NULL THEN i.collected_at ELSE r.collected_at END,
       CASE WHEN r.key IS NULL THEN i.data ELSE r.data END,
       CASE WHEN r.key IS NULL THEN i.deleted ELSE r.deleted END,
       i.tenant_id, i.user_id, o.traceparent
  FROM ({rows}) o {joins}
 ORDER BY o.position
"""
_SQLITE_JOINS = """
  JOIN items i ON i.stream = o.stream AND i.key = o.key
  LEFT JOIN item_revisions r ON r.stream = o.stream AND r.key = o.key AND r.revision = o.revision
"""
# LIMIT keeps the planner from joining in another order.
_POSTGRES_JOINS = f"""
 CROSS JOIN LATERAL (
    SELECT {_COLUMNS}, tenant_id, user_id FROM items WHERE stream = o.stream AND key = o.key LIMIT 1) i
  LEFT JOIN LATERAL (
    SELECT key, {_COLUMNS} FROM item_revisions
     WHERE stream = o.stream AND key = o.key AND revision = o.revision LIMIT 1) r ON true
"""


class Planned(NamedTuple):
    """A statement for each database. Parameters are written as ?1, ?2."""

    sqlite: str
    postgresql: str


def plan(statement: str) -> Planned:
    """Return a statement that is the same for both databases."""
    return Planned(statement, statement.replace("?", "$"))


def plan_events(rows: str) -> Planned:
    """Return a statement that reads events with the columns of `unsent_from_row`.

    `rows` is a query of few rows that name them by `position`, `stream`, `key`, `revision` and `traceparent`.
    """
    return Planned(
        _EVENT.format(rows=rows, joins=_SQLITE_JOINS),
        _EVENT.format(rows=rows, joins=_POSTGRES_JOINS).replace("?", "$"),
    )


async def fetch_planned(database: Database, planned: Planned, *arguments: Any) -> Sequence[Sequence[Any]]:
    """Return all rows, with the values of the driver.

    Within a transaction of this task it reads on the connection of the transaction.
    """
    if not isinstance(database, PostgresDatabase) or database.is_writing:
        statement = planned.sqlite if database.dialect == "sqlite" else planned.postgresql
        async with database.reading() as connection:
            return (await connection.exec_driver_sql(statement, arguments)).all()

    async def work(connection: Connection) -> Sequence[Sequence[Any]]:
        return await connection.fetch(planned.postgresql, *arguments)

    return await database.hot("read", work)


async def execute_planned(database: Database, planned: Planned, *arguments: Any) -> int:
    """Change rows and return how many; within a transaction of this task as a part of it."""
    if database.is_writing:
        statement = planned.sqlite if database.dialect == "sqlite" else planned.postgresql
        async with database.writing() as connection:
            return (await connection.exec_driver_sql(statement, arguments)).rowcount
    if isinstance(database, PostgresDatabase):

        async def work(connection: Connection) -> str:
            return await connection.execute(planned.postgresql, *arguments)

        return int((await database.hot("change", work)).rpartition(" ")[2])
    assert isinstance(database, SqliteDatabase)
    return await database.hot("change", lambda connection: connection.execute(planned.sqlite, arguments).rowcount)
