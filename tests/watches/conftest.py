"""A desk on each database, and one whose clock can be set."""

from collections.abc import AsyncIterator, Iterator

import pytest

from floodmark.testing.clock import SetClock
from floodmark.testing.factories import Opened
from notifying.receivers import Receiver
from watches.desk import WatchDesk, open_desk


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().serving() as receiver:
        yield receiver


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture(params=["sqlite", "postgres_only"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def desk(opened: Opened, receiver: Receiver) -> AsyncIterator[WatchDesk]:
    """On SQLite and on PostgreSQL."""
    async with open_desk(opened, receiver) as desk:
        yield desk


@pytest.fixture
async def timed(sqlite: Opened, receiver: Receiver, clock: SetClock) -> AsyncIterator[WatchDesk]:
    """On SQLite, where the clock of the process counts."""
    async with open_desk(sqlite, receiver, clock=clock) as desk:
        yield desk


@pytest.fixture
async def light(sqlite: Opened, receiver: Receiver) -> AsyncIterator[WatchDesk]:
    """On SQLite, where the database does not matter."""
    async with open_desk(sqlite, receiver) as desk:
        yield desk
