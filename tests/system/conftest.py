"""An open, migrated database of each kind, and the cold half of the store on it."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from floodmark.clock import SystemClock
from floodmark.store.database import open_database
from floodmark.store.history import History
from floodmark.store.jobs import Jobs
from floodmark.store.migrate import migrate
from floodmark.telemetry.events import Events
from servers import Postgres
from system.stores import AnyDatabase, Crew

_TEMPLATE = f"floodmark_template_{uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def migrated(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A database of each kind with the newest schema, to be copied: that is quicker than to migrate each."""
    urls = {
        "sqlite": f"sqlite:///{tmp_path_factory.mktemp('template')}/floodmark.db",
        "postgresql": postgres.create_database(_TEMPLATE),
    }
    for url in urls.values():
        asyncio.run(_migrate(url))
    yield urls
    postgres.drop_database(_TEMPLATE)


async def _migrate(url: str) -> None:
    opened = open_database(url, events=Events())
    await migrate(opened)
    await opened.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """The URL of a database that is still empty."""
    fixture = "sqlite_url" if request.param == "sqlite" else "pg_url"
    return str(request.getfixturevalue(fixture))


@pytest.fixture
async def empty_database(database_url: str) -> AsyncIterator[AnyDatabase]:
    """An open database without any tables."""
    opened = open_database(database_url, events=Events(), pool_max=12)
    yield opened
    await opened.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def migrated_url(
    request: pytest.FixtureRequest, migrated: dict[str, str], postgres: Postgres, tmp_path: Path
) -> Iterator[str]:
    """The URL of a database with the newest schema that no other test sees."""
    if request.param == "sqlite":
        shutil.copy(migrated["sqlite"].removeprefix("sqlite:///"), tmp_path / "floodmark.db")
        yield f"sqlite:///{tmp_path}/floodmark.db"
    else:
        name = f"floodmark_{uuid4().hex[:12]}"
        yield postgres.create_database(name, template=_TEMPLATE)
        postgres.drop_database(name)


@pytest.fixture
async def database(migrated_url: str) -> AsyncIterator[AnyDatabase]:
    """An open database with the newest schema."""
    opened = open_database(migrated_url, events=Events(), pool_max=12)
    yield opened
    await opened.close()


@pytest.fixture
def jobs(database: AnyDatabase) -> Jobs:
    return Jobs(database, SystemClock())


@pytest.fixture
def history(database: AnyDatabase) -> History:
    return History(database, SystemClock())


@pytest.fixture
def crew(database: AnyDatabase) -> Crew:
    """Workers and the leader, as far as the store knows them."""
    return Crew(database)
