"""2. Incremental: collect only new items.

`watermark` names the field that shows how far a stream is collected. The function gets its last value as `since`, or
None the first time. The watermark moves in the same transaction that stores the items, so it is never ahead of them.

Yield the oldest item first. A run may end at any point, and the next one continues after the last stored item.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from floodmark import Floodmark, Transient

from .running import running


@pytest.mark.spec("G3", "T3")
async def test_each_run_continues_where_the_last_one_ended(app: Floodmark) -> None:
    """The second run requests only newer items."""
    feed = [{"id": 1}, {"id": 2}]
    asked_since = []

    @app.collector(key="id", watermark="id")
    async def posts(since: int | None) -> AsyncIterator[dict[str, Any]]:
        asked_since.append(since)
        for post in feed:
            if since is None or post["id"] > since:
                yield post

    async with running(app) as floodmark:
        await floodmark.run_and_wait("posts")
        feed += [{"id": 3}, {"id": 4}]
        second = await floodmark.run_and_wait("posts")

        assert asked_since == [None, 2]
        assert second.items_new == 2
        assert list(await floodmark.items("posts")) == ["1", "2", "3", "4"]
        assert await floodmark.watermark("posts") == 4


@pytest.mark.spec("G3", "T3")
async def test_an_interrupted_run_loses_nothing(app: Floodmark) -> None:
    """Items that were yielded before the error are stored; the next attempt continues after them."""
    asked_since = []

    @app.collector(key="id", watermark="id")
    async def posts(since: int | None) -> AsyncIterator[dict[str, Any]]:
        asked_since.append(since)
        for number in range((since or 0) + 1, 5):
            if number == 3 and since is None:
                raise Transient("the connection was lost")
            yield {"id": number}

    async with running(app) as floodmark:
        execution = await floodmark.run_and_wait("posts")

        assert asked_since == [None, 2]
        assert execution.items_new == 4
        assert list(await floodmark.items("posts")) == ["1", "2", "3", "4"]
