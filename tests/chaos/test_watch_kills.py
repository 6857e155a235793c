"""`kill -9` between any two steps of a watch: every match is told, and only one documented gap tells it twice."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from sqlalchemy import update

from chaos.fleet import Fleet
from chaos.process import Order
from floodmark.process.failpoints import WATCH_POINTS
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import Opened
from floodmark.watches.tables import watch_notifications
from notifying.receivers import Receiver
from watches.desk import WatchDesk, open_desk, settings_for

pytestmark = pytest.mark.spec("B8", "G1")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().serving() as receiver:
        yield receiver


def process_settings(desk: WatchDesk) -> dict[str, Any]:
    database = str(desk.resources.settings.database_url)
    # The time for which a survivor waits for the lease of the dead.
    return {**settings_for(desk.receiver), "database_url": database, "scheduler_leader_ttl": "1"}


def told(desk: WatchDesk) -> Counter[str]:
    """How often each message was received, by its id."""
    return Counter(message["id"] for message in desk.sent)


def texts(desk: WatchDesk) -> Counter[str]:
    """How often each text was told, in different messages."""
    messages = {message["id"]: message for message in desk.sent}
    return Counter(match["text"] for message in messages.values() for match in message["matches"])


@pytest.mark.thorough
async def test_a_leader_that_is_killed_anywhere_loses_and_doubles_nothing(
    sqlite: Opened, receiver: Receiver, fleet: Fleet
) -> None:
    async with open_desk(sqlite, receiver) as desk:
        await desk.watch("fire", name="fires")
        order = partial(Order, settings=process_settings(desk), folder=str(fleet.folder), scheduler=True, worker=False)
        for point in WATCH_POINTS:
            await desk.collect(f"fire {point}")
            # What a dead leader has claimed is sent by another one after a minute.
            await free_claims(desk)
            fleet.start(order(name=point, failpoint=f"{point}:kill"))
            assert await fleet.ended(point, 180) == -9, fleet.tails()
        await free_claims(desk)
        fleet.start(order(name="survivor"))
        await desk.collect("fire at last")
        wanted = {*(f"fire {point}" for point in WATCH_POINTS), "fire at last"}
        await eventually(lambda: set(texts(desk)) == wanted, within=180)
        fleet.stop_all()
    assert set(texts(desk).values()) == {1}, "no match is in two messages"
    repeated = {identity: count for identity, count in told(desk).items() if count > 1}
    assert list(repeated.values()) == [2], "only the one that was sent and not recorded"


@pytest.mark.release
async def test_leaders_that_are_killed_at_random_lose_and_double_nothing(
    postgres_only: Opened, receiver: Receiver, fleet: Fleet
) -> None:
    chance, kills = random.Random(7), 12
    async with open_desk(postgres_only, receiver) as desk:
        await desk.watch("fire", name="fires")
        await desk.watch("fire OR rain", name="both", threshold_count=2, threshold_seconds=3600)
        order: Callable[..., Order] = partial(
            Order, settings=process_settings(desk), folder=str(fleet.folder), scheduler=True, worker=False
        )
        for number in range(kills):
            fleet.start(order(name=f"victim-{number}", failpoint=f"{chance.choice(WATCH_POINTS)}:kill"))
            for more in range(3):
                await desk.collect(f"fire {number} {more}")
            await free_claims(desk)
            assert await fleet.ended(f"victim-{number}", 180) == -9, fleet.tails()
        await free_claims(desk)
        fleet.start(order(name="survivor"))
        for watch in ("fires", "both"):
            await eventually(lambda: sum(one["count"] for one in messages_of(desk, watch)) >= 3 * kills, within=180)  # noqa: B023 - called at once
        fleet.stop_all()
    for watch in ("fires", "both"):
        assert sum(message["count"] for message in messages_of(desk, watch)) == 3 * kills
        shown = Counter(match["text"] for message in messages_of(desk, watch) for match in message["matches"])
        assert set(shown.values()) == {1}


def messages_of(desk: WatchDesk, watch: str) -> list[Any]:
    """The messages of a watch, without repeated ones."""
    return list({message["id"]: message for message in desk.sent if message["watch"] == watch}.values())


async def free_claims(desk: WatchDesk) -> None:
    """Let a minute pass for what was claimed by the dead."""
    cell = watch_notifications.c
    async with desk.resources.database.writing() as connection:
        await connection.execute(
            update(watch_notifications).where(cell.try_at.is_not(None)).values(try_at=cell.created_at)
        )
