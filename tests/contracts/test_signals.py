"""The signal contract within a process, through PostgreSQL and through Redis."""

import socket
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest
from redis.asyncio import Redis

from floodmark.coordination.signals.local import LocalSignals
from floodmark.coordination.signals.mailboxes import folder_of
from floodmark.coordination.signals.port import Signals, Topic
from floodmark.coordination.signals.redis import RedisSignals
from floodmark.observability.events import Events, StepFailed
from floodmark.settings import Settings
from floodmark.store.database import SqliteDatabase
from floodmark.testing.contracts.signals import LATER, SOON, SignalsContract, Tell, wait_for_silence
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import Opened, given_job
from floodmark.wiring.resources import Resources, open_resources
from servers import Valkey

pytest_plugins = ("backends",)
pytestmark = pytest.mark.spec("E4")


class TestLocalSignals(SignalsContract):
    @pytest.fixture
    async def signals(self) -> AsyncIterator[Signals]:
        signals = LocalSignals()
        await signals.start()
        yield signals
        await signals.stop()

    @pytest.fixture
    def tell(self, signals: Signals) -> Tell:
        return signals.notify


@pytest.mark.spec("B17")
class TestSignalsBetweenProcesses(SignalsContract):
    """Processes on one SQLite file signal each other, without polling."""

    @pytest.fixture
    async def signals(self, sqlite_copy: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Signals]:
        monkeypatch.setattr("floodmark.coordination.signals.local._POLL_SECONDS", 3600.0)
        signals = LocalSignals(SqliteDatabase(sqlite_copy))
        await signals.start()
        yield signals
        await signals.stop()

    @pytest.fixture
    async def tell(self, sqlite_copy: str) -> AsyncIterator[Tell]:
        other = LocalSignals(SqliteDatabase(sqlite_copy))
        await other.start()
        yield other.notify
        await other.stop()

    async def test_the_mailbox_of_a_dead_process_is_removed(self, tell: Tell, sqlite_copy: str) -> None:
        folder = folder_of(SqliteDatabase(sqlite_copy).path)
        assert folder is not None
        dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        dead.bind(str(folder / "dead"))
        dead.close()
        await tell(Topic.QUEUE)
        assert not (folder / "dead").exists()


class TestSqliteSignals(SignalsContract):
    """A process detects the commits of another process."""

    @pytest.fixture
    async def resources(self, sqlite: Opened) -> AsyncIterator[Resources]:
        async with sqlite() as resources:
            # The writer's connection is opened by the first write.
            await given_job(resources)
            await resources.upkeep.wake(limit=1)
            yield resources

    @pytest.fixture
    def signals(self, resources: Resources) -> Signals:
        return resources.signals

    @pytest.fixture
    async def tell(self, sqlite: Opened) -> AsyncIterator[Tell]:
        async with sqlite() as other:

            async def tell(topic: Topic) -> None:
                await given_job(other)

            yield tell


class TestPostgresSignals(SignalsContract):
    @pytest.fixture
    async def resources(self, postgres_only: Opened) -> AsyncIterator[Resources]:
        async with postgres_only() as resources:
            yield resources

    @pytest.fixture
    def signals(self, resources: Resources) -> Signals:
        return resources.signals

    @pytest.fixture
    async def tell(self, postgres_only: Opened) -> AsyncIterator[Tell]:
        async with postgres_only() as other:
            yield other.signals.notify

    async def test_sql_typed_by_hand_is_heard(self, resources: Resources, pg_clean: str) -> None:
        """A new job wakes the scheduler, even if it was inserted with manual SQL."""
        bell = await wait_for_silence(resources.signals.bell(Topic.JOBS))
        connection = await asyncpg.connect(pg_clean)
        await connection.execute("INSERT INTO jobs (name, target, interval_seconds) VALUES ('a', 'a', 60)")
        await connection.close()

        assert await bell.wait(LATER)

    async def test_a_message_of_a_newer_version_is_ignored(self, resources: Resources, pg_clean: str) -> None:
        bell = await wait_for_silence(resources.signals.bell(Topic.JOBS))
        connection = await asyncpg.connect(pg_clean)
        await connection.execute("SELECT pg_notify('floodmark', 'no such topic'), pg_notify('floodmark', 'jobs')")
        await connection.close()

        assert await bell.wait(LATER)

    async def test_everything_rings_after_a_lost_connection(
        self, resources: Resources, pg_clean: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Signals may have been missed, so every bell rings. Then the process listens again."""
        monkeypatch.setattr("floodmark.coordination.signals.listening._RECONNECT_SECONDS", 0.02)
        bells = [await wait_for_silence(resources.signals.bell(topic)) for topic in Topic]
        connection = await asyncpg.connect(pg_clean)
        cut = await connection.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query ILIKE '%LISTEN%' AND pid <> pg_backend_pid()"
        )
        await connection.close()
        assert cut == 1

        assert all([await bell.wait(LATER) for bell in bells])
        await resources.signals.notify(Topic.JOBS)
        assert await bells[0].wait(LATER)


class TestRedisSignals(SignalsContract):
    @pytest.fixture
    async def resources(self, redis_on_sqlite: Opened) -> AsyncIterator[Resources]:
        async with redis_on_sqlite() as resources:
            yield resources

    @pytest.fixture
    def signals(self, resources: Resources) -> Signals:
        return resources.signals

    @pytest.fixture
    async def tell(self, redis_on_sqlite: Opened) -> AsyncIterator[Tell]:
        async with redis_on_sqlite() as other:
            yield other.signals.notify

    async def test_it_listens_through_long_silence(self, redis_url: str) -> None:
        """No signal for longer than the time-out of Redis is not an error."""
        events, failures = Events(), list[StepFailed]()
        events.listen(StepFailed, failures.append)
        redis = Redis.from_url(redis_url, socket_timeout=3, protocol=2)
        signals = RedisSignals(redis, "crawler", events, step=timedelta(seconds=5))
        await signals.start()
        try:
            bell = await wait_for_silence(signals.bell(Topic.JOBS))
            assert not await bell.wait(timedelta(seconds=4))
            assert failures == []
            await redis.publish("crawler:signals", "jobs")
            assert await bell.wait(LATER)
        finally:
            await signals.stop()
            await redis.aclose()

    async def test_a_message_of_a_newer_version_is_ignored(self, resources: Resources) -> None:
        assert resources.redis is not None
        bell = await wait_for_silence(resources.signals.bell(Topic.JOBS))
        for message in (b"no such topic", b"\xff\xfe", b"jobs"):
            await resources.redis.publish("crawler:signals", message)

        assert await bell.wait(LATER)

    async def test_everything_rings_after_a_restart(self, sqlite_copy: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Pub/Sub drops messages that it cannot deliver. A signal sent while Redis is unavailable raises no error."""
        monkeypatch.setattr("floodmark.coordination.signals.listening._RECONNECT_SECONDS", 0.02)
        with Valkey.start(own=True) as valkey:
            settings = Settings(database_url=sqlite_copy, redis_url=valkey.url, hostname="test")
            async with open_resources(settings) as resources, open_resources(settings) as other:
                bells = [await wait_for_silence(resources.signals.bell(topic)) for topic in Topic]
                valkey.kill()
                await other.signals.notify(Topic.JOBS)
                valkey.start_again()

                assert all([await bell.wait(LATER) for bell in bells])

                async def is_heard() -> bool:
                    await other.signals.notify(Topic.QUEUE)
                    return await bells[1].wait(SOON)

                await eventually(is_heard)
