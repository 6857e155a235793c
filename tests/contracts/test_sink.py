"""The sink contract on SQLite and PostgreSQL, and the relay to a Redis stream."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from floodmark.coordination.leader import Leader
from floodmark.model.batch import Batch, Item
from floodmark.observability.events import EventsRelayed
from floodmark.sinks.redis_stream import RedisStreamSink
from floodmark.sinks.relay import Relay
from floodmark.store.tables import outbox
from floodmark.testing.contracts.event_sink import deliver
from floodmark.testing.contracts.sink import SinkContract
from floodmark.testing.factories import TTL, Opened, given_lease, rows_of
from floodmark.wiring.resources import Resources

pytest_plugins = ("backends",)


@pytest.mark.spec("G8")
class TestSqliteSink(SinkContract):
    @pytest.fixture
    def opened(self, sqlite: Opened) -> Opened:
        return sqlite


@pytest.mark.spec("G8")
class TestPostgresSink(SinkContract):
    @pytest.fixture
    def opened(self, postgres_only: Opened) -> Opened:
        return postgres_only


@pytest.mark.spec("G4", "T7")
class TestRelayToRedis:
    @pytest.fixture
    async def resources(self, redis_on_postgres: Opened) -> AsyncIterator[Resources]:
        async with redis_on_postgres() as resources:
            yield resources

    @pytest.fixture
    def leader(self, resources: Resources) -> Leader:
        return Leader(resources.leases, resources.events, name="leader", holder=resources.name, ttl=TTL)

    @pytest.fixture
    def relay(self, resources: Resources, leader: Leader) -> Relay:
        return Relay(resources.keeping, leader, resources.events, resources.clock)

    @pytest.fixture
    def sink(self, resources: Resources) -> RedisStreamSink:
        assert resources.redis is not None
        return RedisStreamSink(resources.redis, maxlen=1000)

    async def test_only_the_leader_relays(self, resources: Resources, leader: Leader, relay: Relay) -> None:
        await resources.keeping.keep(await given_lease(resources), Batch([Item("1", 1)]))
        assert await relay.step() is None
        assert [row["position"] for row in await rows_of(resources, outbox)] == [None]

        await leader.step()
        await relay.step()
        assert [row["position"] for row in await rows_of(resources, outbox)] == [1]

    async def test_events_are_copied_in_order(
        self, resources: Resources, leader: Leader, relay: Relay, sink: RedisStreamSink
    ) -> None:
        """Each event has an id by which readers can detect a repetition."""
        lease = await given_lease(resources)
        await resources.keeping.keep(lease, Batch([Item("b", {"text": "ж"}), Item("a", 2)]))
        await leader.step()
        told: list[EventsRelayed] = []
        resources.events.listen(EventsRelayed, told.append)

        assert await relay.step() is None
        await deliver(resources, leader, sink)

        assert resources.redis is not None
        answer: Any = await resources.redis.xrange("crawler:events")
        entries = [fields for _, fields in answer]
        assert [entry[b"event_id"].decode() for entry in entries] == [f"{lease.job.stream}/{k}/1" for k in "ba"]
        assert entries[0][b"kind"] == b"item.new"
        assert entries[0][b"position"] == b"1"
        assert "ж" in entries[0][b"data"].decode()
        assert [event.count for event in told] == [2]

    async def test_a_long_outbox_is_relayed_in_portions(
        self, resources: Resources, leader: Leader, relay: Relay, sink: RedisStreamSink
    ) -> None:
        """The relay asks to be called again at once while events remain."""
        await resources.keeping.keep(await given_lease(resources), Batch([Item(str(n), n) for n in range(501)]))
        await leader.step()

        assert await relay.step() == timedelta()
        assert await relay.step() is None
        await deliver(resources, leader, sink)
        assert resources.redis is not None
        assert await resources.redis.xlen("crawler:events") == 501
