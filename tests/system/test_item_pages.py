"""Items and changes in pages, as exports read them."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import delete, select, update

from floodmark.model.batch import Batch, Item
from floodmark.model.exports import ExportRow
from floodmark.model.outcome import Done
from floodmark.repositories import item_pages
from floodmark.repositories.item_pages import ItemPage, ItemPages, KeyPlace, PagePlace
from floodmark.store.tables import items, outbox
from floodmark.testing.factories import Opened, given_lease, settle
from floodmark.wiring.resources import Resources

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B6"), pytest.mark.every_database]

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
def pages(resources: Resources) -> ItemPages:
    return resources.repositories.item_pages


async def keep(resources: Resources, *batches: list[Item], stream: str = "news") -> None:
    lease = await given_lease(resources)
    for batch in batches:
        await resources.keeping.keep(lease, Batch(batch, {"n": 1}, stream=stream))
    await settle(resources, lease, Done())


async def relay(resources: Resources) -> None:
    async def publish(_: Any) -> None: ...

    while await resources.keeping.relay(publish, limit=1000):
        pass


def an_item(key: str, value: Any = 1, *, at: datetime | None = None, gone: bool = False) -> Item:
    return Item(key, {"value": value}, at, deleted=gone)


def named(rows: list[ExportRow]) -> list[tuple[str, int]]:
    return [(row.key, row.revision) for row in rows]


async def all_pages(read: Any) -> list[list[ExportRow]]:
    """Read page after page, each from the end of the one before."""
    found: list[list[ExportRow]] = []
    place: PagePlace | None = None
    while True:
        page: ItemPage = await read(place)
        found.append(page.rows)
        place = page.next
        if place is None:
            return found
        assert len(found) < 100


async def test_items_are_read_by_key_in_pages(resources: Resources, pages: ItemPages) -> None:
    await keep(resources, [an_item(f"k{n}", at=NOON) for n in range(5)])
    await keep(resources, [an_item("other")], stream="others")

    found = await all_pages(lambda place: pages.by_key("news", place, 2))

    assert [named(rows) for rows in found] == [[("k0", 1), ("k1", 1)], [("k2", 1), ("k3", 1)], [("k4", 1)]]
    [row] = found[-1]
    assert (row.stream, row.occurred_at, row.is_newest, row.position) == ("news", NOON, True, None)
    assert json.loads(row.data) == {"value": 1}


@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_every_revision_is_read_once(resources: Resources, pages: ItemPages, limit: int) -> None:
    revisions = {"a": 1, "b": 4, "c": 1, "d": 2, "e": 3}
    for number in range(4):
        await keep(resources, [an_item(key, number) for key, most in revisions.items() if number < most])

    found = await all_pages(lambda place: pages.by_key("news", place, limit, revisions=True))

    rows = [row for page in found for row in page]
    assert named(rows) == [(key, number) for key, most in revisions.items() for number in range(1, most + 1)]
    assert [json.loads(row.data)["value"] + 1 for row in rows] == [row.revision for row in rows]
    assert [row.is_newest for row in rows] == [row.revision == revisions[row.key] for row in rows]


async def test_a_change_between_two_pages_repeats_and_loses_no_revision(resources: Resources, pages: ItemPages) -> None:
    """The newest revision of the next item becomes an earlier one, and so does one that was read."""
    await keep(resources, [an_item("a"), an_item("b")])
    first = await pages.by_key("news", None, 1, revisions=True)
    await keep(resources, [an_item("a", 2), an_item("b", 2)])
    start = first.next
    assert isinstance(start, KeyPlace)

    rest = await all_pages(lambda place: pages.by_key("news", place or start, 1, revisions=True))

    assert named(first.rows) == [("a", 1)]
    assert named([row for page in rest for row in page]) == [("b", 1), ("b", 2)]


async def test_items_of_a_period_are_read_by_time(resources: Resources, pages: ItemPages) -> None:
    """Those without a time count by the time of their collection, and come last."""
    hour = timedelta(hours=1)
    times = {"c": NOON, "b": NOON + hour, "a": NOON + hour, "early": NOON - hour, "late": NOON + 3 * hour}
    await keep(resources, [an_item(key, at=at) for key, at in times.items()])
    await keep(resources, [an_item("x"), an_item("y"), an_item("z")])
    async with resources.database.writing() as connection:
        await connection.execute(update(items).where(items.c.key.in_(["x", "z"])).values(collected_at=NOON))

    def read(place: Any) -> Any:
        return pages.by_time("news", place, 2, since=NOON, before=NOON + 2 * hour)

    found = [named(rows) for rows in await all_pages(read)]

    assert [pair for rows in found for pair in rows] == [("c", 1), ("a", 1), ("b", 1), ("x", 1), ("z", 1)]


async def test_few_items_without_a_time_are_found_among_many(
    resources: Resources, pages: ItemPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page looks at a bounded number of keys, and may be empty."""
    monkeypatch.setattr(item_pages, "_SCANNED", 3)
    await keep(resources, [an_item(f"k{n:02}", at=None if n in (0, 7, 8, 19) else NOON) for n in range(20)])
    since = datetime.now(UTC) - timedelta(hours=1)

    found = await all_pages(lambda place: pages.by_time("news", place, 2, since=since, before=None))

    assert [key for rows in found for key, _ in named(rows)] == ["k00", "k07", "k08", "k19"]


