"""8. Events: read changes in order, by position.

Each new or changed item has one *event*, written in the same transaction. Events are numbered in commit order. Store
the position of the last event you have handled, and ask for events after it. With Redis they are also copied to the
stream `crawler:events`, where a crash may repeat an event with the same `event_id`; in the store each event exists
once.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from floodmark import Floodmark

from .running import data_of, running


@pytest.mark.spec("G4", "T7")
async def test_events_are_read_by_position(app: Floodmark) -> None:
    """Use `floodmark events --after N`, or `--follow` to keep reading."""
    feed = [{"id": 1}, {"id": 2}]

    @app.collector(key="id", watermark="id")
    async def posts(since: int | None) -> AsyncIterator[dict[str, Any]]:
        for post in feed:
            if post["id"] > (since or 0):
                yield post

    async with running(app) as floodmark:
        await floodmark.run_and_wait("posts")
        first = await floodmark.events(after=0, count=2)
        assert [data_of(event) for event in first] == [{"id": 1}, {"id": 2}]

        feed.append({"id": 3})
        await floodmark.run_and_wait("posts")
        [second] = await floodmark.events(after=first[-1].position, count=1)

        assert data_of(second) == {"id": 3}
        assert [event.position for event in (*first, second)] == [1, 2, 3]


@pytest.mark.spec("G4")
async def test_an_event_names_its_item_and_the_change(app: Floodmark) -> None:
    """Known items have no event. `event_id` contains stream, key and revision, so a repeated event has the same id."""
    price = {"id": "apple", "price": 3}

    @app.collector(key="id")
    async def prices() -> AsyncIterator[dict[str, Any]]:
        yield price
        yield {"id": "pear", "price": 4}

    async with running(app) as floodmark:
        await floodmark.run_and_wait("prices")
        price = {"id": "apple", "price": 5}
        await floodmark.run_and_wait("prices")
        events = await floodmark.events(after=0, count=3)

        assert [(event.kind, event.event_id) for event in events] == [
            ("item.new", "python:prices/apple/1"),
            ("item.new", "python:prices/pear/1"),
            ("item.changed", "python:prices/apple/2"),
        ]
        assert [data_of(event)["price"] for event in events] == [3, 4, 5], "each event has the content of its revision"
