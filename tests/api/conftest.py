"""A served API on each kind of database."""

from collections.abc import AsyncIterator

import pytest

from api.serving import Api, serving
from floodmark.testing.factories import Opened


@pytest.fixture(params=["sqlite", "postgres_only"])
def opened(request: pytest.FixtureRequest) -> Opened:
    """How to open a process on a database of either kind."""
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def api(opened: Opened) -> AsyncIterator[Api]:
    """The API over an empty database, either kind."""
    async with serving(opened) as api:
        yield api


@pytest.fixture
async def light(sqlite: Opened) -> AsyncIterator[Api]:
    """The API over an empty SQLite database, where the kind does not matter."""
    async with serving(sqlite) as api:
        yield api
