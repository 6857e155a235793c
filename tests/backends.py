"""Stores that are ready for use, made quickly: migrated once a run, then copied or wiped for each test.

    sqlite, postgres_only, redis_on_postgres, redis_on_sqlite     how to open resources on them, as `Opened`

Every test may ask for these fixtures. The schema of `pg_clean` is the same for all: who changes it puts it back.
"""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from floodmark.model.clock import Clock
from floodmark.observability.events import Events
from floodmark.settings import Settings
from floodmark.store.database import open_database
from floodmark.store.migrate import migrate
from floodmark.store.schema import load_metadata, postgres_metadata
from floodmark.testing.factories import Opened
from floodmark.wiring.resources import Resources, open_resources
from servers import Postgres

# Not TRUNCATE, which makes every file anew. Numbers begin at 1 again, as in a database of one's own.
_WIPE = "; ".join(
    [
        "SET statement_timeout = '20s'",
        *(f"DELETE FROM {table.name}" for table in reversed(load_metadata().sorted_tables)),
        *(f"DELETE FROM {table.name}" for table in postgres_metadata.sorted_tables),
        "SELECT setval(oid, 1, false) FROM pg_class WHERE relkind = 'S'",
        # Otherwise the server counts the rows that were read here up to ten seconds later, in the middle of a test.
        "SELECT pg_stat_force_next_flush()",
    ]
)


@pytest.fixture(scope="session")
def migrated_postgres(postgres: Postgres) -> Iterator[str]:
    """The URL of a database with the newest schema and nothing in it."""
    name = f"migrated_{uuid4().hex[:12]}"
    url = postgres.create_database(name)
    _migrate(url)
    yield url
    postgres.drop_database(name)


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the newest schema and nothing in it."""
    path = tmp_path_factory.mktemp("template") / "floodmark.db"
    _migrate(f"sqlite:///{path}")
    return path


@pytest.fixture
def sqlite_copy(migrated_sqlite: Path, tmp_path: Path) -> str:
    """The URL of a migrated SQLite database."""
    return f"sqlite:///{shutil.copy(migrated_sqlite, tmp_path / 'floodmark.db')}"


@pytest.fixture(scope="session")
def wipe_postgres(migrated_postgres: str) -> Iterator[Callable[[], None]]:
    """Remove every row of `migrated_postgres`, on one connection that stays: a new one costs as much as the work."""
    loop = asyncio.new_event_loop()
    connection: asyncpg.Connection | None = None

    async def wipe() -> None:
        nonlocal connection
        # A test may have restarted the server.
        if connection is None or connection.is_closed():
            connection = await asyncpg.connect(migrated_postgres)
        await connection.execute(_WIPE)

    yield lambda: loop.run_until_complete(wipe())
    if connection is not None:
        loop.run_until_complete(connection.close())
    loop.close()


@pytest.fixture
def pg_clean(migrated_postgres: str, wipe_postgres: Callable[[], None]) -> Iterator[str]:
    """The URL of a migrated PostgreSQL database without a row. Wiping one takes a tenth of copying one."""
    yield migrated_postgres
    wipe_postgres()


@pytest.fixture
def sqlite(sqlite_copy: str) -> Opened:
    return opening(sqlite_copy)


@pytest.fixture
def postgres_only(pg_clean: str) -> Opened:
    return opening(pg_clean)


@pytest.fixture
def redis_on_postgres(pg_clean: str, redis_url: str) -> Opened:
    return opening(pg_clean, redis_url)


@pytest.fixture
def redis_on_sqlite(sqlite_copy: str, redis_url: str) -> Opened:
    return opening(sqlite_copy, redis_url)


def opening(database_url: str, redis_url: str | None = None) -> Opened:
    def opened(
        *, clock: Clock | None = None, events: Events | None = None, **settings: Any
    ) -> AbstractAsyncContextManager[Resources]:
        chosen = Settings(**{"database_url": database_url, "redis_url": redis_url, "hostname": "test", **settings})
        return open_resources(chosen, clock=clock, events=events)

    return opened


def _migrate(url: str) -> None:
    async def work() -> None:
        database = open_database(url, events=Events())
        try:
            await migrate(database)
        finally:
            await database.close()

    asyncio.run(work())
