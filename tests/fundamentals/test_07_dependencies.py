"""7. Dependencies: a job that waits for others.

`depends_on` names jobs. When the job is due, it waits until each of them has succeeded since its own last run. The wait
is shown, holds no slot, and survives restarts. Declare the dependencies first.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from floodmark import Floodmark, FloodmarkError

from .running import opened, running


async def one_item() -> AsyncIterator[dict[str, Any]]:
    """Yield one item; its content does not matter here."""
    yield {"id": 1}


@pytest.mark.spec("V7")
async def test_a_job_waits_until_its_dependencies_have_succeeded(app: Floodmark) -> None:
    """The report is due at once and waits for posts and prices, which run on demand."""
    app.collector(name="posts")(one_item)
    app.collector(name="prices")(one_item)
    app.collector(name="report", every="1h", depends_on=("posts", "prices"))(one_item)

    async with running(app) as floodmark:
        report = await floodmark.wait_for_fire("report")
        assert (await floodmark.wait_for_state(report, "waiting")).reason == "waits for posts, prices to succeed"
        assert await floodmark.explain("report") == "waiting until posts, prices succeed"

        await floodmark.run_and_wait("posts")
        assert await floodmark.explain("report") == "waiting until prices succeeds"

        await floodmark.run_and_wait("prices")
        assert (await floodmark.wait_for_state(report, "done")).attempt == 1


@pytest.mark.spec("V7")
async def test_a_manual_run_does_not_wait(app: Floodmark) -> None:
    """`floodmark run report` runs it now, without waiting for dependencies."""
    app.collector(name="posts")(one_item)
    app.collector(name="report", depends_on=("posts",))(one_item)

    async with running(app) as floodmark:
        assert (await floodmark.run_and_wait("report")).state == "done"


@pytest.mark.spec("V7", "G9")
async def test_an_unknown_dependency_is_refused(app: Floodmark) -> None:
    """A wrong name is an error at start-up, not an endless wait."""
    app.collector(name="posts")(one_item)
    app.collector(name="report", depends_on=("post-operations",))(one_item)

    with pytest.raises(FloodmarkError, match="post-operations"):
        async with opened(app):
            pass


@pytest.mark.spec("V7", "G9")
async def test_a_dependency_cycle_is_refused(app: Floodmark, settings: Any) -> None:
    """Two jobs that wait for each other would wait forever; the error shows the cycle."""
    app.collector(name="posts")(one_item)
    app.collector(name="report", depends_on=("posts",))(one_item)
    async with opened(app):
        pass

    # A later version of the program, on the same database.
    app = Floodmark(settings)
    app.collector(name="posts", depends_on=("report",))(one_item)
    app.collector(name="report", depends_on=("posts",))(one_item)

    with pytest.raises(FloodmarkError, match="posts -> report -> posts"):
        async with opened(app):
            pass
