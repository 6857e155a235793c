"""Searching what was collected: the index follows the events, and searches say what they may have missed."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import delete, update

from floodmark.app import Floodmark
from floodmark.errors import FloodmarkError, InvalidInput, NotFound, Unavailable
from floodmark.model.audit import Actor
from floodmark.model.batch import Batch, Item
from floodmark.model.outcome import Done
from floodmark.observability.events import ItemsIndexed
from floodmark.observability.metrics import Metrics, render
from floodmark.operations.doctor import doctor_of
from floodmark.operations.local import LocalOperations
from floodmark.runtime.scheduler_role import SchedulerRole
from floodmark.search.port import IndexDamaged
from floodmark.store.port import Event
from floodmark.store.tables import items, outbox
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import Opened, given_lease, rows_of, settle
from floodmark.wiring.resources import Resources

pytestmark = pytest.mark.spec("B5")

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgres_only"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def resources(opened: Opened) -> AsyncIterator[Resources]:
    async with opened() as resources:
        yield resources


@pytest.fixture
def operations(resources: Resources) -> LocalOperations:
    return LocalOperations(resources, Actor(who="test"))


def an_item(number: int, text: str = "fire", **fields: Any) -> Item:
    deleted = fields.pop("deleted", False)
    return Item(str(number), {"text": text, **fields}, NOON + timedelta(minutes=number), deleted=deleted)


async def collect(resources: Resources, *found: Item, stream: str = "test:a", relays: bool = True, **job: Any) -> None:
    """Keep items, and number their events."""
    lease = await given_lease(resources, **job)
    await resources.keeping.keep(lease, Batch(found, stream=stream))
    await settle(resources, lease, Done())
    if relays:
        await relay(resources)


async def relay(resources: Resources) -> None:
    async def nowhere(_: Sequence[Event]) -> None: ...

    while await resources.keeping.relay(nowhere, limit=1000):
        pass


async def index_all(resources: Resources) -> None:
    """Do what the scheduler does until nothing is left."""
    indexer = resources.search.indexer(resources.events, rests=False)
    while await indexer.step() is not None:
        pass


async def find(operations: LocalOperations, query: str | None, **filters: Any) -> list[str]:
    return [hit.key for hit in (await operations.search(query, **filters)).items]


async def test_new_changed_and_deleted_items_are_found(resources: Resources, operations: LocalOperations) -> None:
    """A changed item only by its new words; a deleted one by the words that it had, and it is marked."""
    await collect(resources, an_item(1, "fire"), an_item(2, "smoke"))
    await index_all(resources)
    assert await find(operations, "fire") == ["1"]

    await collect(resources, an_item(1, "ice"), an_item(2, "smoke", deleted=True), an_item(3, "fire"))
    await index_all(resources)
    assert await find(operations, "fire") == ["3"]
    assert await find(operations, "ice") == ["1"]
    [gone] = (await operations.search("smoke")).items
    assert (gone.deleted, gone.revision, gone.stream) == (True, 2, "test:a")
    assert await find(operations, "smoke -is:deleted") == []
    [changed] = (await operations.search("ice")).items
    assert [(part.text, part.is_match) for part in changed.snippet] == [("ice", True)]
    assert (await operations.search_index()).items == 3


async def test_several_changes_in_one_step_end_in_the_last_one(
    resources: Resources, operations: LocalOperations
) -> None:
    await collect(resources, an_item(1, "fire"))
    await index_all(resources)
    for text in ("smoke", "ice", "snow"):
        await collect(resources, an_item(1, text))
    await index_all(resources)
    found = {word: await find(operations, word) for word in ("fire", "smoke", "ice", "snow")}
    assert found == {"fire": [], "smoke": [], "ice": [], "snow": ["1"]}


@pytest.mark.thorough
async def test_an_index_is_filled_with_items_whose_events_are_gone(
    resources: Resources, operations: LocalOperations
) -> None:
    """In pages, while others are collected and changed: as on an installation from before there was an index."""
    await collect(resources, *(an_item(number) for number in range(600)))
    await collect(resources, *(an_item(number, stream="b") for number in range(600)), stream="test:b")
    async with resources.database.writing() as connection:
        await connection.execute(delete(outbox).where(outbox.c.position < 1200))
    status = await operations.search_index()
    assert (status.condition, status.items, status.most_items) == ("missing", 0, 1200)

    indexer = resources.search.indexer(resources.events, rests=False)
    await indexer.step()
    status = await operations.search_index()
    assert (status.condition, status.items) == ("building", 500)
    await collect(resources, an_item(3, "changed before its page"), stream="test:b")
    await collect(resources, an_item(7, "changed after its page"), an_item(9999, "new"))
    await index_all(resources)

    status = await operations.search_index()
    assert (status.condition, status.items, status.pending) == ("ready", 1201, 0)
    assert len(await find(operations, "fire", limit=200)) == 200
    assert [hit.stream async for hit in operations.each_hit("fire", stream="test:b")] == ["test:b"] * 599
    assert await find(operations, '"changed before"') == ["3"]
    assert await find(operations, '"changed after"') == ["7"]
    assert await find(operations, "new") == ["9999"]


async def test_an_index_is_built_again_when_it_must_be(resources: Resources, operations: LocalOperations) -> None:
    """Events after its position were deleted, or it was built from another database, or by another version."""
    await collect(resources, an_item(1), an_item(2))
    await index_all(resources)
    await collect(resources, an_item(3), an_item(4))
    async with resources.database.writing() as connection:
        await connection.execute(delete(outbox).where(outbox.c.position < 4))
    assert (await operations.search_index()).condition == "building"
    await index_all(resources)
    assert await find(operations, "fire") == ["4", "3", "2", "1"]

    first = await resources.search.index.read_state()
    assert first is not None
    await resources.search.index.begin("another version", first.position)
    assert (await operations.search_index()).condition == "building"
    await index_all(resources)
    assert await find(operations, "fire") == ["4", "3", "2", "1"]

    await resources.search.index.begin(first.version, first.position + 100)
    await index_all(resources)
    assert await find(operations, "fire") == ["4", "3", "2", "1"]

    async with resources.database.writing() as connection:
        await connection.execute(update(outbox).values(key="2"))
        await connection.execute(delete(items).where(items.c.key != "2"))
    await index_all(resources)
    assert await find(operations, "fire") == ["2"]
    second = await resources.search.index.read_state()
    assert second is not None
    assert second.build != first.build


@pytest.mark.thorough
async def test_large_items_are_indexed_a_few_at_a_time(resources: Resources, operations: LocalOperations) -> None:
    """A step must end soon, whatever was collected."""
    long = " ".join(f"w{number}" for number in range(15_000))
    await collect(resources, *(an_item(number, f"fire {long}") for number in range(20)))
    counts: list[int] = []
    resources.events.listen(ItemsIndexed, lambda event: counts.append(event.count))
    await index_all(resources)
    assert sum(counts) == 20
    assert max(counts) < 20
    await collect(resources, *(an_item(number, f"smoke {long}") for number in range(20)))
    await index_all(resources)
    assert len(await find(operations, "smoke")) == 20
    assert await find(operations, "fire") == []


async def test_an_index_whose_events_are_all_deleted_stays(resources: Resources, operations: LocalOperations) -> None:
    """After a month without anything new there is no event, and nothing is missing."""
    await collect(resources, an_item(1), an_item(2))
    await index_all(resources)
    before = await resources.search.index.read_state()
    async with resources.database.writing() as connection:
        newest = 0 if resources.database.dialect == "sqlite" else 2
        await connection.execute(delete(outbox).where(outbox.c.position != newest))
    await index_all(resources)
    assert await resources.search.index.read_state() == before
    assert (await operations.search_index()).condition == "ready"
    await collect(resources, an_item(3))
    await index_all(resources)
    assert await find(operations, "fire") == ["3", "2", "1"]


@pytest.mark.thorough
async def test_several_processes_may_build_the_index(opened: Opened, operations: LocalOperations) -> None:
    """Two leaders, or a command beside a scheduler: each item is in it once."""
    await collect(operations.resources, *(an_item(number) for number in range(1200)))
    async with opened() as other:
        await asyncio.gather(index_all(operations.resources), index_all(other), index_all(other))
    await index_all(operations.resources)
    status = await operations.search_index()
    assert (status.condition, status.items) == ("ready", 1200)
    assert len([hit async for hit in operations.each_hit("fire")]) == 1200


@pytest.mark.thorough
async def test_the_index_follows_the_relay(resources: Resources, operations: LocalOperations) -> None:
    """A running scheduler indexes within moments, and the rest when it stops."""
    role, stop, lags = SchedulerRole(resources), asyncio.Event(), list[float]()
    resources.events.listen(ItemsIndexed, lambda event: lags.append(event.lag))
    metrics = Metrics(CollectorRegistry(), 10)
    metrics.attach(resources.events)
    lease = await given_lease(resources)
    running = asyncio.create_task(role.run(stop))
    try:
        await resources.keeping.keep(lease, Batch([an_item(1)]))
        assert await eventually(lambda: find(operations, "fire"), within=60) == ["1"]
        assert (await operations.search_index()).is_followed
        await resources.keeping.keep(lease, Batch([an_item(2)]))
    finally:
        stop.set()
        await running
    status = await operations.search_index()
    assert (status.condition, status.pending, status.is_followed) == ("ready", 0, False)
    assert await find(operations, "fire") == ["2", "1"]
    assert lags[-1] == 0.0
    lines = [line.rpartition(" ") for line in render(metrics.registry).decode().splitlines()]
    shown = {name: float(value) for name, _, value in lines if name.startswith("floodmark_search_")}
    assert shown["floodmark_search_items_total"] >= 2
    assert shown["floodmark_search_lag_seconds"] == 0


async def test_searches_say_what_they_may_miss(resources: Resources, operations: LocalOperations) -> None:
    """Nothing found is no answer if the index is missing, behind or being built."""
    assert (await operations.search("fire")).index.condition == "missing"
    assert (await operations.search_index()).most_items == 0
    await collect(resources, an_item(1))
    await index_all(resources)
    await collect(resources, an_item(2), an_item(3))
    await collect(resources, an_item(4), relays=False)
    page = await operations.search("fire")
    assert [hit.key for hit in page.items] == ["1"]
    assert (page.index.condition, page.index.pending) == ("behind", 3)
    assert page.index.lag_seconds >= 0
    assert (await operations.update_search_index()).pending == 1
    page = await operations.search("fire")
    assert [hit.key for hit in page.items] == ["3", "2", "1"]
    assert (page.index.condition, page.index.pending) == ("behind", 1)


async def test_an_item_that_changed_after_it_was_indexed_is_checked(
    resources: Resources, operations: LocalOperations
) -> None:
    """What is shown is the newest revision, so it must match."""
    await collect(resources, an_item(1, "fire one"), an_item(2, "fire two"))
    await index_all(resources)
    await collect(resources, an_item(1, "ice one"), an_item(2, "fire and ice"))
    [hit] = (await operations.search("fire")).items
    assert (hit.key, hit.revision) == ("2", 2)


async def test_searches_are_limited(resources: Resources, operations: LocalOperations) -> None:
    """By stream, by the name of a job, by pattern, tag, source and time."""
    await collect(resources, an_item(1), stream="test:north", name="north", tags=["news"], target="north")
    await collect(resources, an_item(2), stream="test:south", name="south", tags=["news", "sea"], target="south")
    await collect(resources, an_item(3), stream="telegram:77", name="chan", source="telegram", target="@quay")
    await collect(resources, an_item(4), stream="own", name="own")
    await index_all(resources)
    assert await find(operations, "fire") == ["4", "3", "2", "1"]
    assert await find(operations, "fire", stream="test:north") == ["1"]
    assert await find(operations, "fire", stream="south") == ["2"]
    assert await find(operations, "fire", stream=["north", "chan"]) == ["3", "1"]
    # The last one is collected from `test:own`, too.
    assert await find(operations, "fire", stream="test:*") == ["4", "2", "1"]
    assert await find(operations, "fire", stream="telegram:@q*") == ["3"]
    assert await find(operations, "fire", tag="news") == ["2", "1"]
    assert await find(operations, "fire", tag="sea", stream="test:*") == ["2"]
    assert await find(operations, "fire", tag="sea", stream="north") == []
    assert await find(operations, "fire", source="telegram") == ["3"]
    assert await find(operations, "fire", source="test") == ["4", "2", "1"]
    later = NOON + timedelta(minutes=2)
    assert await find(operations, "fire", since=later) == ["4", "3", "2"]
    assert await find(operations, "fire", until=later) == ["1"]
    assert await find(
        operations,
        "fire",
        since=later + timedelta(microseconds=1),
        until=NOON.replace(tzinfo=None) + timedelta(minutes=4),
    ) == ["3"]
    for wrong, error in (
        ({"stream": "nowhere"}, NotFound),
        ({"stream": "nowhere:*"}, NotFound),
        ({"tag": "nobody"}, NotFound),
        ({"source": "nothing"}, NotFound),
        ({"cursor": "x"}, InvalidInput),
    ):
        with pytest.raises(error) as refused:
            await find(operations, "fire", **wrong)
        assert isinstance(refused.value, FloodmarkError)
        assert refused.value.hint


async def test_results_come_in_pages(resources: Resources, operations: LocalOperations) -> None:
    """Newest or best first; a page may have fewer items than asked for, but none is left out or shown twice."""
    await collect(resources, *(an_item(number, "fire " * (1 + number % 3)) for number in range(25)))
    await index_all(resources)
    async with resources.database.writing() as connection:
        await connection.execute(delete(items).where(items.c.key.in_(["20", "21"])))
    expected = [str(number) for number in range(24, -1, -1) if number not in (20, 21)]
    assert [hit.key async for hit in operations.each_hit("fire", limit=4)] == expected
    ranked = [hit.key async for hit in operations.each_hit("fire", order="rank", limit=4)]
    assert sorted(ranked, key=int, reverse=True) == expected
    page = await operations.search("fire", limit=4)
    with pytest.raises(InvalidInput):
        await operations.search("fire", order="rank", cursor=page.next)


async def test_unknown_fields_are_an_error(resources: Resources, operations: LocalOperations) -> None:
    """Fields of any item are known once it is indexed."""
    await collect(resources, an_item(1, place="quay"))
    with pytest.raises(InvalidInput, match="no item has a field 'place'") as refused:
        await find(operations, "place:quay")
    assert "author, channel" in refused.value.hint
    await index_all(resources)
    assert await find(operations, "place:quay") == ["1"]
    assert await find(operations, "title:quay") == []
    with pytest.raises(InvalidInput):
        await find(operations, "fire -colour:red")


async def test_an_application_searches(resources: Resources) -> None:
    await collect(resources, an_item(1), an_item(2, "smoke"), an_item(3))
    await index_all(resources)
    app = Floodmark(resources.settings)
    assert [hit.key async for hit in app.search("fire", stream="test:*", since=NOON)] == ["3", "1"]
    assert [hit.key async for hit in app.search("smoke", order="rank")] == ["2"]


async def test_items_that_were_read_ahead_are_read_again_for_a_rebuild(
    resources: Resources, operations: LocalOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rebuild begins after the event of the change, so what was read before would stay for ever."""
    for name in ("_FEWEST", "_AT_ONCE", "_AT_ONCE_FILLING"):
        monkeypatch.setattr(f"floodmark.search.indexer.{name}", 2)
    await collect(resources, *map(an_item, range(6)))
    one, other = (resources.search.indexer(resources.events, rests=False) for _ in range(2))
    await one.step()
    await collect(resources, an_item(3, "smoke"))
    await other.rebuild()
    await other.step()
    while await one.step() is not None:
        pass
    assert await find(operations, "smoke") == ["3"]
    assert await find(operations, "fire") == ["5", "4", "2", "1", "0"]


