"""The proxy that other tests break connections with does to a real server what it says."""

import asyncio

import asyncpg
import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError

from faulty_proxy import DOWN, UP, FaultyProxy

SHORT = 0.3


async def test_swallowed_connections_are_silent_and_new_ones_work(redis_url: str) -> None:
    """Packets of the open connection vanish; a new one is answered unless it is swallowed too."""
    with FaultyProxy(redis_url) as proxy:
        async with client_of(proxy.url) as first, client_of(proxy.url) as second:
            assert await first.ping()
            proxy.swallow()
            assert await is_silent(first)
            assert await second.ping()

            proxy.swallow(new=True)
            async with client_of(proxy.url) as third:
                assert await is_silent(third)
                proxy.heal()
                assert await third.ping()


async def test_a_reset_or_refused_connection_fails_at_once_and_heals(redis_url: str) -> None:
    """A client gets a connection error, not a time-out, and may connect again afterwards."""
    with FaultyProxy(redis_url) as proxy:
        async with client_of(proxy.url) as client:
            assert await client.ping()
            proxy.refuse()
            assert await client.ping()
            proxy.reset()
            with pytest.raises(RedisConnectionError):
                await client.ping()
            with pytest.raises(RedisConnectionError):
                await client.ping()
            proxy.heal()
            assert await client.ping()


async def test_delay_and_cut_in_mid_message(redis_url: str) -> None:
    """A late reply is late; a cut one never comes whole."""
    with FaultyProxy(redis_url) as proxy:
        async with client_of(proxy.url) as client:
            assert await client.set("key", "x" * 1000)
            proxy.delay(SHORT, DOWN)
            before = asyncio.get_running_loop().time()
            assert await client.ping()
            assert asyncio.get_running_loop().time() - before >= SHORT
            proxy.cut_after(100, DOWN)
            with pytest.raises(RedisConnectionError):
                await client.get("key")
            assert await client.get("key") == b"x" * 1000
            proxy.cut_after(10, UP)
            with pytest.raises(RedisConnectionError):
                await client.set("key", "y" * 1000)
            assert await client.get("key") == b"x" * 1000


async def test_the_answer_to_a_commit_is_lost_but_the_commit_is_not(pg_url: str) -> None:
    """The server executes the statement; only its answer never arrives. Resumed connections go on."""
    with FaultyProxy(pg_url) as proxy:
        first = await asyncpg.connect(proxy.url)
        await first.execute("CREATE TABLE kept (n int)")
        proxy.lose_reply_to(b"COMMIT")
        with pytest.raises((OSError, asyncpg.PostgresConnectionError)):
            await add_one(first)
        first.terminate()

        second = await asyncpg.connect(proxy.url)
        try:
            assert await second.fetchval("SELECT count(*) FROM kept") == 1
            proxy.swallow(DOWN)
            waiting = asyncio.create_task(add_one(second))
            done, _ = await asyncio.wait([waiting], timeout=SHORT)
            assert not done
            proxy.heal(resume=True)
            await asyncio.wait_for(waiting, 30)
            assert await second.fetchval("SELECT count(*) FROM kept") == 2
        finally:
            second.terminate()


async def is_silent(client: Redis) -> bool:
    try:
        async with asyncio.timeout(SHORT):
            await client.ping()
    except TimeoutError:
        return True
    return False


async def add_one(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    async with connection.transaction():
        await connection.execute("INSERT INTO kept VALUES (1)")


def client_of(url: str) -> Redis:
    return Redis.from_url(url, socket_timeout=30, retry=Retry(NoBackoff(), 0), protocol=2)
