"""Tables of other programs that a user names. Names in statements come from the database's own catalogue."""

from collections.abc import Sequence
from difflib import get_close_matches

from sqlalchemy import Connection, TableClause, column, inspect, table
from sqlalchemy.sql import quoted_name

from floodmark.errors import InvalidInput
from floodmark.store.async_engine import AsyncConnection

_SHOWN = 20


async def find_table(connection: AsyncConnection, name: str, columns: Sequence[str]) -> TableClause:
    """Return the table or view of this name (or `schema.name`) with these columns; `InvalidInput` lists the existing
    ones.
    """
    return await connection.run_sync(_find, name, columns)


def _find(connection: Connection, name: str, columns: Sequence[str]) -> TableClause:
    inspector = inspect(connection)
    schema: str | None = None
    there = [*inspector.get_table_names(), *inspector.get_view_names()]
    before, dot, after = name.rpartition(".")
    if name not in there and dot and before in inspector.get_schema_names():
        schema, name = before, after
        there = [*inspector.get_table_names(schema), *inspector.get_view_names(schema)]
    if name not in there:
        raise InvalidInput(f"there is no table {name[:60]!r}", hint=_instead(name, there))
    found = {str(entry["name"]): entry["type"] for entry in inspector.get_columns(name, schema)}
    for wanted in columns:
        if wanted not in found:
            raise InvalidInput(f"the table {name} has no column {wanted[:60]!r}", hint=_instead(wanted, list(found)))
    return table(
        quoted_name(name, quote=True),
        *(column(quoted_name(wanted, quote=True), found[wanted]) for wanted in columns),
        schema=None if schema is None else quoted_name(schema, quote=True),
    )


def _instead(name: str, there: Sequence[str]) -> str:
    close = get_close_matches(name, there, n=3)
    if close:
        return f"did you mean {', '.join(close)}?"
    more = ", ..." if len(there) > _SHOWN else ""
    return f"there are: {', '.join(sorted(there)[:_SHOWN])}{more}" if there else "there are none"
