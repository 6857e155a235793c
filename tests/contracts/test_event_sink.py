"""The event sink contract for Redis streams, webhooks, Kafka and files."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from delivering.receivers import EventReceiver, KafkaCluster, position_of
from floodmark.model.batch import Item
from floodmark.model.ids import new_id
from floodmark.sinks.files import Artifacts, FilesSink
from floodmark.sinks.kafka import open_kafka
from floodmark.sinks.port import EventSink
from floodmark.sinks.redis_stream import RedisStreamSink
from floodmark.sinks.webhook import open_webhook
from floodmark.sources.telegram.stored_posts import Posts
from floodmark.testing.contracts.event_sink import Delivered, EventSinkContract
from floodmark.testing.factories import Opened
from floodmark.wiring.resources import Resources
from floodmark.wiring.services import services_for
from system.channel_posts import HARBOUR, a_post

pytest_plugins = ("backends",)
pytestmark = pytest.mark.spec("G4", "T7")


class TestRedisStreamSink(EventSinkContract):
    @pytest.fixture
    async def resources(self, redis_on_sqlite: Opened) -> AsyncIterator[Resources]:
        async with redis_on_sqlite() as resources:
            yield resources

    @pytest.fixture
    def sink(self, resources: Resources) -> EventSink:
        assert resources.redis is not None
        return RedisStreamSink(resources.redis)

    @pytest.fixture
    def delivered(self, resources: Resources) -> Delivered:
        async def keys() -> list[str]:
            assert resources.redis is not None
            answer: Any = await resources.redis.xrange("crawler:events")
            return [fields[b"key"].decode() for _, fields in answer]

        return keys


@pytest.mark.spec("F4")
class TestFilesSink(EventSinkContract):
    """This sink accepts only posts of Telegram channels. A file contains the posts of a day in order."""

    stream = f"telegram:{HARBOUR}"
    repeats_stored_items = True

    def an_item(self, number: int) -> Item:
        return a_post(number)

    @pytest.fixture
    async def resources(self, sqlite: Opened) -> AsyncIterator[Resources]:
        async with sqlite() as resources:
            yield resources

    @pytest.fixture
    def sink(self, resources: Resources, tmp_path: Path) -> EventSink:
        posts = Posts(resources.database)
        return FilesSink(Artifacts(posts, tmp_path / "out"), posts)

    @pytest.fixture
    def delivered(self, tmp_path: Path) -> Delivered:
        async def keys() -> list[str]:
            files = sorted((tmp_path / "out").rglob("*.json"))
            messages = [message for path in files for message in json.loads(path.read_text())["messages"]]
            return [f"{HARBOUR}:{message['id']}" for message in messages]

        return keys


@pytest.mark.spec("B7")
class TestWebhookSink(EventSinkContract):
    """On both databases: the delivery of all sinks is the same."""

    @pytest.fixture(params=["sqlite", "postgres_only"])
    def opened(self, request: pytest.FixtureRequest) -> Opened:
        found: Opened = request.getfixturevalue(request.param)
        return found

    @pytest.fixture
    async def resources(self, opened: Opened) -> AsyncIterator[Resources]:
        async with opened() as resources:
            yield resources

    @pytest.fixture
    def receiver(self) -> Iterator[EventReceiver]:
        with EventReceiver().serving() as receiver:
            yield receiver

    @pytest.fixture
    def sink(self, resources: Resources, receiver: EventReceiver) -> EventSink:
        section = {"url": f"{receiver.url}/events", "batch": "3"}
        sink = open_webhook(replace(services_for(resources, "hook"), section=section, instance="hook"))
        assert sink is not None
        return sink

    @pytest.fixture
    def delivered(self, receiver: EventReceiver) -> Delivered:
        async def keys() -> list[str]:
            return receiver.keys

        return keys


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    cluster = KafkaCluster()
    yield cluster
    cluster.close()


@pytest.mark.spec("B7")
class TestKafkaSink(EventSinkContract):
    """Keys are spread over the partitions; the positions give the order."""

    @pytest.fixture
    def topic(self) -> str:
        return f"events-{new_id()}"

    @pytest.fixture
    async def resources(self, sqlite: Opened) -> AsyncIterator[Resources]:
        async with sqlite() as resources:
            yield resources

    @pytest.fixture
    def sink(self, resources: Resources, cluster: KafkaCluster, topic: str) -> EventSink:
        section = {"servers": cluster.servers, "topic": topic, "timeout": "60"}
        sink = open_kafka(replace(services_for(resources, "lake"), section=section, instance="lake"))
        assert sink is not None
        return sink

    @pytest.fixture
    def delivered(self, cluster: KafkaCluster, topic: str) -> Delivered:
        async def keys() -> list[str]:
            messages = await asyncio.to_thread(cluster.read, topic)
            return [json.loads(message.value() or b"")["key"] for message in sorted(messages, key=position_of)]

        return keys
