"""The source contract for Python functions of every kind."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from floodmark.model.batch import Batch, Item
from floodmark.sources.port import Source, Target
from floodmark.sources.python import Collector, PythonSource
from floodmark.testing.contracts.source import SourceContract

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
POSTS = [{"id": n, "text": f"post {n}", "at": (NOON + timedelta(minutes=n)).isoformat()} for n in range(1, 8)]


def newer(since: int | None) -> list[dict[str, Any]]:
    return [post for post in POSTS if post["id"] > (since or 0)]  # type: ignore[operator]  # a mixed dictionary


async def async_generator(since: int | None) -> AsyncIterator[dict[str, Any]]:
    for post in newer(since):
        yield post


def generator(since: int | None) -> Iterator[dict[str, Any]]:
    yield from newer(since)


def function(since: int | None) -> list[dict[str, Any]]:
    return newer(since)


async def coroutine(since: int | None) -> list[dict[str, Any]]:
    return newer(since)


async def batches() -> AsyncIterator[Batch]:
    """Start from the beginning each time: this function uses no watermark."""
    for post in POSTS:
        yield Batch([Item(str(post["id"]), post)])


class TestPythonSource(SourceContract):
    @pytest.fixture
    def source(self) -> Source:
        collectors = {
            made.__name__: Collector(function=made, key="id", watermark="id", occurred_at="at", batch_size=3)
            for made in (async_generator, generator, function, coroutine)
        }
        return PythonSource({**collectors, "batches": Collector(function=batches)})

    @pytest.fixture(params=["async_generator", "generator", "function", "coroutine", "batches"])
    def target(self, request: pytest.FixtureRequest) -> Target:
        return Target(name=request.param, stream=f"python:{request.param}", params={})

    @pytest.fixture(
        params=["no such function", "no_such_module:f", "floodmark.model.ids:nothing", "floodmark.model.ids:__doc__"]
    )
    def nonsense(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)