async def test_a_rebuild_on_request_keeps_everything(resources: Resources, operations: LocalOperations) -> None:
    await collect(resources, *(an_item(number) for number in range(10)))
    await index_all(resources)
    assert (await operations.rebuild_search_index()).condition == "building"
    assert await find(operations, "fire") == []
    await index_all(resources)
    assert len(await find(operations, "fire")) == 10
    [row] = (await operations.audit(what="search index")).items
    assert row.action == "search.rebuilt"


async def test_search_can_be_switched_off(opened: Opened) -> None:
    async with opened(search_enabled=False) as resources:
        operations = LocalOperations(resources, Actor(who="test"))
        await collect(resources, an_item(1))
        assert (await operations.search_index()).condition == "off"
        for refused in (operations.search("fire"), operations.rebuild_search_index(), operations.update_search_index()):
            with pytest.raises(Unavailable, match="SEARCH_ENABLED"):
                await refused
        assert "search" not in {service.name for service in SchedulerRole(resources).services}
        assert await resources.search.index.read_state() is None


async def test_doctor_and_health_show_the_index(resources: Resources, operations: LocalOperations) -> None:
    async def finding() -> tuple[bool, str, str]:
        [found] = [one for one in await doctor_of(resources).check() if one.code == "search"]
        return found.ok, found.text, found.hint

    assert await finding() == (True, "nothing was collected that could be searched", "")
    await collect(resources, an_item(1))
    assert await finding() == (True, "there is no search index yet", "update it: floodmark index update")
    await index_all(resources)
    assert await finding() == (True, "1 items can be searched", "")
    assert (await operations.health())["search"].condition == "ready"
    await collect(resources, an_item(2))
    long_ago = NOON - timedelta(days=300)
    async with resources.database.writing() as connection:
        await connection.execute(update(outbox).values(created_at=long_ago))
    await resources.leases.acquire("scheduler-leader", holder="other", ttl=timedelta(minutes=5))
    ok, text, hint = await finding()
    assert (ok, hint) == (False, "see the logs of the scheduler")
    assert "1 newer ones not yet" in text


