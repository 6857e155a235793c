"""Readers of items and events: in the process of the store, over HTTP, and without asyncio."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from api.serving import Api, serving
from command_line import environment
from floodmark import Event, EventsDeleted, Floodmark
from floodmark.client import Client, SyncClient
from floodmark.errors import Conflict, InvalidInput, NotFound
from floodmark.model.audit import Actor
from floodmark.model.batch import Batch, Item
from floodmark.model.outcome import Done
from floodmark.operations.declared import AsyncOperations
from floodmark.operations.local import LocalOperations
from floodmark.settings import Settings
from floodmark.store.tables import outbox
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import Opened, given_lease, settle
from floodmark.wiring.resources import Resources, open_resources

pytestmark = pytest.mark.spec("T7")

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


async def keep(resources: Resources, items: Sequence[Item], stream: str = "news") -> None:
    """Keep items and number their events."""

    async def publish(_: Any) -> None: ...

    lease = await given_lease(resources)
    await resources.keeping.keep(lease, Batch(items, {"n": 1}, stream=stream))
    await settle(resources, lease, Done())
    await resources.keeping.relay(publish, limit=1000)


def numbered(*numbers: int) -> list[Item]:
    return [Item(f"k{n}", {"n": n}, NOON + n * HOUR) for n in numbers]


def positions(events: Sequence[Event]) -> list[int]:
    return [event.position for event in events]


@pytest.fixture(params=["sqlite local", "postgres_only local", "sqlite remote"])
def way(request: pytest.FixtureRequest) -> tuple[Opened, bool]:
    """A database, and whether its operations are used over HTTP."""
    name, _, where = request.param.partition(" ")
    return request.getfixturevalue(name), where == "remote"


@pytest.fixture
async def api(way: tuple[Opened, bool]) -> AsyncIterator[Api]:
    async with serving(way[0]) as api:
        yield api


@pytest.fixture
async def operations(way: tuple[Opened, bool], api: Api) -> AsyncIterator[AsyncOperations]:
    """The operations on the store, and the same over HTTP."""
    if not way[1]:
        yield LocalOperations(api.resources, Actor(who="ada"))
        return
    async with Client(api.base) as client:
        yield client


async def test_items_are_read_by_stream_and_time(operations: AsyncOperations, api: Api) -> None:
    await keep(api.resources, numbered(1, 2, 3))
    await keep(api.resources, [Item("k1", {"n": 10}, NOON + HOUR), Item("k3", {"n": 3}, NOON + 3 * HOUR, deleted=True)])
    await keep(api.resources, numbered(7), stream="other")

    async def found(*streams: str, **chosen: Any) -> list[tuple[str, int, Any]]:
        return [(item.key, item.revision, item.data["n"]) async for item in operations.read_items(*streams, **chosen)]

    assert await found("news") == [("k1", 2, 10), ("k2", 1, 2)]
    assert await found() == [("k1", 2, 10), ("k2", 1, 2), ("k7", 1, 7)]
    assert await found("ne*", deleted=True, revisions=True) == [
        ("k1", 1, 1),
        ("k1", 2, 10),
        ("k2", 1, 2),
        ("k3", 1, 3),
        ("k3", 2, 3),
    ]
    assert await found(since=NOON + 2 * HOUR) == [("k2", 1, 2), ("k7", 1, 7)]
    assert await found(since="2026-06-01", until=NOON + 2 * HOUR) == [("k1", 2, 10)]
    assert await found(until="2026-06-01") == [("k1", 2, 10), ("k2", 1, 2), ("k7", 1, 7)], "the day is included"
    with pytest.raises(InvalidInput, match="neither a duration nor a date"):
        await found(since="soon")


async def test_events_are_read_in_order(operations: AsyncOperations, api: Api) -> None:
    await keep(api.resources, numbered(1, 2))
    await keep(api.resources, numbered(3), stream="other")

    assert positions([event async for event in operations.read_events()]) == [1, 2, 3]
    assert positions([event async for event in operations.read_events(after=1)]) == [2, 3]
    assert positions([event async for event in operations.read_events(stream="news")]) == [1, 2]
    assert positions([event async for event in operations.read_events(stream="o*")]) == [3]


async def test_a_consumer_stores_its_position_on_commit(operations: AsyncOperations, api: Api) -> None:
    await keep(api.resources, numbered(1, 2, 3))

    async with operations.consumer("indexer") as events:
        async for event in events:
            if event.position == 2:
                await events.commit()
            if event.position == 3:
                break
    async with operations.consumer("indexer") as events:
        assert events.position == 2
        assert positions([event async for event in events]) == [3], "it was not committed"
        await events.commit()

    state = await operations.find_consumer("reader:indexer")
    assert (state.position, state.lag, state.place) == (3, 0, None)
    assert [one.name for one in await operations.consumers()] == ["reader:indexer"]
    await operations.remove_consumer("reader:indexer")
    with pytest.raises(NotFound, match="reader:indexer has no stored position"):
        await operations.find_consumer("reader:indexer")


async def test_two_consumers_of_one_name_do_not_skip(operations: AsyncOperations, api: Api) -> None:
    await keep(api.resources, numbered(1, 2, 3, 4))

    async with operations.consumer("indexer") as first, operations.consumer("indexer") as second:
        ahead, behind = first.read(), second.read()
        for _ in range(3):
            await anext(ahead)
        await anext(behind)
        await first.commit()
        with pytest.raises(Conflict, match="reader:indexer is not new, but at 3: another program moved it"):
            await second.commit()
        await ahead.aclose()
        await behind.aclose()
    assert (await operations.find_consumer("reader:indexer")).position == 3


async def test_a_commit_that_is_sent_twice_counts_once(operations: AsyncOperations, api: Api) -> None:
    """A response was lost, and the request is repeated."""
    await keep(api.resources, numbered(1, 2))
    for _ in range(2):
        await operations.commit_position("reader:x", 1)
    for _ in range(2):
        await operations.commit_position("reader:x", 2, before=1)
    with pytest.raises(Conflict):
        await operations.commit_position("reader:x", 1, before=0)
    with pytest.raises(InvalidInput, match="there is no event at position 9"):
        await operations.commit_position("reader:x", 9, before=2)


async def test_automatic_commits_follow_the_reader(operations: AsyncOperations, api: Api) -> None:
    """An event is processed when the next one is requested; the one at which the reader stops is read again."""
    await keep(api.resources, numbered(1, 2, 3))

    async with aclosing(operations.read_events(consumer="mailer")) as events:
        async for event in events:
            if event.position == 2:
                break
    assert (await operations.find_consumer("reader:mailer")).position == 1

    assert positions([event async for event in operations.read_events(consumer="mailer")]) == [2, 3]
    assert (await operations.find_consumer("reader:mailer")).position == 3
    assert [event async for event in operations.read_events(consumer="mailer", after=0)] == []


async def test_a_consumer_of_one_stream_passes_the_others(operations: AsyncOperations, api: Api) -> None:
    await keep(api.resources, numbered(1))
    await keep(api.resources, numbered(2, 3), stream="other")

    read = [event async for event in operations.read_events(consumer="x", stream="news")]

    assert positions(read) == [1]
    assert (await operations.find_consumer("reader:x")).lag == 0


async def test_deleted_events_are_reported(operations: AsyncOperations, api: Api) -> None:
    await keep(api.resources, numbered(1, 2, 3))
    await operations.commit_position("reader:late", 1)
    async with api.resources.database.writing() as connection:
        await connection.execute(delete(outbox).where(outbox.c.seq < 3))

    with pytest.raises(EventsDeleted, match="the events after position 1 were deleted: the oldest is 3") as error:
        _ = [event async for event in operations.read_events(consumer="late")]
    assert "floodmark readers rm reader:late" in error.value.hint
    assert positions([event async for event in operations.read_events(consumer="new")]) == [3]
    with pytest.raises(EventsDeleted):
        _ = [event async for event in operations.read_events(after=0)]


async def test_a_consumer_follows_new_events(operations: AsyncOperations, api: Api) -> None:
    await keep(api.resources, numbered(1))
    seen: list[int] = []

    async def follow() -> None:
        async with operations.consumer("live", follow=True, interval=timedelta(seconds=0.05)) as events:
            async for event in events:
                seen.append(event.position)
                await events.commit()

    following = asyncio.create_task(follow())
    await eventually(lambda: seen == [1])
    await keep(api.resources, numbered(2))
    await eventually(lambda: seen == [1, 2])
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    assert (await operations.find_consumer("reader:live")).position >= 1


@pytest.fixture
def elsewhere(sqlite_copy: str) -> Iterator[str]:
    from api_process import api_process

    async def fill() -> None:
        async with open_resources(Settings(database_url=sqlite_copy)) as resources:
            await keep(resources, numbered(1, 2, 3))

    asyncio.run(fill())
    with api_process(sqlite_copy) as url:
        yield url


@pytest.mark.thorough
def test_a_program_without_asyncio_reads_the_same(elsewhere: str) -> None:
    with SyncClient(elsewhere) as client:
        assert [item.key for item in client.read_items("news", since=NOON + 2 * HOUR)] == ["k2", "k3"]
        assert [event.position for event in client.read_events(after=1)] == [2, 3]
        with client.consumer("indexer") as events:
            for event in events:
                if event.position == 2:
                    events.commit()
                    break
        with client.consumer("indexer") as events:
            assert events.position == 2
            assert [event.position for event in events] == [3]
        assert client.find_consumer("reader:indexer").position == 2


_READER = """
import asyncio, os, signal, sys
from floodmark import Floodmark, Settings

