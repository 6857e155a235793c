"""3. Once: an item is recorded once, even if it is found again.

`key` is the permanent identity of an item within its stream. An item that is found again is known and changes nothing.
With different content it becomes a new *revision*: you read the newest, and the earlier ones stay stored.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from floodmark import Floodmark

from .running import running


@pytest.mark.spec("G3")
async def test_an_item_that_is_found_twice_is_recorded_once(app: Floodmark) -> None:
    """A source that always returns everything works without a watermark."""

    @app.collector(key="id")
    async def prices() -> AsyncIterator[dict[str, Any]]:
        yield {"id": "apple", "price": 3}
        yield {"id": "pear", "price": 4}

    async with running(app) as floodmark:
        first = await floodmark.run_and_wait("prices")
        second = await floodmark.run_and_wait("prices")

        assert (first.items_new, first.items_known) == (2, 0)
        assert (second.items_new, second.items_known) == (0, 2)
        assert list(await floodmark.items("prices")) == ["apple", "pear"]


@pytest.mark.spec("G3")
async def test_a_changed_item_is_a_new_revision(app: Floodmark) -> None:
    """Nothing is overwritten: earlier revisions can still be read."""
    price = {"id": "apple", "price": 3}

    @app.collector(key="id")
    async def prices() -> AsyncIterator[dict[str, Any]]:
        yield price

    async with running(app) as floodmark:
        await floodmark.run_and_wait("prices")
        price = {"id": "apple", "price": 5}
        second = await floodmark.run_and_wait("prices")

        assert (second.items_new, second.items_changed) == (0, 1)
        assert await floodmark.items("prices") == {"apple": {"id": "apple", "price": 5}}
        assert await floodmark.revisions("prices", "apple") == [
            {"id": "apple", "price": 5},
            {"id": "apple", "price": 3},
        ]


@pytest.mark.spec("G3")
async def test_without_a_key_the_content_is_the_identity(app: Floodmark) -> None:
    """Equal items are then one item, and a changed item is a different item, not a revision."""
    lines = ["one", "two"]

    @app.collector()
    async def log() -> AsyncIterator[dict[str, Any]]:
        for line in lines:
            yield {"line": line}

    async with running(app) as floodmark:
        await floodmark.run_and_wait("log")
        lines.append("three")
        second = await floodmark.run_and_wait("log")

        assert (second.items_new, second.items_known) == (1, 2)
        assert len(await floodmark.items("log")) == 3
