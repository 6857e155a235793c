"""9. Plain functions: a collector does not have to be async.

A generator, or a function that returns a list, runs on a thread (`MAX_WORKERS` of them), so it may block: you can use
any client library. It gets the arguments it declares: `since`, `context`, and the job's `params`. It yields mappings,
dataclasses, msgspec structs or pydantic models.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from floodmark import Context, Floodmark

from .running import running


@pytest.mark.spec("G8")
async def test_a_function_can_return_a_list(app: Floodmark) -> None:
    """It runs on a separate thread, so it does not block the renewal of leases."""
    threads = []

    @app.collector(key="id")
    def posts() -> list[dict[str, Any]]:
        threads.append(threading.current_thread())
        return [{"id": 1}, {"id": 2}]

    async with running(app) as floodmark:
        await floodmark.run_and_wait("posts")

        assert list(await floodmark.items("posts")) == ["1", "2"]
        assert threads != [threading.main_thread()]


@dataclass
class Post:
    """A post to collect."""

    number: int
    at: datetime


@pytest.mark.spec("G8")
async def test_a_generator_can_yield_dataclasses(app: Floodmark) -> None:
    """`key` and `watermark` may be functions; `occurred_at` is the time of the item, not of its collection."""

    @app.collector(key=lambda post: f"post-{post.number}", watermark="number", occurred_at="at")
    def posts(since: int | None) -> Iterator[Post]:
        for number in range((since or 0) + 1, 3):
            yield Post(number, datetime(2026, 6, number, tzinfo=UTC))

    async with running(app) as floodmark:
        await floodmark.run_and_wait("posts")

        assert list(await floodmark.items("posts")) == ["post-1", "post-2"]
        assert await floodmark.watermark("posts") == 2
        newest = (await floodmark.events(after=0, count=2))[-1]
        assert newest.occurred_at == datetime(2026, 6, 2, tzinfo=UTC)


@pytest.mark.spec("G8")
async def test_several_jobs_can_share_a_function(app: Floodmark) -> None:
    """`params` are stored with the job. `context` describes the execution."""
    calls = []

    def posts(topic: str, context: Context) -> Iterator[dict[str, Any]]:
        calls.append((context.job_name, context.attempt, context.trigger))
        yield {"title": f"News about {topic}"}

    for topic in ("harbour", "weather"):
        app.collector(name=topic, params={"topic": topic})(posts)

    async with running(app) as floodmark:
        await floodmark.run_and_wait("harbour")
        await floodmark.run_and_wait("weather")

        assert list((await floodmark.items("weather")).values()) == [{"title": "News about weather"}]
        assert calls == [("harbour", 1, "manual"), ("weather", 1, "manual")]
