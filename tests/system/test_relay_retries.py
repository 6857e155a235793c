"""The relay while Redis is away: it tries again, loses nothing, keeps the order, and lets go when told to stop."""

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
from floodmark.sinks.redis_stream import RedisStreamSink
from floodmark.sinks.relay import Relay
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

    def relay(self, retry: RetryPolicy) -> Relay:
        resources = self.resources
        assert resources.redis is not None
        sinks = {"redis": RedisStreamSink(resources.redis)}
        return Relay(resources.keeping, self.leader, resources.events, resources.clock, sinks=sinks, retry=retry)

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
        own.kill()
        yield leading
        own.revive()


@pytest.mark.spec("F1", "G4")
async def test_events_leave_in_order_once_redis_is_back(leading: Leading, own: Valkey) -> None:
    step = asyncio.create_task(leading.relay(QUICK).step())
    await eventually(lambda: len(leading.told) >= 2)
    own.start_again()
    await step
    assert await leading.keys() == ["0", "1", "2", "3", "4"]
    assert [event.attempt for event in leading.told[:2]] == [1, 2]
    assert {(e.target, e.method, e.reason) for e in leading.told} == {("redis", "publish", "ConnectionError")}


@pytest.mark.spec("F1")
async def test_after_the_last_attempt_the_step_fails_and_the_events_stay(leading: Leading, own: Valkey) -> None:
    with pytest.raises(Transient):
        await leading.relay(RetryPolicy(attempts=2, base=timedelta(milliseconds=1))).step()
    assert len(leading.told) == 1
    own.start_again()
    await leading.relay(QUICK).step()
    assert len(await leading.keys()) == 5


@pytest.mark.spec("G7")
async def test_a_relay_that_waits_to_try_again_does_not_hold_up_who_leaves(leading: Leading, own: Valkey) -> None:
    an_hour = timedelta(hours=1)
    relay = leading.relay(RetryPolicy(elapsed=100 * an_hour, base=an_hour, longest=an_hour))
    step = asyncio.create_task(relay.step())
    await eventually(lambda: leading.told)
    relay.stop()
    assert await step is None
    own.start_again()
    assert await leading.keys() == []
    await leading.relay(QUICK).step()
    assert len(await leading.keys()) == 5
