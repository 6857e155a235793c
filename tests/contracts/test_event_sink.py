"""The event sink contract for files and for a Redis stream."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from floodmark.model.batch import Item
from floodmark.sinks.files import Artifacts, FilesSink
from floodmark.sinks.port import EventSink
from floodmark.sinks.redis_stream import RedisStreamSink
from floodmark.sources.telegram.stored_posts import Posts
from floodmark.testing.contracts.event_sink import Delivered, EventSinkContract
from floodmark.testing.factories import Opened
from floodmark.wiring.resources import Resources
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
