"""The queue contract on every store, and faults of Redis Streams."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from redis.asyncio import Redis

from floodmark.model.execution import Lease, State
from floodmark.model.job import Priority
from floodmark.model.outcome import Done
from floodmark.observability.events import Events, QueueDegraded, QueueRestored
from floodmark.queue.redis_streams import GROUP
from floodmark.settings import Settings
from floodmark.store.port import Settlement
from floodmark.testing.contracts.queue import QueueContract
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import (
    TTL,
    Opened,
    expire,
    given_lease,
    given_queued,
    requeue,
    rescue,
    settle,
    state_of,
    take,
)
from floodmark.wiring.resources import Resources, open_resources
from servers import Valkey

pytest_plugins = ("backends",)

NORMAL, KNOWN = "crawler:jobs:normal", "crawler:jobs:known"


@pytest.fixture(autouse=True)
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits is woken by a signal or by the end of its wait."""
    monkeypatch.setattr("floodmark.queue.sql._POLL", timedelta(hours=1))


@pytest.mark.spec("G8")
class TestSqliteQueue(QueueContract):
    @pytest.fixture
    def opened(self, sqlite: Opened) -> Opened:
        return sqlite


@pytest.mark.spec("G8")
class TestPostgresQueue(QueueContract):
    @pytest.fixture
    def opened(self, postgres_only: Opened) -> Opened:
        return postgres_only


class TestRedisStreamsOnPostgres(QueueContract):
    @pytest.fixture
    def opened(self, redis_on_postgres: Opened) -> Opened:
        return redis_on_postgres


class TestRedisStreamsOnSqlite(QueueContract):
    @pytest.fixture
    def opened(self, redis_on_sqlite: Opened) -> Opened:
        return redis_on_sqlite