async def test_a_page_of_large_items_is_short(
    resources: Resources, pages: ItemPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_pages, "MOST_BYTES", 250_000)
    await keep(resources, [an_item(f"k{n}", f"{n}" * (100_000 if n % 2 else 10)) for n in range(8)])

    found = await all_pages(lambda place: pages.by_key("news", place, 100))

    assert [len(rows) for rows in found] == [5, 3]
    rows = [row for page in found for row in page]
    assert [json.loads(row.data)["value"][:1] for row in rows] == [f"{n}" for n in range(8)]
    assert [len(json.loads(row.data)["value"]) for row in rows] == [100_000 if n % 2 else 10 for n in range(8)]


async def test_changes_are_read_by_position(resources: Resources, pages: ItemPages) -> None:
    await keep(resources, [an_item("a", 1), an_item("b", 1)], [an_item("a", 2)])
    await keep(resources, [an_item("b", 1, gone=True)], stream="news")
    await relay(resources)

    first = await pages.changes(0, 2)
    rest = await pages.changes(first.rows[-1].position or 0, 100)

    rows = [*first.rows, *rest.rows]
    assert named(rows) == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert [row.position for row in rows] == [1, 2, 3, 4]
    assert [row.is_newest for row in rows] == [False, False, True, True]
    assert [row.deleted for row in rows] == [False, False, False, True]
    assert [json.loads(row.data)["value"] for row in rows] == [1, 1, 2, 1]


async def test_keys_of_changes_include_those_without_a_position(resources: Resources, pages: ItemPages) -> None:
    await keep(resources, [an_item("a")])
    await relay(resources)
    await keep(resources, [an_item("b")])

    numbered = [key.key for key in await pages.changed_keys(0, 10)]
    unnumbered = [key.key for _, key in await pages.unnumbered_keys(0, 10)]

    # On SQLite the number of a row is its position, so that nothing has to wait for a scheduler.
    expected = (["a", "b"], []) if resources.database.dialect == "sqlite" else (["a"], ["b"])
    assert (numbered, unnumbered) == expected


async def test_the_bounds_of_the_log_survive_its_pruning(resources: Resources, pages: ItemPages) -> None:
    assert not (await pages.bounds()).has_all_after(1)
    assert (await pages.bounds()).has_all_after(0)
    await keep(resources, [an_item(f"k{n}") for n in range(4)])
    await relay(resources)
    assert (await pages.bounds()).has_all_after(0)
    async with resources.database.writing() as connection:
        await connection.execute(delete(outbox).where(outbox.c.seq < 4))

    log = await pages.bounds()

    assert (log.oldest, log.newest) == (4, 4)
    assert [log.has_all_after(n) for n in (0, 2, 3, 4, 5)] == [False, False, True, True, False]


async def test_streams_are_found_through_the_index(resources: Resources, pages: ItemPages) -> None:
    for stream in ("b", "a:1", "a:2"):
        await keep(resources, [an_item("k")], stream=stream)

    assert await pages.streams("", 2) == ["a:1", "a:2"]
    assert await pages.streams("a:2", 10) == ["b"]
    assert await pages.streams("b", 10) == []


_FILL = """
INSERT INTO items (stream, key, occurred_at, collected_at, data, content_hash, fence)
SELECT 's' || n % 50, 'k' || n, now(), now(), '{}', '', 1 FROM generate_series(1, 20000) n;
INSERT INTO outbox (stream, key, revision, created_at, position, sent_at)
SELECT 's' || n % 50, 'k' || n, 1, now(), n, now() FROM generate_series(1, 20000) n
"""


async def test_pages_are_read_by_index_while_statistics_are_wrong(postgres_only: Opened) -> None:
    """The server counted while the tables were empty."""
    async with postgres_only() as resources:
        keys = item_pages._sized(item_pages._newest("s1").where(items.c.key > "k1"), 9, items.c.key)
        at = items.c.occurred_at
        times = item_pages._sized(item_pages._newest("s1").where(at.is_not(None), at >= NOON), 9, at, items.c.key)
        changes = select(outbox.c.key).where(outbox.c.position > 7).order_by(outbox.c.position).limit(9)
        plans = []
        async with resources.database.writing() as connection:
            await connection.exec_driver_sql("ANALYZE items, outbox")
            for statement in _FILL.split(";"):
                await connection.exec_driver_sql(statement)
            for query in (keys, times, changes):
                text = query.compile(resources.database.engine.sync_engine, compile_kwargs={"literal_binds": True})
                plans.append("".join(row[0] for row in await connection.exec_driver_sql(f"EXPLAIN {text}")))
    assert "pk_items" in plans[0]
    assert "ix_items_stream_occurred_at" in plans[1]
    assert "ix_outbox_position" in plans[2]
