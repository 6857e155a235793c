"""Items to deliver, and deliveries step by step."""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from floodmark.coordination.leader import Leader
from floodmark.model.batch import Batch, Item
from floodmark.model.outcome import Done
from floodmark.outbound.retrying import RetryPolicy
from floodmark.sinks.delivery import ConfiguredSink, Delivery
from floodmark.sinks.loading import open_one
from floodmark.sinks.relay import Relay
from floodmark.testing.contracts.event_sink import delivery_store
from floodmark.testing.factories import TTL, given_lease, settle
from floodmark.wiring.resources import Resources
from floodmark.wiring.services import services_for

# For tests where the kind of database does not matter.
on_sqlite = pytest.mark.parametrize("opened", ["sqlite"], indirect=True)
ONCE = RetryPolicy(attempts=1, base=timedelta(milliseconds=1))


async def collect(resources: Resources, leader: Leader, *values: Any, stream: str = "test:events") -> None:
    """Store items with these values and number their events; the key is the value, or its `key`."""
    lease = await given_lease(resources, ttl=10 * TTL)
    items = [Item(str(value["key"] if isinstance(value, dict) else value), value) for value in values]
    await resources.keeping.keep(lease, Batch(items, stream=stream))
    await settle(resources, lease, Done())
    relay = Relay(resources.keeping, leader, resources.events, resources.clock)
    while await relay.step() is not None:
        pass


def configured(resources: Resources, name: str, kind: str, section: Mapping[str, str]) -> ConfiguredSink:
    """A sink, as SINKS and its options configure it."""
    foreign = {f"SINK_{name}_{option}".upper(): text for option, text in section.items()}
    settings = resources.settings.model_copy(update={"sinks": f"{name}={kind}"}).with_foreign(foreign)
    return open_one(settings, partial(services_for, resources), name)


def delivery(resources: Resources, leader: Leader, sink: ConfiguredSink, retry: RetryPolicy = ONCE) -> Delivery:
    return Delivery(sink, delivery_store(resources), leader, resources.events, retry=retry)


async def deliver_all(resources: Resources, leader: Leader, sink: ConfiguredSink) -> None:
    """Deliver until the sink is up to date or has failed, without waiting after an earlier failure."""
    delivering = delivery(resources, leader, replace(sink))
    await delivering.prepare()
    await resources.repositories.sinks.pause(sink.name, paused=False)
    try:
        for _ in range(10_000):
            if await delivering.step() != timedelta():
                return
    finally:
        await delivering.close()
