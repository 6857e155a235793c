"""Connections that fall silent without a reset: every step ends in time, and the next one works."""

import asyncio
import select
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from redis.exceptions import RedisError
from sqlalchemy import make_url, text
from sqlalchemy.exc import SQLAlchemyError

from backends import opening
from command_line import CommandLine
from command_line import eventually as sooner_or_later
from faulty_proxy import DOWN, FaultyProxy
from floodmark.coordination.signals.port import Topic
from floodmark.errors import Unavailable
from floodmark.model.execution import State
from floodmark.model.outcome import Done
from floodmark.observability.events import Events
from floodmark.process.forced_exit import MARGIN
from floodmark.settings import Settings
from floodmark.store.database import PostgresDatabase, open_database
from floodmark.store.postgres_connection import PostgresConnector
from floodmark.store.tables import job_executions
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import given_queued, rows_of, settle, take
from floodmark.wiring.resources import Resources
from servers import Postgres

# The shortest time that a step may take; two of them, and what a busy machine adds.
SHORT: dict[str, Any] = {"execution_lease": timedelta(seconds=9), "scheduler_leader_ttl": timedelta(seconds=9)}
STEP = Settings(**SHORT).step_timeout.total_seconds()
AT_MOST = 2 * STEP + 60
FAILED = (Unavailable, OSError, SQLAlchemyError, RedisError, asyncpg.PostgresError, asyncpg.InterfaceError)


@contextmanager
def cut_off(*urls: str) -> Iterator[list[FaultyProxy]]:
    proxies = [FaultyProxy(url).__enter__() for url in urls]
    try:
        yield proxies
    finally:
        for proxy in proxies:
            proxy.__exit__()