class TestRedisStreamsItself:
    """Faults of Redis alone. The store is SQLite, because the database makes no difference here."""

    @pytest.fixture
    async def resources(self, redis_on_sqlite: Opened) -> AsyncIterator[Resources]:
        async with redis_on_sqlite() as resources:
            yield resources

    @pytest.fixture
    def redis(self, resources: Resources) -> Redis:
        assert resources.redis is not None
        return resources.redis

    @pytest.mark.spec("V2")
    async def test_keys_are_named_as_promised(self, resources: Resources, redis: Redis) -> None:
        for priority in Priority:
            await given_queued(resources, priority=priority)
        await take(resources, 1)

        assert set(await redis.keys("*")) == {
            b"crawler:jobs:high",
            b"crawler:jobs:normal",
            b"crawler:jobs:low",
            b"crawler:jobs:known",
        }

    @pytest.mark.spec("G6")
    async def test_nothing_is_left_of_what_was_settled(self, resources: Resources, redis: Redis) -> None:
        await given_queued(resources, 5)
        for lease in await take(resources):
            await settle(resources, lease, Done())

        assert await redis.xlen(NORMAL) == 0
        assert await redis.hlen(KNOWN) == 0

    @pytest.mark.spec("G6")
    async def test_a_lost_lease_does_not_take_the_entry_of_a_newer_one(
        self, resources: Resources, redis: Redis
    ) -> None:
        """A worker may lease an execution again before it knows that it has lost the first lease."""
        lost = await given_lease(resources)
        await expire(resources, lost)
        await rescue(resources)
        [newer] = await take(resources)

        assert not await settle(resources, lost, Done())
        assert await settle(resources, newer, Done())

        assert await redis.xlen(NORMAL) == 0
        assert await redis.hlen(KNOWN) == 0

    @pytest.mark.spec("G2")
    async def test_an_emptied_redis_is_filled_again(self, resources: Resources, redis: Redis) -> None:
        """FLUSHALL loses neither queued nor leased executions."""
        [running] = await given_queued(resources)
        [lease] = await take(resources, 1)
        waiting = await given_queued(resources, 3)
        await redis.flushall()

        assert await take(resources) == []
        await requeue(resources)
        assert {lease.execution_id for lease in await take(resources)} == set(waiting)
        assert await settle(resources, lease, Done())
        assert await state_of(resources, running) is State.DONE

    @pytest.mark.spec("G2")
    async def test_a_deleted_stream_is_filled_again(self, resources: Resources, redis: Redis) -> None:
        """The hash of known ids still contains them."""
        ids = await given_queued(resources, 3)
        await redis.delete(NORMAL)

        await requeue(resources)

        assert {lease.execution_id for lease in await take(resources)} == set(ids)

    @pytest.mark.spec("G2")
    async def test_an_entry_of_another_execution_does_not_count(self, resources: Resources, redis: Redis) -> None:
        """A stream that is deleted and filled again within a millisecond reuses its entry ids."""
        one, other = await given_queued(resources, 2)
        reference = await redis.hget(KNOWN, one)
        assert isinstance(reference, bytes)
        entry = reference.decode().partition(":")[2]
        await redis.delete(NORMAL)
        await redis.xadd(NORMAL, {"id": other}, id=entry)
        await redis.hset(KNOWN, other, f"2:{entry}")

        await requeue(resources)

        assert {lease.execution_id for lease in await take(resources)} == {one, other}

    @pytest.mark.spec("G2")
    async def test_a_deleted_group_is_made_again_from_the_beginning(self, resources: Resources, redis: Redis) -> None:
        """Earlier entries are delivered; leased executions are not delivered again."""
        held = await given_lease(resources)
        [waiting] = await given_queued(resources)
        await redis.xgroup_destroy(NORMAL, GROUP)

        assert [lease.execution_id for lease in await take(resources, worker="b")] == [waiting]
        assert await settle(resources, held, Done())

    @pytest.mark.spec("G2")
    async def test_redis_may_be_emptied_while_a_worker_waits(self, resources: Resources, redis: Redis) -> None:
        """The worker keeps waiting or asks again. It does not fail, and Redis still counts as available."""
        degraded: list[QueueDegraded] = []
        resources.events.listen(QueueDegraded, degraded.append)
        await take(resources)
        waiting = asyncio.create_task(
            resources.queue.lease(5, worker="a", ttl=TTL, wait=timedelta(seconds=60)), name="waiting"
        )
        await eventually(lambda: _is_blocked(redis))
        await redis.flushall()
        ids = await given_queued(resources)

        leases = await waiting or await take(resources)

        assert [lease.execution_id for lease in leases] == ids
        assert degraded == []

    @pytest.mark.parametrize(
        "fields",
        [
            {"x": "y"},
            {"id": "no such execution"},
            {b"\xff": b"\xfe"},
            {"id": b"\xff"},
            {"id": b"a\x00b"},
            {"id": "x" * 10**7},
        ],
    )
    async def test_garbage_in_a_stream_is_dropped(
        self, resources: Resources, redis: Redis, fields: dict[Any, Any]
    ) -> None:
        """Later entries are handed out."""
        await redis.xadd(NORMAL, fields)
        ids = await given_queued(resources)

        leases = [*await take(resources, 1), *await take(resources, 1)]

        assert [lease.execution_id for lease in leases] == ids
        assert await redis.xlen(NORMAL) == 1

    @pytest.mark.parametrize("fields", [{"x": "y"}, {"id": b"a\x00b"}, {"id": b"\xff"}, {"x": "y" * 10**7}])
    async def test_garbage_that_comes_while_waiting_is_dropped(
        self, resources: Resources, redis: Redis, fields: dict[Any, Any]
    ) -> None:
        await take(resources)
        waiting = asyncio.create_task(
            resources.queue.lease(5, worker="a", ttl=TTL, wait=timedelta(seconds=60)), name="waiting"
        )
        await eventually(lambda: _is_blocked(redis))
        await redis.xadd(NORMAL, fields)

        assert await waiting == []
        assert await redis.xlen(NORMAL) == 0

    @pytest.mark.spec("V2", "G2")
    async def test_what_a_dead_consumer_read_is_swept_up(self, resources: Resources, redis: Redis) -> None:
        """A worker died after it read an entry and before it claimed the execution."""
        await take(resources)
        ids = await given_queued(resources, 3)
        await redis.xreadgroup(GROUP, "dead", {NORMAL: ">"})
        await requeue(resources)
        assert await take(resources) == []

        leases = await eventually(lambda: take(resources, ttl=timedelta(milliseconds=20)))

        assert {lease.execution_id for lease in leases} == set(ids)

    @pytest.mark.spec("V2", "G2")
    async def test_all_that_a_dead_consumer_read_is_swept_up_at_once(self, resources: Resources, redis: Redis) -> None:
        """A worker with few free slots takes over all entries, so that none waits for another lease time."""
        # Long enough that entries taken here do not expire before the last one is taken.
        brief = timedelta(seconds=3)
        await take(resources)
        ids = await given_queued(resources, 25)
        await redis.xreadgroup(GROUP, "dead", {NORMAL: ">"})
        found = await eventually(lambda: take(resources, 4, ttl=brief))

        while some := await take(resources, 4, ttl=brief):
            found += some

        assert sorted(lease.execution_id for lease in found) == sorted(ids)

    @pytest.mark.spec("V2", "G2")
    async def test_what_is_in_good_hands_does_not_hide_what_is_to_be_swept_up(
        self, resources: Resources, redis: Redis
    ) -> None:
        """Redis checks only ten entries for each requested one, oldest first."""
        brief = timedelta(seconds=3)
        await given_queued(resources, 25)
        leases = await take(resources)
        [left] = await given_queued(resources)
        await redis.xreadgroup(GROUP, "dead", {NORMAL: ">"})

        async def swept() -> list[Lease]:
            await resources.queue.extend(leases, ttl=TTL)
            return await take(resources, 1, worker="b", ttl=brief)

        [lease] = await eventually(swept)

        assert lease.execution_id == left
        assert await redis.xlen(NORMAL) == 26

    async def test_what_a_live_consumer_works_on_is_not_swept_up(self, redis_on_sqlite: Opened) -> None:
        """The heartbeat of a worker also renews its entries in Redis."""
        brief = timedelta(seconds=3)
        async with redis_on_sqlite() as resources, redis_on_sqlite() as other:
            lease = await given_lease(resources, ttl=brief)
            redis = resources.redis
            assert redis is not None
            began = time.monotonic()
            while time.monotonic() - began < 4:
                await resources.queue.extend([lease], ttl=TTL)
                assert await take(other, worker="b", ttl=brief) == []
            [pending] = await redis.xpending_range(NORMAL, GROUP, "-", "+", 10)
            assert pending["consumer"] == b"a"

    @pytest.mark.spec("V2")
    async def test_a_redelivery_after_the_end_is_dropped(self, resources: Resources, redis: Redis) -> None:
        """The worker died after it stored the outcome and before it deleted the entry."""
        lease = await given_lease(resources)
        await resources.leasing.settle([Settlement(lease=lease, outcome=Done(), duration=0)])
        assert await redis.xlen(NORMAL) == 1

        async def swept() -> bool:
            assert await take(resources, worker="b", ttl=timedelta(milliseconds=20)) == []
            return int(await redis.xlen(NORMAL)) == 0

        await eventually(swept)
        assert await state_of(resources, lease) is State.DONE

    async def test_a_worker_that_leaves_is_no_longer_in_the_group(self, resources: Resources, redis: Redis) -> None:
        lease = await given_lease(resources, worker="a")
        await take(resources, worker="b")
        await settle(resources, lease, Done())

        await resources.queue.leave("a")

        assert "a" not in await _consumers(redis)

    async def test_a_worker_that_leaves_work_behind_stays_until_it_is_swept_up(
        self, resources: Resources, redis: Redis
    ) -> None:
        """Deleting its consumer would also delete its pending entries."""
        await given_lease(resources, worker="a")
        await resources.queue.leave("a")
        assert "a" in await _consumers(redis)

    @pytest.mark.spec("G6")
    async def test_consumers_that_were_silent_for_long_are_removed(self, resources: Resources, redis: Redis) -> None:
        """Every process has its own name, so the consumers of dead processes would accumulate."""
        lease = await given_lease(resources, worker="dead")
        await settle(resources, lease, Done())
        assert "dead" in await _consumers(redis)

        async def is_removed() -> bool:
            await take(resources, worker="b", ttl=timedelta(milliseconds=2))
            return "dead" not in await _consumers(redis)

        await eventually(is_removed)

    @pytest.mark.spec("G2", "G8")
    async def test_the_database_serves_while_redis_is_away(
        self, sqlite_copy: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Once Redis is available again, even without its data, it is used again."""
        monkeypatch.setattr("floodmark.queue.redis_streams._AWAY_SECONDS", 0.05)
        events, told = Events(), list[str]()
        events.listen(QueueDegraded, lambda event: told.append("degraded"))
        events.listen(QueueRestored, lambda event: told.append("restored"))
        settings = Settings(database_url=sqlite_copy, redis_url=None, hostname="test")
        with Valkey.start(own=True) as valkey:
            settings = settings.model_copy(update={"redis_url": valkey.url})
            async with open_resources(settings, events=events) as resources:
                held = await given_lease(resources)
                before = await given_queued(resources)
                valkey.kill()
                during = await given_queued(resources)

                leases = await take(resources)
                assert [lease.execution_id for lease in leases] == before + during
                assert (await resources.queue.extend([held, *leases], ttl=TTL)).lost == frozenset()
                assert await settle(resources, held, Done())
                assert sum((await resources.queue.depth()).values()) == 0
                await resources.queue.leave("a")

                valkey.start_again()
                after = await given_queued(resources)

                async def handed_out() -> list[str]:
                    await requeue(resources)
                    return [lease.execution_id for lease in await take(resources)]

                assert await eventually(handed_out) == after

                async def restored() -> bool:
                    # The database may have handed it out: only the next call uses Redis again.
                    await take(resources)
                    return "restored" in told

                await eventually(restored)
                for lease in leases:
                    assert await settle(resources, lease, Done())
                # Each event is sent once, not for every failed call.
                assert (told.count("degraded"), told.count("restored")) in {(1, 1), (2, 2)}

    @pytest.mark.spec("E9")
    async def test_a_scheduler_tells_each_time_that_redis_is_away_and_back(
        self, sqlite_copy: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A scheduler only puts, so no read call detects that Redis is available again."""
        monkeypatch.setattr("floodmark.queue.redis_streams._AWAY_SECONDS", 0.05)
        events, told = Events(), list[str]()
        events.listen(QueueDegraded, lambda event: told.append("degraded"))
        events.listen(QueueRestored, lambda event: told.append("restored"))
        with Valkey.start(own=True) as valkey:
            settings = Settings(database_url=sqlite_copy, redis_url=valkey.url, hostname="test")
            async with open_resources(settings, events=events) as resources:

                async def heard(word: str) -> bool:
                    await given_queued(resources)
                    return told[-1:] == [word]

                for _ in range(2):
                    valkey.kill()
                    await eventually(lambda: heard("degraded"))
                    valkey.start_again()
                    await eventually(lambda: heard("restored"))

        assert told == ["degraded", "restored"] * 2

    @pytest.mark.spec("G2")
    async def test_a_full_redis_loses_nothing(self, sqlite_copy: str) -> None:
        """A full Redis refuses writes, so the database is the queue."""
        with Valkey.start(own=True) as valkey:
            settings = Settings(database_url=sqlite_copy, redis_url=valkey.url, hostname="test")
            async with open_resources(settings) as resources:
                redis = resources.redis
                assert redis is not None
                before = await given_queued(resources)
                await redis.config_set("maxmemory", "1")
                during = await given_queued(resources)

                leases = await take(resources)

                assert {lease.execution_id for lease in leases} == {*before, *during}

    @pytest.mark.spec("G2", "G8")
    async def test_redis_need_not_be_there_at_the_start(self, sqlite_copy: str) -> None:
        settings = Settings(database_url=sqlite_copy, redis_url="redis://127.0.0.1:1/0", hostname="test")
        async with open_resources(settings.model_copy()) as resources:
            ids = await given_queued(resources, 2)
            leases = await take(resources)
            assert {lease.execution_id for lease in leases} == set(ids)
            assert all([await settle(resources, lease, Done()) for lease in leases])


async def _is_blocked(redis: Redis) -> bool:
    return int((await redis.info("clients"))["blocked_clients"]) > 0


async def _consumers(redis: Redis) -> set[str]:
    return {consumer["name"].decode() for consumer in await redis.xinfo_consumers(NORMAL, GROUP)}
