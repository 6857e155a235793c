"""3. Once: the same item is recorded once, however often it is found.

`key` is the identity of an item within its stream, for ever. An item that is found again is known and changes nothing.
One that is found with other content is a new *revision*: the newest is what you read, the earlier ones stay.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from floodmark import Floodmark

from .running import running


@pytest.mark.spec("G3")
async def test_the_same_item_twice_is_recorded_once(app: Floodmark) -> None:
    """A source that can only give everything is fine, if wasteful: it simply has no watermark."""

    @app.collector(key="id")
    async def prices() -> AsyncIterator[dict[str, Any]]:
        yield {"id": "apple", "price": 3}
        yield {"id": "pear", "price": 4}

    async with running(app) as floodmark:
        first = await floodmark.collected("prices")
        second = await floodmark.collected("prices")

        assert (first.items_new, first.items_known) == (2, 0)
        assert (second.items_new, second.items_known) == (0, 2)
        assert list(await floodmark.items("prices")) == ["apple", "pear"]


@pytest.mark.spec("G3")
async def test_a_changed_item_is_a_new_revision(app: Floodmark) -> None:
    """Nothing is overwritten: what it was before can still be read."""
    price = {"id": "apple", "price": 3}

    @app.collector(key="id")
    async def prices() -> AsyncIterator[dict[str, Any]]:
        yield price

    async with running(app) as floodmark:
        await floodmark.collected("prices")
        price = {"id": "apple", "price": 5}
        second = await floodmark.collected("prices")

        assert (second.items_new, second.items_changed) == (0, 1)
        assert await floodmark.items("prices") == {"apple": {"id": "apple", "price": 5}}
        assert await floodmark.revisions("prices", "apple") == [
            {"id": "apple", "price": 5},
            {"id": "apple", "price": 3},
        ]


@pytest.mark.spec("G3")
async def test_without_a_key_the_content_is_the_identity(app: Floodmark) -> None:
    """Then equal items are one, and a changed one is another item, not a revision."""
    lines = ["one", "two"]

    @app.collector()
    async def log() -> AsyncIterator[dict[str, Any]]:
        for line in lines:
            yield {"line": line}

    async with running(app) as floodmark:
        await floodmark.collected("log")
        lines.append("three")
        second = await floodmark.collected("log")

        assert (second.items_new, second.items_known) == (1, 2)
        assert len(await floodmark.items("log")) == 3
