"""5. Slow down: a source that asks us to wait is obeyed, and nobody waits in a worker.

Raise `SlowDown(after, key)` when a source answers 429 or the like. The execution becomes *waiting* until then. That
costs no attempt, because nothing failed; it frees the slot, because waiting is not work; and it goes on behind what it
had collected. The limit holds for every job that says `limit_key` with the same key, on all workers.
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
    """Three jobs, two of them on one feed, which at first asks to be left alone for three seconds."""
    calls: list[tuple[str, int | None]] = []

    @app.collector(key="id", watermark="id", limit_key=FEED)
    async def harbour(since: int | None) -> AsyncIterator[dict[str, Any]]:
        calls.append(("harbour", since))
        if since is None:
            yield {"id": 1}
            raise SlowDown(timedelta(seconds=3), key=FEED, reason="429 Too Many Requests")
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
async def test_waiting_costs_no_attempt_and_goes_on_where_it_was(
    app: Floodmark, calls: list[tuple[str, int | None]]
) -> None:
    """`attempt` is still 1 when it is done, and the first item was not asked for again."""
    async with running(app) as floodmark:
        harbour = await floodmark.run("harbour")
        told = await floodmark.reaches(harbour, "waiting")
        assert told.reason == "429 Too Many Requests"
        assert (await floodmark.explain("harbour")).startswith("429 Too Many Requests; continues at ")

        done = await floodmark.reaches(harbour, "done")

        assert done.attempt == 1
        assert done.items_new == 2
        assert calls == [("harbour", None), ("harbour", 1)]


@pytest.mark.spec("G5")
async def test_waiting_frees_the_slot(app: Floodmark, calls: list[tuple[str, int | None]]) -> None:
    """This worker has one slot. While one job waits, another runs in it."""
    async with running(app) as floodmark:
        harbour = await floodmark.run("harbour")
        await floodmark.reaches(harbour, "waiting")

        assert (await floodmark.collected("elsewhere")).state == "done"
        assert (await floodmark.execution(harbour)).state == "waiting"
        assert calls == [("harbour", None), ("elsewhere", None)]


@pytest.mark.spec("G5")
async def test_a_limit_holds_for_all_jobs_with_its_key(app: Floodmark, calls: list[tuple[str, int | None]]) -> None:
    """The other job on this feed is not even started until the limit is over."""
    async with running(app) as floodmark:
        await floodmark.reaches(await floodmark.run("harbour"), "waiting")
        assert await floodmark.limits() == {FEED: "429 Too Many Requests"}

        weather = await floodmark.run("weather")
        assert (await floodmark.reaches(weather, "waiting")).reason == "429 Too Many Requests"
        assert calls == [("harbour", None)]

        assert (await floodmark.reaches(weather, "done")).attempt == 1
