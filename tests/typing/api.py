"""The public API as a user's module would use it. Never run: mypy reads it, and must have nothing to say."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, assert_type

from floodmark import (
    AccountLost,
    Batch,
    Context,
    Event,
    EventConsumer,
    EventsDeleted,
    Floodmark,
    FloodmarkError,
    Gone,
    InvalidInput,
    Item,
    Job,
    Permanent,
    Priority,
    Settings,
    SlowDown,
    Source,
    StoredItem,
    Target,
    Transient,
    Watermark,
)
from floodmark.testing.contracts.source import SourceContract
from floodmark.testing.eventually import eventually

app = Floodmark()
embedded = Floodmark(Settings(database_url="sqlite:///here.db", execution_lease=timedelta(seconds=5)))


@dataclass
class Post:
    id: int
    title: str
    at: datetime


# Every kind of function, every way to say when


@app.collector(every="15m", key="id", watermark="id")
async def news(since: int | None) -> AsyncIterator[dict[str, Any]]:
    yield {"id": (since or 0) + 1}


@app.collector(every=timedelta(minutes=15), key="id", occurred_at="at", timeout="30s", priority="high")
def posts() -> Iterator[Post]:
    yield Post(1, "Ice on the river", datetime.now(UTC))


@app.collector(adaptive=True, key="id", occurred_at="at", budget="news", max_delay="1h", weight=2)
def polled() -> Iterator[Post]:
    yield Post(2, "The ferry is back", datetime.now(UTC))


@app.collector(cron="0 6 * * MON-FRI", timezone="Europe/Berlin", priority=Priority.LOW, timeout=timedelta(minutes=5))
def prices() -> list[Post]:
    return []


@app.collector(daily="02:00", key=lambda post: post.id, watermark=lambda post: post.id, batch_size=500)
async def batches(since: int | None, context: Context) -> AsyncIterator[Batch]:
    while not context.stopping.is_set():
        yield Batch([Item("1", {"id": 1}, occurred_at=context.scheduled_for)], {"value": since})


@app.collector(weekly="monday 02:00", depends_on=("news", "posts"), retry_max=0, overlap="queue", tags=("nightly",))
async def report() -> list[dict[str, str]]:
    return [{"line": "all is well"}]


@app.collector(hourly="15", limit_key="feed.example", params={"topic": "harbour"}, priority=1)
def told_to_wait(topic: str) -> Iterator[dict[str, str]]:
    try:
        yield {"topic": topic}
    except TimeoutError as error:
        raise Transient("no answer") from error
    except PermissionError as error:
        raise AccountLost("account-1", "the key was revoked") from error
    except FileNotFoundError as error:
        raise Gone("404", hint="Look for its new address") from error
    except ValueError as error:
        raise Permanent("not JSON") from error
    if topic == "busy":
        raise SlowDown(30)
    raise SlowDown(timedelta(seconds=30), key="feed.example", reason="429 Too Many Requests")


# What is declared is still the function it was.
assert_type(posts(), Iterator[Post])
assert_type(prices(), list[Post])
assert_type(news(None), AsyncIterator[dict[str, Any]])


# A source of one's own, as the entry point `floodmark.sources` names it


class Folder:
    """Collects the names of the files in a folder."""

    kind = "folder"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def check(self, target: str, params: Mapping[str, Any]) -> None:
        if not target:
            raise InvalidInput("no folder was named", hint="For example: floodmark add folder inbox --every 1m")

    async def collect(self, target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        last: str = (since or {}).get("name", "")
        for path in await asyncio.to_thread(lambda: sorted(Path(target.name).iterdir())):
            if path.name > last and not context.stopping.is_set():
                yield Batch([Item(path.name, {"size": path.stat().st_size})], {"name": path.name})


source: Source = Folder(app.settings)


class TestFolder(SourceContract):
    """Brings its fixtures; the tests come with the contract."""


# Running it


def main() -> None:
    try:
        app.run(seconds=60)
    except FloodmarkError as error:
        print(error, error.hint)


async def inside_another_program() -> None:
    stop = asyncio.Event()
    serving = asyncio.create_task(app.serve(scheduler=True, worker=False, port=0, stop=stop))
    async with app.open() as resources:
        assert_type(await eventually(lambda: resources.name), str)
    stop.set()
    await serving


def shown(job: Job) -> str:
    return f"{job.name}: {job.next_run or 'not planned'}, priority {job.priority.name.lower()}"


# Reading what was collected


async def readers() -> None:
    async for item in app.items("telegram:*", "news", since="7d", until=datetime.now(UTC), revisions=True):
        assert_type(item, StoredItem)
        assert_type(item.data, Any)
    async for event in app.events(after=41, stream="news", follow=True):
        assert_type(event, Event)
    try:
        async for event in app.events(consumer="mailer"):
            assert_type(event.event_id, str)
    except EventsDeleted as error:
        print(error.hint)
    async with app.consumer("indexer", after=0, follow=True) as events:
        assert_type(events, EventConsumer)
        async for event in events:
            assert_type(event, Event)
            await events.commit()
        assert_type(events.position, int)
