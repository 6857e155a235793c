"""Write `src/floodmark/store/migrations/new/*.sql`, after a new migration: python tests/new_schemas.py"""

import asyncio
import tempfile
from typing import Any

from sqlalchemy import Engine, event, text

from floodmark.observability.events import Events
from floodmark.store.database import Database, open_database
from floodmark.store.migrate import migrate, newest
from floodmark.store.new_schema import FOLDER, write_new_schema
from servers import Postgres

_DUMP = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' AND name <> 'alembic_version'"
# What changes a schema. All tables of a new database are empty, so statements about rows change nothing.
_CHANGES = ("CREATE", "ALTER", "DROP", "COMMENT")


async def make_statements(database: Database) -> list[str]:
    """Run all migrations on an empty database, and return statements that make the same."""
    run: list[str] = []

    def record(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.strip().startswith(_CHANGES) and "alembic_version" not in statement:
            run.append(statement)

    # Of any engine: long work has one of its own.
    event.listen(Engine, "before_cursor_execute", record)
    try:
        await migrate(database, to=newest())
    finally:
        event.remove(Engine, "before_cursor_execute", record)
    async with database.reading() as connection:
        if database.dialect == "postgresql":
            return run
        return list((await connection.execute(text(f"{_DUMP} ORDER BY rowid"))).scalars())


async def write(url: str) -> None:
    """Write the file of one database."""
    database = open_database(url, events=Events())
    try:
        statements = await make_statements(database)
    finally:
        await database.close()
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{database.dialect}.sql"
    path.write_text(write_new_schema(newest(), statements), encoding="utf-8")
    print(path)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(write(f"sqlite:///{folder}/new.db"))
    with Postgres.start() as server:
        asyncio.run(write(server.create_database("new_schema")))


if __name__ == "__main__":
    main()
