"""Delivery to Redis while it is away: it is tried again, loses nothing, keeps the order, and stops when told to."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

from conftest import started
from floodmark.coordination.leader import Leader
from floodmark.errors import Transient
from floodmark.model.batch import Batch, Item
from floodmark.observability.events import CallRetried
from floodmark.outbound.retrying import RetryPolicy
from floodmark.settings import Settings
from floodmark.sinks.delivery import ConfiguredSink, Delivery
from floodmark.sinks.redis_stream import RedisStreamSink
from floodmark.sinks.relay import Relay
from floodmark.testing.contracts.event_sink import delivery_store
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import TTL, given_lease
from floodmark.wiring.resources import Resources, open_resources
from servers import Valkey

QUICK = RetryPolicy(attempts=1000, base=timedelta(milliseconds=1), longest=timedelta(milliseconds=20))


@pytest.fixture(scope="module")
def own() -> Iterator[Valkey]:
    with started(lambda: Valkey.start(own=True)) as server:
        yield server


class Leading:
    """The leader of a fleet with five events to tell, and a Redis that is down."""

    def __init__(self, resources: Resources) -> None:
        self.resources, self.told = resources, list[CallRetried]()
        resources.events.listen(CallRetried, self.told.append)
        self.leader = Leader(
            resources.leases, resources.events, name="leader", holder=resources.name, ttl=timedelta(minutes=5)
        )

    def delivery(self, retry: RetryPolicy) -> Delivery:
        resources = self.resources
        assert resources.redis is not None
        sink = ConfiguredSink(name="redis", kind="redis", sink=RedisStreamSink(resources.redis))
        return Delivery(sink, delivery_store(resources), self.leader, resources.events, retry=retry)

    async def keys(self) -> list[str]:
        assert self.resources.redis is not None
        answer: Any = await self.resources.redis.xrange("crawler:events")
        return [fields[b"key"].decode() for _, fields in answer]


@pytest.fixture
async def leading(migrated_url: str, own: Valkey) -> AsyncIterator[Leading]:
    own.revive()
    own.flush()
    async with open_resources(Settings(database_url=migrated_url, redis_url=own.url, hostname="test")) as resources:
        leading = Leading(resources)
        await leading.leader.step()
        await resources.keeping.keep(
            await given_lease(resources, ttl=4 * TTL), Batch([Item(str(n), n) for n in range(5)])
        )
        await leading.delivery(QUICK).prepare()
        await Relay(resources.keeping, leading.leader, resources.events, resources.clock).step()
        own.kill()
        yield leading
        own.revive()


@pytest.mark.spec("F1", "G4")
async def test_events_leave_in_order_once_redis_is_back(leading: Leading, own: Valkey) -> None:
    step = asyncio.create_task(leading.delivery(QUICK).step())
    await eventually(lambda: len(leading.told) >= 2)
    own.start_again()
    await step
    assert await leading.keys() == ["0", "1", "2", "3", "4"]
    assert [event.attempt for event in leading.told[:2]] == [1, 2]
    assert {(e.target, e.method, e.reason) for e in leading.told} == {("redis", "publish", "ConnectionError")}


@pytest.mark.spec("F1")
async def test_after_the_last_attempt_the_step_fails_and_the_events_stay(leading: Leading, own: Valkey) -> None:
    with pytest.raises(Transient):
        await leading.delivery(RetryPolicy(attempts=2, base=timedelta(milliseconds=1))).step()
    assert len(leading.told) == 1
    [shown] = await leading.resources.repositories.sinks.rows()
    assert (shown.state, shown.lag_events, shown.retry_at is not None) == ("failing", 5, True)
    assert "Redis cannot be reached" in (shown.error or "")
    own.start_again()
    await leading.resources.repositories.sinks.pause("redis", paused=False)
    await leading.delivery(QUICK).step()
    assert len(await leading.keys()) == 5


@pytest.mark.spec("G7")
async def test_a_delivery_that_waits_to_try_again_does_not_hold_up_who_leaves(leading: Leading, own: Valkey) -> None:
    an_hour = timedelta(hours=1)
    delivery = leading.delivery(RetryPolicy(elapsed=100 * an_hour, base=an_hour, longest=an_hour))
    step = asyncio.create_task(delivery.step())
    await eventually(lambda: leading.told)
    delivery.stop()
    assert await step is None
    own.start_again()
    assert await leading.keys() == []
    await leading.delivery(QUICK).step()
    assert len(await leading.keys()) == 5
