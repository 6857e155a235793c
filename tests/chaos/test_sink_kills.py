"""Sinks of a process that is killed again and again: every event arrives at least once, those of a stream in order.

The receivers are real, and outlive the processes: a server that takes webhooks, and a Kafka cluster. The moments come
from a seed, which is printed; FLOODMARK_CHAOS_SEED repeats them.
"""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from operator import le
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from chaos.fleet import Fleet, eventually
from chaos.process import Order
from delivering.receivers import OK, Answer, Delivered, EventReceiver, KafkaCluster, header_of, position_of
from floodmark.model.batch import Batch, Item
from floodmark.settings import Settings
from floodmark.testing.factories import TTL, given_lease
from floodmark.wiring.resources import Resources, open_resources

PATIENCE = 180.0
STREAMS, ITEMS, BATCH, TOPIC = ("test:a", "test:b", "test:c"), 150, 10, "events"
EXPECTED = len(STREAMS) * ITEMS
SETTINGS: dict[str, Any] = {
    "execution_lease": "1",
    "scheduler_leader_ttl": "1",
    "hostname": "chaos",
    "sinks": "hook=webhook, lake=kafka, files=files",
}
POINTS = ("relay.published:kill", "deliver.sent:kill@2", "deliver.sent:kill@5")


class Receivers(NamedTuple):
    """Where the events arrive."""

    webhooks: EventReceiver
    kafka: KafkaCluster

    async def requests(self) -> int:
        return len(self.webhooks.asked)


@pytest.fixture
def receivers(chance: random.Random) -> Iterator[Receivers]:
    def judge(_: Delivered) -> Answer:
        # Long enough to be killed at any step of a delivery.
        time.sleep(chance.random() * 0.02)
        return OK

    cluster = KafkaCluster()
    with EventReceiver().serving() as receiver:
        receiver.judge = judge
        yield Receivers(receiver, cluster)
    cluster.close()


@pytest.fixture
def moments(chance: random.Random, is_release: bool) -> list[int]:
    """After how many requests each process is killed that is not killed at a fail-point."""
    return [chance.randrange(3, 12) for _ in range(3 if is_release else 1)]


@pytest.fixture(params=[pytest.param("sqlite_copy", marks=pytest.mark.release), "pg_clean"])
def database_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@asynccontextmanager
async def stocked(url: str) -> AsyncIterator[Resources]:
    """A store with events that nobody has numbered."""
    async with open_resources(Settings(database_url=url, hostname="test")) as resources:
        lease = await given_lease(resources, ttl=60 * TTL)
        for first in range(0, ITEMS, 50):
            for stream in STREAMS:
                items = [Item(f"{number:04}", {"number": number}) for number in range(first, first + 50)]
                await resources.keeping.keep(lease, Batch(items, stream=stream))
        yield resources


@pytest.mark.spec("B7", "G4")
@pytest.mark.thorough
async def test_events_arrive_in_order_however_often_the_process_is_killed(
    fleet: Fleet, moments: list[int], receivers: Receivers, tmp_path: Path, database_url: str
) -> None:
    receiver, cluster = receivers
    options = {
        "SINK_HOOK_URL": f"{receiver.url}/events",
        "SINK_HOOK_BATCH": str(BATCH),
        "SINK_LAKE_SERVERS": cluster.servers,
        "SINK_LAKE_TOPIC": TOPIC,
        "SINK_LAKE_TIMEOUT": "60",
        "SINK_FILES_FOLDER": str(tmp_path / "files"),
    }
    settings = {**SETTINGS, "database_url": database_url}

    def order(name: str, failpoint: str = "") -> Order:
        return Order(
            name=name,
            settings=settings,
            options=options,
            folder=str(fleet.folder),
            scheduler=True,
            worker=False,
            failpoint=failpoint,
            seconds=600,
        )

    async with stocked(database_url) as resources:
        for number, point in enumerate(POINTS):
            fleet.start(order(f"victim-{number}", point))
            assert await fleet.ended(f"victim-{number}", PATIENCE) == -9, fleet.tails()
        for number, moment in enumerate(moments):
            fleet.start(order(f"victim-at-random-{number}"))
            asked = len(receiver.asked) + moment
            await eventually(receivers.requests, partial(le, asked), seconds=PATIENCE, what="some more are sent")
            fleet.kill(f"victim-at-random-{number}")
        fleet.start(order("survivor"))

        async def lags() -> dict[str, int]:
            return {row.name: row.lag_events for row in await resources.repositories.sinks.rows()}

        done = {"files": 0, "hook": 0, "lake": 0}
        await eventually(lags, lambda seen: seen == done, seconds=PATIENCE, what="all are delivered")
        fleet.stop_all()
        shown = {row.name: (row.position, row.dead_letters) for row in await resources.repositories.sinks.rows()}

    assert shown == dict.fromkeys(done, (EXPECTED, 0))
    _check(
        [event for delivered in receiver.taken for event in delivered.events],
        most_repeated=(len(POINTS) + len(moments)) * BATCH,
    )
    messages = await asyncio.to_thread(cluster.read, TOPIC)
    assert all(json.loads(one.value() or b"")["event_id"] == header_of(one, "event_id") for one in messages)
    partitions = {one.partition() for one in messages}
    for partition in partitions:
        here = [position_of(one) for one in messages if one.partition() == partition]
        first = list(dict.fromkeys(here))
        assert first == sorted(first), "a partition is in order of the first arrivals"
    assert {position_of(one) for one in messages} == set(range(1, EXPECTED + 1))


def _check(events: list[dict[str, Any]], *, most_repeated: int) -> None:
    """Each at least once and in order per stream; what was repeated is the same, and not much."""
    copies = Counter(event["event_id"] for event in events)
    assert len(copies) == EXPECTED
    assert sum(copies.values()) - EXPECTED <= most_repeated
    assert len({(event["event_id"], event["position"], str(event["data"])) for event in events}) == EXPECTED
    for stream in STREAMS:
        keys = list(dict.fromkeys(event["key"] for event in events if event["stream"] == stream))
        assert keys == [f"{number:04}" for number in range(ITEMS)]
    positions = list(dict.fromkeys(event["position"] for event in events))
    assert positions == sorted(positions)
