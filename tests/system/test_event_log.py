"""Events and items as readers get them."""

import json
from typing import Any

import pytest
from msgspec.structs import asdict

from floodmark.errors import NotFound
from floodmark.model.batch import Batch, Item
from floodmark.model.clock import SystemClock
from floodmark.repositories.events import EventLog
from floodmark.repositories.jobs import Jobs
from floodmark.store.port import Event
from system.stores import AnyDatabase, Crew, a_spec


@pytest.fixture
def log(database: AnyDatabase) -> EventLog:
    return EventLog(database, SystemClock())


@pytest.mark.spec("G4", "T7")
async def test_a_reader_sees_each_event_once_and_in_order(jobs: Jobs, log: EventLog, crew: Crew) -> None:
    news, other = await jobs.add(a_spec(stream="news")), await jobs.add(a_spec(stream="other"))
    await crew.collect(jobs, news, Batch([Item("a", {"n": 1}), Item("b", {"n": 2})]))
    await crew.collect(jobs, other, Batch([Item("x", "text")]))
    assert await log.after(0) == []
    assert await log.last_position() == 0
    published = await crew.relay()
    await crew.collect(jobs, news, Batch([Item("b", {"n": 3}), Item("a", {"n": 1})]))
    published += await crew.relay()

    first = await log.after(0, limit=2)
    rest = await log.after(first[-1].position)

    assert [event.event_id for event in first + rest] == ["news/a/1", "news/b/1", "other/x/1", "news/b/2"]
    assert [event.kind for event in first + rest] == ["item.new"] * 3 + ["item.changed"]
    assert [asdict(event) for event in first + rest] == [_without_trace(event) for event in published]
    assert await log.last_position() == rest[-1].position
    assert await log.after(rest[-1].position) == []
    assert [event.key for event in await log.after(0, stream="news")] == ["a", "b", "b"]


def _without_trace(event: Event) -> dict[str, Any]:
    """What readers get of an event that is on its way out."""
    return {name: value for name, value in asdict(event).items() if name != "traceparent"}


@pytest.mark.spec("G4")
async def test_an_event_tells_the_revision_it_is_about(jobs: Jobs, log: EventLog, crew: Crew) -> None:
    job = await jobs.add(a_spec(stream="news"))
    await crew.collect(jobs, job, Batch([Item("a", {"n": 1})]), Batch([Item("a", {"n": 2})]))
    await crew.collect(jobs, job, Batch([Item("a", {"n": 2}, deleted=True)]))
    await crew.relay()

    told = [(event.kind, json.loads(event.data)) for event in await log.after(0)]

    assert told == [("item.new", {"n": 1}), ("item.changed", {"n": 2}), ("item.deleted", {"n": 2})]


@pytest.mark.spec("T7")
async def test_an_item_is_read_with_what_it_was_before(jobs: Jobs, log: EventLog, crew: Crew) -> None:
    job = await jobs.add(a_spec(stream="news"))
    for n in (1, 2, 3):
        await crew.collect(jobs, job, Batch([Item("a", {"n": n})]))

    item = await log.item("news", "a")

    assert (item.newest.revision, item.newest.data) == (3, {"n": 3})
    assert [(old.revision, old.data) for old in item.earlier] == [(2, {"n": 2}), (1, {"n": 1})]
    with pytest.raises(NotFound, match="news has no item 'b'"):
        await log.item("news", "b")


async def test_items_are_read_in_pages(jobs: Jobs, log: EventLog, crew: Crew) -> None:
    job = await jobs.add(a_spec(stream="news"))
    await crew.collect(jobs, job, Batch([Item(f"k{n}", n) for n in range(5)]))

    seen: list[int] = []
    after = None
    while page := await log.items("news", after_key=after, limit=2):
        seen += [item.data for item in page]
        after = page[-1].key

    assert seen == [0, 1, 2, 3, 4]
    assert await log.count("news") == 5
    assert await log.count("nothing") == 0
    assert await log.items("nothing") == []
