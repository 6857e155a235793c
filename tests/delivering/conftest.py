"""What the tests of sinks share."""

from collections.abc import AsyncIterator, Iterator

import pytest

from delivering.receivers import EventReceiver, KafkaCluster
from floodmark.coordination.leader import Leader
from floodmark.testing.factories import TTL, Opened
from floodmark.wiring.resources import Resources


@pytest.fixture(params=["sqlite", "postgres_only"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def resources(opened: Opened) -> AsyncIterator[Resources]:
    async with opened() as resources:
        yield resources


@pytest.fixture
async def leader(resources: Resources) -> Leader:
    leader = Leader(resources.leases, resources.events, name="leader", holder=resources.name, ttl=10 * TTL)
    await leader.step()
    return leader


@pytest.fixture
def receiver() -> Iterator[EventReceiver]:
    with EventReceiver().serving() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    cluster = KafkaCluster()
    yield cluster
    cluster.close()
