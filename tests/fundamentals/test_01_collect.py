"""1. Collect: a function yields items, and Floodmark stores them.

A *collector* is a function that yields items. `@app.collector` sets when it runs and which field identifies an item. It
creates a *job* of that name. Each time the job is due, Floodmark creates an *execution*, a worker runs it, and the
items are stored in a *stream*, here `python:posts`.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from floodmark import Floodmark

from .running import running


@pytest.mark.spec("G3", "G8")
async def test_yielded_items_are_stored(app: Floodmark) -> None:
    """A new job with an interval runs at once, then at each interval."""

    @app.collector(every="1h", key="id")
    async def posts() -> AsyncIterator[dict[str, Any]]:
        yield {"id": 1, "title": "Ice on the river"}
        yield {"id": 2, "title": "The ferry is back"}

    async with running(app) as floodmark:
        execution = await floodmark.wait_for_first_run("posts")

        assert execution.state == "done"
        assert execution.items_new == 2
        assert await floodmark.items("posts") == {
            "1": {"id": 1, "title": "Ice on the river"},
            "2": {"id": 2, "title": "The ferry is back"},
        }


@pytest.mark.spec("V1")
async def test_a_job_without_a_schedule_runs_on_demand(app: Floodmark) -> None:
    """`floodmark run posts` runs any job now. A job without a schedule runs only this way."""

    @app.collector(key="id")
    async def posts() -> AsyncIterator[dict[str, Any]]:
        yield {"id": 1}

    async with running(app) as floodmark:
        assert await floodmark.explain("posts") == "runs when triggered: floodmark run posts"

        execution = await floodmark.run_and_wait("posts")

        assert execution.state == "done"
        assert list(await floodmark.items("posts")) == ["1"]


@pytest.mark.spec("G8")
async def test_stored_items_survive_a_restart(app: Floodmark) -> None:
    """All state is in the database. By default this is one file, `.floodmark/floodmark.db`."""

    @app.collector(key="id")
    async def posts() -> AsyncIterator[dict[str, Any]]:
        yield {"id": 1}

    async with running(app) as floodmark:
        await floodmark.run_and_wait("posts")

    async with running(app) as floodmark:
        assert list(await floodmark.items("posts")) == ["1"]
        assert len(await floodmark.executions("posts")) == 1