async def ended(step: Callable[[], Awaitable[Any]]) -> float:
    """How long a step took, whether it went well or not."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(120):
            await step()
    except FAILED:
        pass
    return time.monotonic() - began


async def read(resources: Resources) -> None:
    async with resources.database.reading() as connection:
        await connection.execute(text("SELECT count(*) FROM jobs"))


async def write(resources: Resources) -> None:
    async with resources.database.writing() as connection:
        await connection.execute(text("DELETE FROM jobs WHERE name = 'nobody'"))


async def ping(resources: Resources) -> None:
    assert resources.redis is not None
    await resources.redis.ping()


def steps(resources: Resources) -> list[Callable[[], Awaitable[Any]]]:
    """One step on each way to the servers."""
    return [
        lambda: resources.signals.notify(Topic.JOBS),
        lambda: read(resources),
        lambda: write(resources),
        lambda: ping(resources),
        resources.queue.depth,
        lambda: resources.leases.acquire("leader", holder="a", ttl=timedelta(seconds=9)),
    ]


@pytest.mark.spec("G2", "E1")
async def test_every_step_ends_in_time_when_connections_fall_silent(pg_clean: str, redis_url: str) -> None:
    """Open connections vanish while new ones work, then new ones too; healed, everything works at once."""
    with cut_off(pg_clean, redis_url) as (postgres, valkey):
        async with opening(postgres.url, valkey.url)(**SHORT) as resources, opening(pg_clean)() as other:
            bell = resources.signals.bell(Topic.WORKERS)
            for step in steps(resources):
                await step()
            for new in (False, True):
                postgres.swallow(new=new)
                valkey.swallow(new=new)
                took = await asyncio.gather(*(ended(step) for step in steps(resources)))
                assert max(took) < AT_MOST, took
            postgres.heal()
            valkey.heal()
            for step in steps(resources):
                await eventually(lambda step=step: went_well(step))  # type: ignore[misc]
            # The connection that listens was replaced as well.
            await bell.wait(timedelta())

            async def heard() -> bool:
                await other.signals.notify(Topic.WORKERS)
                return await bell.wait(timedelta(seconds=1))

            await eventually(heard)


async def went_well(step: Callable[[], Awaitable[Any]]) -> bool:
    try:
        await step()
    except FAILED:
        return False
    return True


@pytest.mark.spec("G3", "G2")
async def test_a_worker_settles_soon_after_its_connections_fell_silent(pg_clean: str) -> None:
    """The outcome is written on a new connection; an answer that was lost is found to be written already."""
    with FaultyProxy(pg_clean) as proxy:
        async with opening(proxy.url)(**SHORT) as resources:
            faults: list[Callable[[], None]] = [
                proxy.swallow,
                lambda: proxy.swallow(DOWN),
                lambda: proxy.lose_reply_to(b"COMMIT"),
            ]
            for fall_silent in faults:
                await given_queued(resources)
                [lease] = await take(resources)
                fall_silent()
                began = time.monotonic()
                await settle(resources, lease, Done())
                assert time.monotonic() - began < AT_MOST
                proxy.heal()
            rows = await rows_of(resources, job_executions)
            assert {row["state"] for row in rows} == {State.DONE.value}


@pytest.mark.spec("E1", "G2")
@pytest.mark.thorough
async def test_every_step_ends_in_time_while_postgresql_is_stopped() -> None:
    """SIGSTOP: nothing answers and nothing is closed. Afterwards the same process works on."""
    with Postgres.start(own=True) as postgres:
        url = postgres.create_database("stopped")
        async with closing_database(url) as database:
            await database.ping()
            postgres.pause()
            try:
                took = await asyncio.gather(ended(database.ping), ended(lambda: hot(database)))
                assert max(took) < AT_MOST, took
                began = time.monotonic()
            finally:
                postgres.resume()
            await hot(database)
            await database.ping()
            assert time.monotonic() - began < AT_MOST


@asynccontextmanager
async def closing_database(url: str) -> AsyncIterator[PostgresDatabase]:
    database = open_database(url, events=Events(), step=timedelta(seconds=STEP))
    assert isinstance(database, PostgresDatabase)
    try:
        yield database
    finally:
        await database.close()


async def hot(database: PostgresDatabase) -> None:
    await database.hot("select", lambda connection: connection.execute("SELECT 1"))


@pytest.mark.spec("G6", "E1")
async def test_a_long_transaction_and_a_full_pool_cost_others_a_bounded_wait(pg_clean: str) -> None:
    """One connection on each way, both taken: whoever comes next is refused in time, and nothing piles up."""
    async with opening(pg_clean)(**SHORT, database_pool_max=2) as resources:
        database = resources.database
        assert isinstance(database, PostgresDatabase)

        async def sleep(connection: Any) -> None:
            await connection.execute("SELECT pg_sleep(60)")

        async def read_slowly() -> None:
            async with database.reading() as connection:
                await connection.execute(text("SELECT pg_sleep(60)"))

        waiting = [lambda: database.hot("sleep", sleep), read_slowly, *steps(resources)[:3], *steps(resources)[1:3]]
        took = await asyncio.gather(*(ended(step) for step in waiting))
        assert max(took) < AT_MOST, took
        for step in steps(resources)[:3]:
            await step()


@pytest.mark.spec("E1", "G7")
async def test_sockets_are_watched_on_both_sides_and_pools_close_without_an_answer(
    pg_clean: str, redis_url: str
) -> None:
    """Keepalives and a user time-out are set by client and server; closing does not wait for a silent server."""
    with cut_off(pg_clean, redis_url) as (postgres, valkey):
        async with opening(postgres.url, valkey.url)(**SHORT) as resources:
            database, redis = resources.database, resources.redis
            assert isinstance(database, PostgresDatabase)
            assert redis is not None
            await hot(database)
            await database.ping()
            [known] = {
                tuple(
                    [await connection.fetchval(f"SHOW {name}") for name in ("tcp_keepalives_count", "tcp_user_timeout")]
                )
                for connection in tuple(database.connector.idle)
            }
            assert known == ("3", f"{STEP * 1000:g}")
            in_use = await redis.connection_pool.get_connection()  # type: ignore[no-untyped-call]
            sockets = [socket_of(connection) for connection in database.connector.idle]
            for found in (*sockets, in_use._writer.transport.get_extra_info("socket")):
                assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                if hasattr(socket, "TCP_USER_TIMEOUT"):
                    assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == STEP * 1000
            await redis.connection_pool.release(in_use)
            postgres.swallow(new=True)
            valkey.swallow(new=True)
            began = time.monotonic()
        assert time.monotonic() - began < AT_MOST


@pytest.mark.spec("G7")
@pytest.mark.parametrize("role", ["up", "scheduler"])
def test_a_process_leaves_after_its_grace_whatever_hangs(
    role: str, pg_clean: str, redis_url: str, tmp_path: Path
) -> None:
    """SIGTERM while nothing answers any more: it is gone after SHUTDOWN_GRACE and the margin."""
    grace = 2.0
    with cut_off(pg_clean, redis_url) as (postgres, valkey):
        cli = CommandLine(
            tmp_path, DATABASE_URL=postgres.url, REDIS_URL=valkey.url, SHUTDOWN_GRACE=str(grace), PORT="0"
        )
        app = ("--app", "feeds:app") if role == "up" else ()
        with cli.running(role, *app, "--port", "0") as process:
            sooner_or_later(lambda: "leader changed" in cli.said())
            postgres.swallow(new=True)
            valkey.swallow(new=True)
            asked = time.monotonic()
            process.send_signal(signal.SIGTERM)
            process.wait(120)
            # Ending an interpreter takes a while on a busy machine.
            assert time.monotonic() - asked < grace + MARGIN.total_seconds() + 30


@pytest.mark.spec("G9")
async def test_a_process_that_stood_still_keeps_its_connections(pg_url: str) -> None:
    """The answer has arrived meanwhile: nobody has fallen silent."""
    connector = PostgresConnector(make_url(pg_url), step=timedelta(seconds=1))
    connection = await connector.connect()
    asking = asyncio.create_task(connector.ping(connection))
    await asyncio.sleep(0)
    time.sleep(1)  # noqa: ASYNC251 - it stands still for twice as long as the answer may take
    # A server on a busy machine may need even longer.
    readable, _, _ = select.select([socket_of(connection)], [], [], 120)
    assert readable
    await asking

    await asyncio.sleep(1)
    assert await connection.fetchval("SELECT 1") == 1
    await connector.close()


def socket_of(connection: Any) -> Any:
    return connection._transport.get_extra_info("socket")
