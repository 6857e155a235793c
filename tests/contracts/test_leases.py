"""The lease contract on every store."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from backends import opening
from faulty_proxy import FaultyProxy
from floodmark.coordination.leases.port import Leases
from floodmark.coordination.leases.tables import leases as table
from floodmark.settings import Settings
from floodmark.testing.clock import SetClock
from floodmark.testing.contracts.leases import TTL, Expire, LeasesContract
from floodmark.testing.factories import Opened, rows_of
from floodmark.wiring.resources import Resources, open_resources
from servers import Valkey

pytest_plugins = ("backends",)
pytestmark = pytest.mark.spec("E1", "V6", "T6")


class OnParts(LeasesContract):
    @pytest.fixture
    async def resources(self, opened: Opened) -> AsyncIterator[Resources]:
        async with opened() as resources:
            yield resources

    @pytest.fixture
    def leases(self, resources: Resources) -> Leases:
        return resources.leases

    @pytest.fixture
    async def elsewhere(self, opened: Opened) -> AsyncIterator[Leases]:
        async with opened() as resources:
            yield resources.leases


class OnSql(OnParts):
    @pytest.fixture
    def expire(self, resources: Resources) -> Expire:
        async def expire(name: str) -> None:
            async with resources.database.writing() as connection:
                past = datetime(2000, 1, 1, tzinfo=UTC)
                await connection.execute(update(table).where(table.c.name == name).values(lease_until=past))

        return expire


class TestSqliteLeases(OnSql):
    @pytest.fixture
    def opened(self, sqlite: Opened) -> Opened:
        return sqlite

    async def test_its_time_is_that_of_the_process(self, sqlite: Opened) -> None:
        """SQLite runs on one machine, so leases can use the clock of the process."""
        clock = SetClock()
        async with sqlite(clock=clock) as resources:
            assert await resources.leases.acquire("leader", holder="a", ttl=TTL)
            clock.advance(TTL - timedelta(seconds=1))
            assert not await resources.leases.acquire("leader", holder="b", ttl=TTL)
            clock.advance(timedelta(seconds=2))
            assert await resources.leases.acquire("leader", holder="b", ttl=TTL)


class TestPostgresLeases(OnSql):
    @pytest.fixture
    def opened(self, postgres_only: Opened) -> Opened:
        return postgres_only

    async def test_its_time_is_that_of_the_database(self, postgres_only: Opened) -> None:
        """A process whose clock is a day ahead cannot take a lease early."""
        async with (
            postgres_only() as resources,
            postgres_only(clock=SetClock(datetime(2999, 1, 1, tzinfo=UTC))) as ahead,
        ):
            assert await resources.leases.acquire("leader", holder="a", ttl=TTL)
            assert not await ahead.leases.acquire("leader", holder="b", ttl=TTL)
            assert await ahead.leases.holder("leader") == "a"


class TestRedisLeases(OnSql):
    @pytest.fixture
    def opened(self, redis_on_sqlite: Opened) -> Opened:
        return redis_on_sqlite

    async def test_the_holder_is_announced_under_the_prefix(self, resources: Resources, leases: Leases) -> None:
        """The key contains the holder, expires, and is deleted when the lease is released."""
        assert resources.redis is not None
        await leases.acquire("leader", holder="a", ttl=TTL)
        assert not await leases.acquire("leader", holder="b", ttl=TTL)
        assert await resources.redis.get("crawler:leader") == b"a"
        assert 0 < await resources.redis.pttl("crawler:leader") <= 60_000
        await leases.release("leader", holder="a")
        assert await resources.redis.keys("*leader*") == []

    async def test_emptying_redis_changes_no_holder(
        self, resources: Resources, leases: Leases, elsewhere: Leases
    ) -> None:
        """The database decides: a lost or different key in Redis has no effect."""
        assert resources.redis is not None
        await leases.acquire("leader", holder="a", ttl=TTL)
        await resources.redis.flushdb()
        assert not await elsewhere.acquire("leader", holder="b", ttl=TTL)
        await resources.redis.set("crawler:leader", "b")
        assert await leases.acquire("leader", holder="a", ttl=TTL)
        assert await resources.redis.get("crawler:leader") == b"a"

    @pytest.mark.spec("G2")
    async def test_a_holder_without_redis_gives_way_to_one_that_has_it(self, pg_clean: str, redis_url: str) -> None:
        """Without such a holder it keeps the lease. The term grows with every new holder."""
        with FaultyProxy(redis_url) as cut_off:
            without, having = opening(pg_clean, cut_off.url), opening(pg_clean, redis_url)
            async with without() as first, without() as second, having() as third:
                assert await first.leases.acquire("leader", holder="a", ttl=TTL)
                assert not await second.leases.acquire("leader", holder="b", ttl=TTL)
                cut_off.swallow(new=True)
                assert not await second.leases.acquire("leader", holder="b", ttl=TTL)
                for _ in range(2):
                    assert await first.leases.acquire("leader", holder="a", ttl=TTL)
                    assert not await second.leases.acquire("leader", holder="b", ttl=TTL)

                assert await third.leases.acquire("leader", holder="c", ttl=TTL)
                assert not await first.leases.acquire("leader", holder="a", ttl=TTL)
                cut_off.heal()
                for _ in range(2):
                    assert not await first.leases.acquire("leader", holder="a", ttl=TTL)
                await third.leases.release("leader", holder="c")
                assert await first.leases.acquire("leader", holder="a", ttl=TTL)
                [row] = await rows_of(first, table)
                assert (row["holder"], row["term"], row["yields"]) == ("a", 3, False)

    @pytest.mark.spec("G2")
    async def test_the_database_decides_while_redis_is_away(self, sqlite_copy: str) -> None:
        """A lease can also be released while Redis is unavailable."""
        with Valkey.start(own=True) as valkey:
            settings = Settings(database_url=sqlite_copy, redis_url=valkey.url, hostname="test")
            async with open_resources(settings) as resources, open_resources(settings) as other:
                assert await resources.leases.acquire("leader", holder="a", ttl=TTL)
                valkey.kill()

                assert await resources.leases.acquire("leader", holder="a", ttl=TTL)
                assert not await other.leases.acquire("leader", holder="b", ttl=TTL)
                assert await other.leases.holder("leader") == "a"
                await resources.leases.release("leader", holder="a")
                assert await other.leases.acquire("leader", holder="b", ttl=TTL)
