"""5. Slow down: honour rate limits without blocking a worker.

Raise `SlowDown(after, key)` when a source returns 429 or a similar error. The execution becomes *waiting* for that
time. This costs no attempt and frees the slot; later the execution continues after its last stored item. The limit
applies to every job with the same `limit_key`, on all workers.
"""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from floodmark import Floodmark, SlowDown

from .running import running

FEED = "feed.example"


@pytest.fixture
def calls(app: Floodmark) -> list[tuple[str, int | None]]:
    """Declare three jobs, two of them for one feed, which first requests a wait of eight seconds."""
    calls: list[tuple[str, int | None]] = []

    @app.collector(key="id", watermark="id", limit_key=FEED)
    async def harbour(since: int | None) -> AsyncIterator[dict[str, Any]]:
        calls.append(("harbour", since))
        if since is None:
            yield {"id": 1}
            raise SlowDown(timedelta(seconds=8), key=FEED, reason="429 Too Many Requests")
        yield {"id": 2}

    @app.collector(key="id", limit_key=FEED)
    async def weather() -> AsyncIterator[dict[str, Any]]:
        calls.append(("weather", None))
        yield {"id": 1}

    @app.collector(key="id")
    async def elsewhere() -> AsyncIterator[dict[str, Any]]:
        calls.append(("elsewhere", None))
        yield {"id": 1}

    return calls


@pytest.mark.spec("G5", "T4")
@pytest.mark.thorough
async def test_waiting_costs_no_attempt(app: Floodmark, calls: list[tuple[str, int | None]]) -> None:
    """`attempt` is still 1 at the end, and the first item was not requested again."""
    async with running(app) as floodmark:
        harbour = await floodmark.run("harbour")
        waiting = await floodmark.wait_for_state(harbour, "waiting")
        assert waiting.reason == "429 Too Many Requests"
        assert (await floodmark.explain("harbour")).startswith("429 Too Many Requests; continues at ")

        done = await floodmark.wait_for_state(harbour, "done")

        assert done.attempt == 1
        assert done.items_new == 2
        assert calls == [("harbour", None), ("harbour", 1)]


@pytest.mark.spec("G5")
async def test_waiting_frees_the_slot(app: Floodmark, calls: list[tuple[str, int | None]]) -> None:
    """This worker has one slot. While one job waits, another runs in it."""
    async with running(app) as floodmark:
        harbour = await floodmark.run("harbour")
        await floodmark.wait_for_state(harbour, "waiting")

        assert (await floodmark.run_and_wait("elsewhere")).state == "done"
        assert (await floodmark.execution(harbour)).state == "waiting"
        assert calls == [("harbour", None), ("elsewhere", None)]


@pytest.mark.spec("G5")
@pytest.mark.thorough
async def test_a_limit_applies_to_all_jobs_with_its_key(app: Floodmark, calls: list[tuple[str, int | None]]) -> None:
    """The other job of this feed does not start until the limit is over."""
    async with running(app) as floodmark:
        await floodmark.wait_for_state(await floodmark.run("harbour"), "waiting")
        assert await floodmark.limits() == {FEED: "429 Too Many Requests"}

        weather = await floodmark.run("weather")
        assert (await floodmark.wait_for_state(weather, "waiting")).reason == "429 Too Many Requests"
        assert calls == [("harbour", None)]

        assert (await floodmark.wait_for_state(weather, "done")).attempt == 1
