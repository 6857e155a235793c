"""A process that is frozen in the middle of a transaction holds its locks on PostgreSQL, but not for long."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from floodmark.observability.events import StoreRetried
from floodmark.repositories.jobs import Jobs
from floodmark.store.database import PostgresDatabase
from floodmark.testing.factories import Opened, given_job
from floodmark.wiring.resources import Resources

pytest_plugins = ("backends",)


@pytest.fixture
async def resources(postgres_only: Opened) -> AsyncIterator[Resources]:
    async with postgres_only() as resources:
        yield resources


@pytest.mark.spec("G8", "E1")
async def test_others_wait_for_longer_than_it_can_keep_its_locks(resources: Resources) -> None:
    """They get what they want, and its step is done again when it wakes up."""
    await given_job(resources, name="news")
    jobs, database = Jobs(resources.database, resources.clock), resources.database
    assert isinstance(database, PostgresDatabase)
    is_locked, wakes_up, retried = asyncio.Event(), asyncio.Event(), list[StoreRetried]()
    resources.events.listen(StoreRetried, retried.append)

    async def stand_still(connection: Any) -> str:
        async with connection.transaction():
            await connection.execute("SELECT 1 FROM jobs FOR UPDATE")
            is_locked.set()
            await wakes_up.wait()
            return str(await connection.fetchval("SELECT name FROM jobs WHERE paused"))

    standing = asyncio.create_task(database.hot("fire", stand_still))
    await is_locked.wait()
    await jobs.pause(await jobs.get("news"), "too many posts")
    wakes_up.set()

    assert await standing == "news"
    assert [event.operation for event in retried] == ["fire"]


@pytest.mark.spec("G8")
async def test_a_connection_that_the_server_ended_between_two_statements_is_replaced(resources: Resources) -> None:
    """As it does with one that stands still in a transaction for too long."""

    async def ask_after_the_end() -> None:
        async with resources.database.reading() as connection:
            pid = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            other = await asyncpg.connect(resources.settings.database_url)
            await other.execute("SELECT pg_terminate_backend($1)", pid)
            await other.close()
            await connection.execute(text("SELECT 1"))

    with pytest.raises(DBAPIError) as lost:
        await ask_after_the_end()
    assert lost.value.connection_invalidated
    async with resources.database.reading() as connection:
        assert (await connection.execute(text("SELECT 1"))).scalar_one() == 1