class TestOnSqlite:
    """The file of the index."""

    @pytest.fixture
    def opened(self, sqlite: Opened) -> Opened:
        return sqlite

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "floodmark-search.db"

    async def test_it_is_beside_the_database_and_private(self, resources: Resources, path: Path) -> None:
        await collect(resources, an_item(1))
        await index_all(resources)
        assert (await asyncio.to_thread(path.stat)).st_mode & 0o777 == 0o600

    async def test_it_can_be_deleted_while_processes_use_it(
        self, resources: Resources, operations: LocalOperations, path: Path
    ) -> None:
        await collect(resources, an_item(1))
        await index_all(resources)
        for file in path.parent.glob("floodmark-search.db*"):
            file.unlink()
        assert (await operations.search("fire")).index.condition == "missing"
        await index_all(resources)
        assert await find(operations, "fire") == ["1"]

    async def test_a_damaged_file_is_replaced(self, sqlite: Opened, path: Path) -> None:
        """Searches say so until then."""
        async with sqlite() as resources:
            await collect(resources, *(an_item(number) for number in range(300)))
            await index_all(resources)
        await asyncio.to_thread(path.write_bytes, b"no database" * 1000)
        async with sqlite() as resources, sqlite() as other:
            operations = LocalOperations(other, Actor(who="other"))
            with pytest.raises(IndexDamaged) as damaged:
                await find(operations, "fire")
            assert "floodmark index rebuild" in damaged.value.hint
            await index_all(resources)
            assert len(await find(operations, "fire")) == 20

    async def test_a_search_that_takes_too_long_is_given_up(
        self, resources: Resources, operations: LocalOperations, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await collect(resources, *(an_item(number, f"fire w{number}") for number in range(3000)))
        await index_all(resources)
        monkeypatch.setattr("floodmark.search.sqlite_file._LONGEST_SECONDS", 0.0)
        monkeypatch.setattr("floodmark.search.sqlite_file._STEPS", 1)
        with pytest.raises(Unavailable, match="the search took more than") as given_up:
            await find(operations, "fire OR w1*")
        assert "--since" in given_up.value.hint

    @pytest.mark.thorough
    async def test_words_of_replaced_documents_are_removed(self, resources: Resources, path: Path) -> None:
        """So that an item that changes every hour does not fill the disk."""
        for number in range(30):
            await collect(resources, an_item(1, f"fire number{number}"))
            await index_all(resources)
        with sqlite3.connect(path) as connection:
            count = connection.execute("SELECT count(*) FROM words WHERE words MATCH 'fire'").fetchone()[0]
            rows = connection.execute("SELECT count(*) FROM documents").fetchone()[0]
        connection.close()
        assert (count, rows) == (1, 1)


async def test_the_positions_of_events_have_no_gaps(resources: Resources) -> None:
    """The index takes a gap for deleted events, and begins again."""
    for number in range(5):
        await collect(resources, an_item(number))
    assert [row["position"] for row in await rows_of(resources, outbox)] == [1, 2, 3, 4, 5]


async def test_items_are_listed_without_words(resources: Resources, operations: LocalOperations) -> None:
    await collect(resources, an_item(1), an_item(2, "smoke"), stream="test:a", tags=["daily"])
    await collect(resources, an_item(3, "no <b>word</b>", title="Title"), stream="test:b")
    await index_all(resources)
    assert await find(operations, None) == ["3", "2", "1"]
    assert await find(operations, None, stream="test:a", limit=1) == ["2"]
    [hit] = (await operations.search(stream="test:b")).items
    assert [part.text for part in hit.title] == ["Title"]
    assert [(part.text, part.is_match) for part in hit.snippet] == [("no <b>word</b>", False)]
    with pytest.raises(InvalidInput, match="without words"):
        await operations.search(order="rank")


async def test_the_items_that_were_stored_last_are_listed(resources: Resources, operations: LocalOperations) -> None:
    """Also older ones, each once, without an index; until its events are deleted."""
    assert (await operations.latest_items()).items == []
    await collect(resources, an_item(7), an_item(8), stream="test:a")
    await collect(resources, *(an_item(number) for number in range(1, 6)), stream="test:b")
    for number in range(3):
        await collect(resources, an_item(8, f"changed {number}"), stream="test:a")
    first = await operations.latest_items(limit=2)
    assert [(hit.stream, hit.key, hit.revision) for hit in first.items] == [("test:a", "8", 4), ("test:b", "5", 1)]
    rest = [hit.key async for hit in operations.each_latest_item(cursor=first.next, limit=2)]
    assert rest == ["4", "3", "2", "1", "7"]
    async with resources.database.writing() as connection:
        await connection.execute(delete(outbox).where(outbox.c.seq <= 5))
    assert [hit.key async for hit in operations.each_latest_item(limit=3)] == ["8", "5", "4"]
    with pytest.raises(InvalidInput, match="is not a cursor"):
        await operations.latest_items(cursor="nonsense")


async def test_what_a_search_finds_is_read_in_bulk(resources: Resources, operations: LocalOperations) -> None:
    """Newest first, page by page, also if the items are large."""
    large = "x" * 3_000_000
    await collect(resources, *(an_item(number, body=large) for number in range(1, 5)), tags=["daily"])
    await collect(resources, an_item(9, "smoke"), stream="test:b")
    await index_all(resources)
    pages, cursor = list[list[str]](), None
    while True:
        page = await operations.export_found("fire", tag="daily", until=NOON + timedelta(minutes=4), cursor=cursor)
        pages.append([row.key for row in page.items])
        cursor = page.next
        if cursor is None:
            break
    assert [key for some in pages for key in some] == ["3", "2", "1"]
    assert len(pages) > 1, "a page has at most 8 MB"
    assert [row.key for row in (await operations.export_found(limit=2)).items] == ["9", "4"]


SLOW_INSERTS = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.008); RETURN NEW; END $$;
CREATE TRIGGER slow BEFORE INSERT ON search_documents FOR EACH ROW EXECUTE FUNCTION slow();
"""


@pytest.mark.thorough
async def test_steps_become_smaller_when_the_server_is_too_slow_for_them(postgres_only: Opened, pg_clean: str) -> None:
    """A step of five hundred items takes longer than a statement may; smaller ones do not."""
    typed = await asyncpg.connect(pg_clean)
    await typed.execute(SLOW_INSERTS)
    given_up = 0
    try:
        # The shortest time for a statement.
        async with postgres_only(execution_lease="9s", scheduler_leader_ttl="9s") as resources:
            await collect(resources, *map(an_item, range(700)))
            indexer = resources.search.indexer(resources.events, rests=False)
            is_done = False
            while not is_done and given_up < 5:
                try:
                    is_done = await indexer.step() is None
                except asyncpg.QueryCanceledError:
                    given_up += 1
            state = await resources.search.index.read_state()
    finally:
        await typed.execute("DROP TRIGGER slow ON search_documents; DROP FUNCTION slow")
        await typed.close()
    assert state is not None
    assert state.documents == 700
    assert 0 < given_up < 5
