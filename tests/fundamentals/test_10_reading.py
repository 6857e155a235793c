"""10. Reading: items and events in your own program.

A program that uses what was collected reads *items*, or follows the *events*. A *consumer* is a reader with a name: it
stores the position up to which it has processed the events, so that it continues there after a restart.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from floodmark import Floodmark

from .running import data_of, running


@pytest.mark.spec("T7", "B6")
async def test_items_are_read_with_a_loop(app: Floodmark) -> None:
    """Name streams, jobs or patterns; `since` and `until` take times, days, or durations such as `"7d"`."""

    @app.collector(key="id")
    async def prices() -> AsyncIterator[dict[str, Any]]:
        yield {"id": "apple", "price": 3}
        yield {"id": "pear", "price": 4}

    async with running(app) as floodmark:
        await floodmark.run_and_wait("prices")

        assert {item.key: item.data["price"] async for item in app.items("prices", since="1h")} == {
            "apple": 3,
            "pear": 4,
        }
        assert [item.stream async for item in app.items("python:*")] == ["python:prices", "python:prices"]
        assert [item async for item in app.items("prices", until="2020-01-01")] == []


@pytest.mark.spec("T7")
async def test_a_consumer_continues_where_it_stopped(app: Floodmark) -> None:
    """An event counts as processed once the next one is requested; if the loop ends early, the last is read again."""
    feed = [{"id": n} for n in range(1, 5)]

    @app.collector(key="id")
    async def posts() -> AsyncIterator[dict[str, Any]]:
        for post in feed:
            yield post

    async with running(app) as floodmark:
        await floodmark.run_and_wait("posts")
        await floodmark.events(after=0, count=4)

        assert [data_of(event)["id"] async for event in app.events(consumer="mailer")] == [1, 2, 3, 4]

        feed.append({"id": 5})
        await floodmark.run_and_wait("posts")
        await floodmark.events(after=4, count=1)
        assert [data_of(event)["id"] async for event in app.events(consumer="mailer")] == [5]


@pytest.mark.spec("T7", "G2")
async def test_a_program_can_say_when_events_are_processed(app: Floodmark) -> None:
    """At least once: what was not committed before a crash is read again, with the same `event_id`.

    With `follow=True` the loop does not end, but waits for new events.
    """

    @app.collector(key="id")
    async def posts() -> AsyncIterator[dict[str, Any]]:
        for number in range(1, 5):
            yield {"id": number}

    async with running(app) as floodmark:
        await floodmark.run_and_wait("posts")
        await floodmark.events(after=0, count=4)

        batch = []
        async with app.consumer("indexer") as events:
            async for event in events:
                batch.append(data_of(event)["id"])
                if len(batch) == 2:
                    await events.commit()
                if len(batch) == 3:
                    break  # as if it had crashed before the next commit

        async with app.consumer("indexer") as events:
            assert [data_of(event)["id"] async for event in events] == [3, 4]