async def main(url, done, fatal):
    app = Floodmark(Settings(database_url=url))
    async with app.consumer("indexer") as events:
        async for event in events:
            with open(done, "a") as file:
                file.write(f"{event.event_id}\\n")
            if event.position == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            if event.position % 3 == 0:
                await events.commit()
        await events.commit()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.mark.spec("G2")
async def test_a_killed_reader_loses_no_event(light: Api, tmp_path: Path) -> None:
    """It was killed between processing and committing: the events since the last commit are processed again."""
    await keep(light.resources, numbered(*range(10)))
    url, done = light.resources.settings.database_url, tmp_path / "done"
    codes = []
    for fatal in (5, 0):
        command = [sys.executable, "-c", _READER, url, str(done), str(fatal)]
        process = await asyncio.create_subprocess_exec(*command, env=environment(), stderr=subprocess.STDOUT)
        codes.append(await process.wait())

    assert codes == [-signal.SIGKILL, 0]
    processed = [line.split("/")[1] for line in done.read_text().splitlines()]
    assert processed == ["k0", "k1", "k2", "k3", "k4", *(f"k{n}" for n in range(3, 10))]


async def test_an_application_reads_its_own_store(light: Api) -> None:
    await keep(light.resources, numbered(1, 2))
    app = Floodmark(light.resources.settings)

    assert [item.key async for item in app.items("news")] == ["k1", "k2"]
    assert [event.key async for event in app.events(after=1)] == ["k2"]
    assert [event.key async for event in app.events(consumer="mine")] == ["k1", "k2"]
    async with app.consumer("mine") as events:
        assert events.position == 2
