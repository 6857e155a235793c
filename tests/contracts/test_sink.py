"""Sinks in SQLite and PostgreSQL, and the relay to a Redis stream."""

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
    async def parts(self, redis_on_postgres: Opened) -> AsyncIterator[Resources]:
        async with redis_on_postgres() as parts:
            yield parts

    @pytest.fixture
    def leader(self, parts: Resources) -> Leader:
        return Leader(parts.leases, parts.events, name="leader", holder=parts.name, ttl=TTL)

    @pytest.fixture
    def relay(self, parts: Resources, leader: Leader) -> Relay:
        assert parts.redis is not None
        sinks = {"redis": RedisStreamSink(parts.redis, maxlen=1000)}
        return Relay(parts.keeping, leader, parts.events, parts.clock, sinks=sinks)

    async def test_only_the_leader_relays(self, parts: Resources, leader: Leader, relay: Relay) -> None:
        await parts.keeping.keep(await given_lease(parts), Batch([Item("1", 1)]))
        assert await relay.step() is None
        assert [row["position"] for row in await rows_of(parts, outbox)] == [None]

        await leader.step()
        await relay.step()
        assert [row["position"] for row in await rows_of(parts, outbox)] == [1]

    async def test_events_are_copied_in_order(self, parts: Resources, leader: Leader, relay: Relay) -> None:
        """Each under the id by which readers can tell a repetition."""
        lease = await given_lease(parts)
        await parts.keeping.keep(lease, Batch([Item("b", {"text": "ж"}), Item("a", 2)]))
        await leader.step()
        told: list[EventsRelayed] = []
        parts.events.listen(EventsRelayed, told.append)

        assert await relay.step() is None

        assert parts.redis is not None
        answer: Any = await parts.redis.xrange("crawler:events")
        entries = [fields for _, fields in answer]
        assert [entry[b"event_id"].decode() for entry in entries] == [f"{lease.job.stream}/{k}/1" for k in "ba"]
        assert entries[0][b"kind"] == b"item.new"
        assert entries[0][b"position"] == b"1"
        assert "ж" in entries[0][b"data"].decode()
        assert [event.count for event in told] == [2]

    async def test_a_long_outbox_is_relayed_in_portions(self, parts: Resources, leader: Leader, relay: Relay) -> None:
        """And asks to go on at once while there is more."""
        await parts.keeping.keep(await given_lease(parts), Batch([Item(str(n), n) for n in range(501)]))
        await leader.step()

        assert await relay.step() == timedelta()
        assert await relay.step() is None
        assert parts.redis is not None
        assert await parts.redis.xlen("crawler:events") == 501
