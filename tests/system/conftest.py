"""An open, migrated database of each kind, and the cold half of the store on it."""

from collections.abc import AsyncIterator

import pytest

from floodmark.model.clock import SystemClock
from floodmark.observability.events import Events
from floodmark.repositories.history import ExecutionHistory
from floodmark.repositories.jobs import Jobs
from floodmark.store.database import open_database
from system.stores import AnyDatabase, Crew


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
def migrated_url(request: pytest.FixtureRequest) -> str:
    """The URL of a database with the newest schema and nothing in it. The schema must stay as it is."""
    return str(request.getfixturevalue("sqlite_copy" if request.param == "sqlite" else "pg_clean"))


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
def history(database: AnyDatabase) -> ExecutionHistory:
    return ExecutionHistory(database, SystemClock())


@pytest.fixture
def crew(database: AnyDatabase) -> Crew:
    """Workers and the leader, as far as the store knows them."""
    return Crew(database)
