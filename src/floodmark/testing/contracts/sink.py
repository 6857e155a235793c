"""The guarantees of every sink in a store, and of the relay that empties its outbox."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from floodmark.errors import Fenced, InvalidInput
from floodmark.model.batch import Batch, Blob, Item, Kept, SitePage
from floodmark.model.completeness import Coverage
from floodmark.model.execution import Lease
from floodmark.model.outcome import Done, Snooze
from floodmark.sinks.sql import SqlSink
from floodmark.sources.cookies.blobs import Blobs
from floodmark.sources.web.pages import Pages
from floodmark.store.port import Event
from floodmark.store.tables import completeness, item_revisions, items, outbox, watermarks
from floodmark.testing.factories import (
    AT_ONCE,
    count_of,
    execution_of,
    expire,
    given_executions,
    given_job,
    given_lease,
    given_queued,
    rescue,
    rows_of,
    settle,
    take,
    watermark_of,
)
from floodmark.wiring.resources import Resources

from .stores import StoreContract

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)

# Few keys and few contents, so that batches overlap in every way.
Posts = list[tuple[str, str, bool]]
POSTS: st.SearchStrategy[Posts] = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("xyz"), st.booleans()))


class SinkContract(StoreContract):
    """The guarantees of every sink in a store. Subclass it and provide `opened`: it opens resources on your store."""

    @pytest.fixture
    def sink(self, resources: Resources) -> SqlSink:
        """The sink as the executor gets it."""
        return SqlSink(resources.keeping, resources.events)

    # Storing

    @pytest.mark.spec("G3", "B13")
    async def test_coverage_is_kept_with_the_batch_and_under_its_fence(
        self, resources: Resources, sink: SqlSink
    ) -> None:
        """Ranges of batches become one range; a worker that was replaced changes no ledger."""
        lease = await given_lease(resources)
        await sink.keep(lease, Batch([Item("1", 1)], {"id": 5}, coverage=Coverage(ranges=[(1, 5)], unseen=[(2, 4)])))
        await sink.keep(lease, Batch([], {"id": 9}, coverage=Coverage(ranges=[(6, 9)], ends_at=NOON)))
        [row] = await rows_of(resources, completeness)
        assert (row["stream"], row["source"], row["gaps"]) == (lease.job.stream, lease.job.source, 1)
        [shown] = await resources.repositories.ledgers.page(stream=lease.job.stream, with_gaps=True)
        assert [(one.first, one.last, one.ends_at) for one in shown.complete] == [(1, 9, NOON)]
        assert [(gap.kind, gap.first, gap.last) for gap in shown.gaps] == [("unseen", 2, 4)]
        assert await resources.repositories.ledgers.count_gaps() == {lease.job.source: 1}

        await resources.repositories.watermarks.set(lease.job.stream, {"id": 3})
        with pytest.raises(Fenced):
            await sink.keep(lease, Batch([], {"id": 99}, coverage=Coverage(ranges=[(10, 99)])))
        assert await rows_of(resources, completeness) == [row]

    @pytest.mark.spec("G3", "T7")
    async def test_items_watermark_and_events_are_kept_together(self, resources: Resources, sink: SqlSink) -> None:
        """They have all the fields that readers need."""
        lease = await given_lease(resources, tenant_id="t1", user_id="u1")

        kept = await sink.keep(lease, Batch([Item("1", {"text": "one"}, NOON), Item("2", {"text": "two"})], {"id": 2}))

        assert kept == Kept(new=2)
        first, second = await rows_of(resources, items)
        assert (first["stream"], first["key"], first["data"]) == (lease.job.stream, "1", {"text": "one"})
        assert (first["occurred_at"], second["occurred_at"]) == (NOON, None)
        assert (first["revision"], first["deleted"], first["fence"]) == (1, False, lease.fence)
        assert (first["tenant_id"], first["user_id"], first["execution_id"]) == ("t1", "u1", lease.execution_id)
        assert [(row["key"], row["revision"], row["position"]) for row in await rows_of(resources, outbox)] == [
            ("1", 1, None),
            ("2", 1, None),
        ]
        mark = await watermark_of(resources, lease)
        assert mark["value"] == {"id": 2}
        assert mark["moved_at"] is not None

    @pytest.mark.spec("G3", "T7")
    async def test_the_same_batch_again_changes_nothing(self, resources: Resources, sink: SqlSink) -> None:
        """A repeated batch makes no events."""
        lease = await given_lease(resources)
        batch = Batch([Item("1", {"b": 1, "a": [2]}), Item("2", "two")], {"id": 2})
        await sink.keep(lease, batch)
        before = await rows_of(resources, items)

        assert await sink.keep(lease, Batch([Item("1", {"a": [2], "b": 1}), Item("2", "two")])) == Kept(known=2)

        assert await rows_of(resources, items) == before
        assert await count_of(resources, outbox) == 2
        assert await count_of(resources, item_revisions) == 0

    @pytest.mark.spec("G3")
    async def test_a_changed_item_is_a_new_revision(self, resources: Resources, sink: SqlSink) -> None:
        """The old revision is archived, and the change makes an event."""
        lease = await given_lease(resources)
        await sink.keep(lease, Batch([Item("1", {"text": "one"}, NOON), Item("2", {})]))

        assert await sink.keep(lease, Batch([Item("1", {"text": "uno"}), Item("2", {})])) == Kept(changed=1, known=1)

        [item] = await rows_of(resources, items, key="1")
        assert (item["revision"], item["data"], item["occurred_at"]) == (2, {"text": "uno"}, None)
        [old] = await rows_of(resources, item_revisions)
        assert (old["key"], old["revision"], old["data"], old["occurred_at"]) == ("1", 1, {"text": "one"}, NOON)
        assert [(row["key"], row["revision"]) for row in await rows_of(resources, outbox)] == [
            ("1", 1),
            ("2", 1),
            ("1", 2),
        ]

    async def test_a_fingerprint_decides_what_is_a_change(self, resources: Resources, sink: SqlSink) -> None:
        """A counter that changes all the time makes no revision."""
        lease = await given_lease(resources)
        await sink.keep(lease, Batch([Item("1", {"text": "one", "views": 1}, fingerprint="one")]))

        assert await sink.keep(lease, Batch([Item("1", {"text": "one", "views": 9}, fingerprint="one")])) == Kept(
            known=1
        )
        assert await sink.keep(lease, Batch([Item("1", {"text": "uno", "views": 9}, fingerprint="uno")])) == Kept(
            changed=1
        )

    async def test_a_tombstone_is_a_change_and_loses_nothing(self, resources: Resources, sink: SqlSink) -> None:
        """The stored content stays, and the item may return."""
        lease = await given_lease(resources)
        await sink.keep(lease, Batch([Item("1", {"text": "one"})]))
        gone = Batch([Item("1", {"text": "one"}, deleted=True)])

        assert await sink.keep(lease, gone) == Kept(changed=1)
        assert await sink.keep(lease, gone) == Kept(known=1)
        assert (await rows_of(resources, items))[0]["deleted"] is True
        assert await sink.keep(lease, Batch([Item("1", {"text": "one"})])) == Kept(changed=1)
        [item] = await rows_of(resources, items)
        assert (item["deleted"], item["revision"]) == (False, 3)

    async def test_of_duplicates_in_one_batch_the_last_counts(self, resources: Resources, sink: SqlSink) -> None:
        """The item is stored once."""
        lease = await given_lease(resources)

        kept = await sink.keep(lease, Batch([Item("1", "old"), Item("2", "two"), Item("1", "new")], {"id": 2}))

        assert kept == Kept(new=2, known=1)
        assert [(row["key"], row["data"], row["revision"]) for row in await rows_of(resources, items)] == [
            ("1", "new", 1),
            ("2", "two", 1),
        ]
        assert await count_of(resources, outbox) == 2

    async def test_an_empty_batch_moves_the_watermark(self, resources: Resources, sink: SqlSink) -> None:
        """A source may find nothing new up to a later point."""
        lease = await given_lease(resources)
        assert await sink.keep(lease, Batch([], {"id": 7})) == Kept()
        assert (await watermark_of(resources, lease))["value"] == {"id": 7}

    async def test_a_batch_without_a_watermark_leaves_it(self, resources: Resources, sink: SqlSink) -> None:
        """Not every batch ends at a point from which a run can continue."""
        lease = await given_lease(resources)
        await sink.keep(lease, Batch([Item("1", 1)], {"id": 1}))
        await sink.keep(lease, Batch([Item("2", 2)]))
        assert (await watermark_of(resources, lease))["value"] == {"id": 1}

    @pytest.mark.spec("B8")
    async def test_an_event_says_whether_its_item_is_older_than_the_run(
        self, resources: Resources, sink: SqlSink
    ) -> None:
        """Older than the first run of the stream, older than the last complete one, or new."""

        async def collect(*items: Item) -> datetime:
            lease = (await take(resources))[0]
            await sink.keep(lease, Batch(list(items)))
            assert await settle(resources, lease, Done())
            stored = await watermark_of(resources, lease)
            checked_at: datetime = stored["last_checked_at"]
            return checked_at

        hour = timedelta(hours=1)
        job_id = await given_job(resources, name="news")
        [first] = await given_executions(resources, [job_id])
        began = (await execution_of(resources, first))["scheduled_for"]
        checked = await collect(
            Item("a", 1), Item("b", 1, began - hour), Item("c", 1, began), Item("d", 1, began + hour)
        )
        await given_executions(resources, [job_id])
        checked = await collect(
            Item("a", 2), Item("e", 1), Item("b", 2, began - hour), Item("f", 1, checked), Item("g", 1, checked - hour)
        )

        existed = {(row["key"], row["revision"]): row["existed"] for row in await rows_of(resources, outbox)}
        assert existed == {
            ("a", 1): "first_run",
            ("b", 1): "first_run",
            ("c", 1): None,
            ("d", 1): None,
            ("a", 2): None,
            ("e", 1): None,
            ("b", 2): "last_run",
            ("f", 1): None,
            ("g", 1): "last_run",
        }

    @pytest.mark.spec("T3")
    async def test_the_high_water_mark_lasts_until_success(self, resources: Resources, sink: SqlSink) -> None:
        """It shows the progress of an unfinished run."""
        lease = await given_lease(resources)
        await sink.keep(lease, Batch([Item("1", 1, NOON), Item("2", 2, NOON)], {"id": 2}))
        await settle(resources, lease, Snooze(after=AT_ONCE, reason="wait", kept=Kept(new=2)))
        assert (await watermark_of(resources, lease))["high_water"]["key"] == "2"

        await resources.queue.put(await resources.upkeep.wake(limit=1), again=True)
        [again] = await take(resources)
        assert again.watermark == {"id": 2}
        await settle(resources, again, Done())
        mark = await watermark_of(resources, lease)
        assert (mark["high_water"], mark["value"]) == (None, {"id": 2})
        assert mark["last_parsed_at"] is not None

    async def test_streams_do_not_meet(self, resources: Resources, sink: SqlSink) -> None:
        """The same key in two streams is two items."""
        first, second = await given_lease(resources), await given_lease(resources, worker="b")
        await sink.keep(first, Batch([Item("1", "x")], {"id": 1}))
        assert await sink.keep(second, Batch([Item("1", "y")], {"id": 9})) == Kept(new=1)
        assert (await watermark_of(resources, first))["value"] == {"id": 1}

    @pytest.mark.spec("T7")
    async def test_what_two_targets_share_is_kept_once(
        self, resources: Resources, sink: SqlSink, other: Resources
    ) -> None:
        """Items go to the stream of the batch; the watermark and the fence remain those of the target."""
        one, two = await given_lease(resources, name="one"), await given_lease(other, name="two")
        shared = Batch([Item("7:1", "a"), Item("7:2", "b")], {"id": 2}, "telegram:7", "t9", "u9")

        assert await sink.keep(one, shared) == Kept(new=2)
        assert await SqlSink(other.keeping, other.events).keep(two, shared) == Kept(known=2)

        rows = await rows_of(resources, items)
        assert [(row["stream"], row["key"], row["tenant_id"], row["user_id"]) for row in rows] == [
            ("telegram:7", "7:1", "t9", "u9"),
            ("telegram:7", "7:2", "t9", "u9"),
        ]
        assert [row["stream"] for row in await rows_of(resources, outbox)] == ["telegram:7"] * 2
        marks = {row["stream"]: (row["value"], row["items_stream"]) for row in await rows_of(resources, watermarks)}
        assert marks == dict.fromkeys((one.job.stream, two.job.stream), ({"id": 2}, "telegram:7"))

    async def test_two_targets_that_change_one_item_at_once_lose_no_revision(
        self, resources: Resources, other: Resources
    ) -> None:
        """The second writer makes the next revision or none: each event refers to an existing revision."""
        one, two = await given_lease(resources, name="one"), await given_lease(other, name="two")

        async def keep(keeper: Resources, lease: Lease, who: str) -> None:
            for number in range(25):
                batch = Batch([Item(key, f"{who}{number}") for key in "abc"], {"id": number}, "shared")
                await keeper.keeping.keep(lease, batch)

        await asyncio.gather(keep(resources, one, "x"), keep(other, two, "y"))

        kept = {(row["key"], row["revision"]) for row in await rows_of(resources, items)}
        kept |= {(row["key"], row["revision"]) for row in await rows_of(resources, item_revisions)}
        events = [(row["key"], row["revision"]) for row in await rows_of(resources, outbox)]
        assert len(set(events)) == len(events)
        assert set(events) == kept

    async def test_pages_and_blobs_are_kept_with_the_batch(self, resources: Resources, other: Resources) -> None:
        """The state of a crawl changes together with its items, or not at all."""
        lease, pages = await given_lease(resources, name="site"), Pages(resources.database)
        found = [SitePage(url=f"https://site.test/{n}", depth=1, place=n) for n in range(3)]
        seen = SitePage(url="https://site.test/1", crawl=1, status=200, etag='"a"', content_hash="h")
        picture = Blob(hashlib.sha256(b"x").hexdigest(), "image/png", b"x")
        await resources.keeping.keep(lease, Batch([], {"crawl": 1}, pages=found, blobs=[picture, picture]))
        await resources.keeping.keep(lease, Batch([Item("1", "one")], {"crawl": 1}, pages=[seen, found[1]]))
        await expire(resources, lease)
        await rescue(other)
        await take(other, worker="b")
        with pytest.raises(Fenced):
            await resources.keeping.keep(lease, Batch([], None, pages=[SitePage(url="https://site.test/2", crawl=1)]))

        stream = lease.job.stream
        assert [page.place for page in await pages.read_frontier(stream, 1, limit=9)] == [0, 2]
        assert [page.place for page in await pages.read_frontier(stream, 2, limit=9)] == [0, 2, 1]
        known = (await pages.find(stream, [seen.url]))[seen.url]
        assert (known.etag, known.depth, known.place, known.crawl) == ('"a"', 1, 1, 1)
        assert await pages.find_by_content(stream, ["h", "i"]) == {"h": seen.url}
        assert (await pages.count(stream)).known == 3
        assert await Blobs(resources.database).read([picture.sha256, "none"]) == {picture.sha256: picture}

    async def test_different_streams_can_be_kept_at_once(self, resources: Resources, other: Resources) -> None:
        """Several processes can store batches of different streams in parallel."""
        await given_queued(resources, 8)
        leases = await take(resources)

        async def keep(number: int, lease: Lease) -> None:
            for start in range(0, 30, 10):
                batch = Batch([Item(str(n), n) for n in range(start, start + 10)], {"id": start})
                await (resources, other)[number % 2].keeping.keep(lease, batch)

        await asyncio.gather(*(keep(number, lease) for number, lease in enumerate(leases)))

        assert await count_of(resources, items) == 8 * 30
        assert await count_of(resources, outbox) == 8 * 30
        assert [row["value"] for row in await rows_of(resources, watermarks)] == [{"id": 20}] * 8

    # Refusing

    @pytest.mark.spec("G3", "E1")
    async def test_a_replaced_worker_changes_nothing(
        self, resources: Resources, sink: SqlSink, other: Resources
    ) -> None:
        """No items, watermark or events are written once another worker has taken over."""
        first = await given_lease(resources)
        await sink.keep(first, Batch([Item("1", "mine")], {"id": 1}))
        await expire(resources, first)
        await rescue(other)
        [second] = await take(other, worker="b")
        before = await self._everything(resources)

        with pytest.raises(Fenced):
            await sink.keep(first, Batch([Item("1", "changed"), Item("2", "new")], {"id": 99}))
        with pytest.raises(Fenced):
            await sink.keep(first, Batch([], {"id": 99}))

        assert await self._everything(resources) == before
        assert second.watermark == {"id": 1}
        assert await SqlSink(other.keeping, other.events).keep(second, Batch([Item("2", "theirs")], {"id": 2})) == Kept(
            new=1
        )

    @pytest.mark.spec("G3")
    async def test_a_batch_that_cannot_be_kept_changes_nothing(self, resources: Resources, sink: SqlSink) -> None:
        """A batch is stored completely or not at all."""
        lease = await given_lease(resources)
        before = await self._everything(resources)

        with pytest.raises(TypeError):
            await sink.keep(lease, Batch([Item("1", "fine"), Item("2", object())], {"id": 2}))
        with pytest.raises(InvalidInput, match="larger than"):
            await sink.keep(lease, Batch([Item("1", "fine"), Item("2", "x" * 20_000_000)], {"id": 2}))

        assert await self._everything(resources) == before

    # Texts

    @pytest.mark.parametrize(
        ("text", "stored"),
        [
            pytest.param("NUL \x00 byte", "NUL ␀ byte", id="nul"),
            pytest.param("lone \ud83d surrogate", "lone \ufffd surrogate", id="surrogate"),
            pytest.param("\ud83d", "\ufffd", id="only-a-surrogate"),
            pytest.param("pair \ud83d\ude00 as surrogates", "pair \U0001f600 as surrogates", id="pair"),
            pytest.param("\\u0000 written out", "\\u0000 written out", id="escape"),
            pytest.param("\u05e9\u05dc\u05d5\u05dd \u202e\u0645\u0631\u062d\u0628\u0627", None, id="right-to-left"),
            pytest.param("\U0001f468\u200d\U0001f469\u200d\U0001f467 \u200b \U0001f1fa\U0001f1e6", None, id="emoji"),
            pytest.param("\U00020000\U0010ffff", None, id="four-bytes"),
            pytest.param("' OR 1=1; DROP TABLE items; -- $1 ? %s {}", None, id="sql"),
            pytest.param("ж" * 4_000_000, None, id="huge"),
        ],
    )
    async def test_any_text_can_be_kept(
        self, resources: Resources, sink: SqlSink, text: str, stored: str | None
    ) -> None:
        """Characters that no database can store are replaced by visible ones."""
        lease = await given_lease(resources)
        key, expected = text[:40], text if stored is None else stored
        batch = Batch([Item(key, {"text": text, "list": [text[:9]], text[:20]: 1})], {"value": text[:30]})

        assert await sink.keep(lease, batch) == Kept(new=1)
        assert await sink.keep(lease, batch) == Kept(known=1)

        [item] = await rows_of(resources, items)
        assert item["data"]["text"] == expected
        assert item["key"] == expected[:40]
        [event] = await relay_events(resources)
        assert event.key == expected[:40]
        assert (await watermark_of(resources, lease))["value"] == {"value": expected[:30]}

    async def test_keys_that_are_stored_alike_are_one(self, resources: Resources, sink: SqlSink) -> None:
        """Two keys that differ only in characters that no database can store are one key."""
        lease = await given_lease(resources)
        assert await sink.keep(lease, Batch([Item("a\x00", 1), Item("a␀", 2)])) == Kept(new=1, known=1)

    @pytest.mark.parametrize("data", [None, 0, "", [], {}, True, 1.5, 2**53, [None, {"a": None}]])
    async def test_any_json_can_be_kept(self, resources: Resources, sink: SqlSink, data: Any) -> None:
        """Empty values are values."""
        lease = await given_lease(resources)
        await sink.keep(lease, Batch([Item("1", data)]))
        assert await sink.keep(lease, Batch([Item("1", data)])) == Kept(known=1)
        [event] = await relay_events(resources)
        assert event.kind == "item.new"

    async def test_a_time_without_a_zone_is_taken_as_utc(self, resources: Resources, sink: SqlSink) -> None:
        """The time zone of the machine does not matter."""
        lease = await given_lease(resources)
        await sink.keep(lease, Batch([Item("1", 1, NOON.replace(tzinfo=None))]))
        assert (await rows_of(resources, items))[0]["occurred_at"] == NOON

    # Events

    @pytest.mark.spec("G4")
    async def test_events_come_in_the_order_of_the_items(self, resources: Resources, sink: SqlSink) -> None:
        """This holds for new and changed items, and for any order of their keys."""
        lease = await given_lease(resources)
        keys = [str((n * 37) % 101) for n in range(100)]
        await sink.keep(lease, Batch([Item(key, "old") for key in keys[::3]]))
        await relay_events(resources)

        await sink.keep(lease, Batch([Item(key, "new") for key in keys]))

        events = await relay_events(resources)
        assert [event.key for event in events] == keys
        assert [event.position for event in events] == list(range(35, 135))

    @pytest.mark.spec("G3", "G4", "T7")
    async def test_whatever_else_is_in_a_batch_each_new_item_is_told_once(
        self, resources: Resources, sink: SqlSink
    ) -> None:
        """Each new item has one event with its key, in the order of the batch, for any key and size of the batch."""
        lease = await given_lease(resources)
        odd = ["", " ", "1", "1.0", "01", "null", "true", '"', "\\", "\\u0041", "[1]"]
        odd += ["a\nb", "ключ", "👍", "%s", "$[0]"]
        known = [f"known {n}" for n in range(1200)]
        await sink.keep(lease, Batch([Item(key, "same") for key in known]))
        assert [event.key for event in await relay_events(resources, limit=2000)] == known

        mixed = [*known[600:], *odd, *known[:600], *(f"new {n}" for n in range(700))]
        batch = Batch([Item(key, "same") for key in mixed])
        assert await sink.keep(lease, batch) == Kept(new=len(odd) + 700, known=1200)
        events = [(event.kind, event.key, event.revision) for event in await relay_events(resources, limit=2000)]
        assert events == [("item.new", key, 1) for key in mixed if key not in known]

        changed = Batch([Item(key, "other" if n % 2 else "same") for n, key in enumerate(["last", *odd, *known[:3]])])
        assert await sink.keep(lease, changed) == Kept(new=1, changed=10, known=9)
        events = [(event.kind, event.key, event.revision) for event in await relay_events(resources, limit=2000)]
        assert events == [("item.new", "last", 1)] + [("item.changed", key, 2) for key in [*odd, *known[:3]][::2]]

    @pytest.mark.spec("G4", "T7")
    async def test_an_event_tells_what_happened(self, resources: Resources, sink: SqlSink) -> None:
        """Each event has the content of its own revision, even if the item has changed since."""
        lease = await given_lease(resources)
        await sink.keep(lease, Batch([Item("1", {"v": 1})]))
        await sink.keep(lease, Batch([Item("1", {"v": 2}, NOON)]))
        await sink.keep(lease, Batch([Item("1", {"v": 2}, NOON, deleted=True)]))

        events = await relay_events(resources)

        assert [(e.kind, e.revision, "".join(e.data.split()), e.occurred_at) for e in events] == [
            ("item.new", 1, '{"v":1}', None),
            ("item.changed", 2, '{"v":2}', NOON),
            ("item.deleted", 3, '{"v":2}', NOON),
        ]
        assert [event.event_id for event in events] == [f"{lease.job.stream}/1/{n}" for n in (1, 2, 3)]
        assert all(event.collected_at.tzinfo is not None for event in events)

    @pytest.mark.spec("G4")
    async def test_positions_have_no_gaps(self, resources: Resources, sink: SqlSink, other: Resources) -> None:
        """A reader that has seen one position knows the next."""
        lease = await given_lease(resources)
        batch = Batch([Item(str(n), n) for n in range(25)])
        await sink.keep(lease, batch)
        await sink.keep(lease, batch)
        await expire(resources, lease)
        await rescue(other)
        await take(other, worker="b")
        with pytest.raises(Fenced):
            await sink.keep(lease, Batch([Item("x", "x")]))

        positions = [event.position for _ in range(4) for event in await relay_events(resources, limit=10)]

        assert positions == list(range(1, 26))
        assert [row["position"] for row in await rows_of(resources, outbox)] == positions
        assert all(row["sent_at"] is not None for row in await rows_of(resources, outbox))

    @pytest.mark.spec("G4")
    async def test_what_could_not_be_published_is_published_again(self, resources: Resources, sink: SqlSink) -> None:
        """Events are published again with the same ids and positions; none counts as sent before it is."""
        lease = await given_lease(resources)
        await sink.keep(lease, Batch([Item("1", 1), Item("2", 2)]))
        tried: list[str] = []

        async def publish(events: Sequence[Event]) -> None:
            tried.extend(event.event_id for event in events)
            raise ValueError("no connection")

        with pytest.raises(ValueError, match="no connection"):
            await resources.keeping.relay(publish, limit=10)

        assert [row["sent_at"] for row in await rows_of(resources, outbox)] == [None, None]
        events = await relay_events(resources)
        assert [event.event_id for event in events] == tried
        assert [event.position for event in events] == [1, 2]
        assert await relay_events(resources) == []

    @pytest.mark.spec("G4")
    async def test_two_relays_at_once_keep_the_order(
        self, resources: Resources, sink: SqlSink, other: Resources
    ) -> None:
        """With two leaders at once an event may be published twice, but with one position and in order."""
        lease = await given_lease(resources)
        await sink.keep(lease, Batch([Item(str(n), n) for n in range(40)]))
        heard: list[Event] = []

        async def publish(events: Sequence[Event]) -> None:
            heard.extend(events)

        for _ in range(4):
            await asyncio.gather(*(p.keeping.relay(publish, limit=10) for p in (resources, other)))

        assert {event.position: event.key for event in heard} == {n + 1: str(n) for n in range(40)}
        assert len({event.event_id for event in heard}) == 40

    # Any sequence

    @pytest.mark.spec("G3", "G4", "T7")
    @settings(
        max_examples=15,
        deadline=None,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.differing_executors,
            HealthCheck.too_slow,
        ],
    )
    @given(batches=st.lists(POSTS, max_size=6))
    async def test_any_sequence_of_batches_ends_in_their_union(
        self, resources: Resources, batches: list[Posts]
    ) -> None:
        """The result has the newest content of each item, one revision per change, and one event per revision."""
        lease = await given_lease(resources)
        contents: dict[str, list[tuple[str, bool]]] = {}
        total = Kept()
        for number, posts in enumerate(batches):
            batch = Batch([Item(key, text, deleted=gone) for key, text, gone in posts], {"n": number})
            total += await resources.keeping.keep(lease, batch)
            for key, content in {key: (text, gone) for key, text, gone in posts}.items():
                seen = contents.setdefault(key, [])
                if seen[-1:] != [content]:
                    seen.append(content)
        await settle(resources, lease, Done(kept=total))

        stream = lease.job.stream
        found = {row["key"]: row for row in await rows_of(resources, items, stream=stream)}
        assert {key: (row["data"], row["deleted"]) for key, row in found.items()} == {
            key: seen[-1] for key, seen in contents.items()
        }
        assert {key: row["revision"] for key, row in found.items()} == {k: len(seen) for k, seen in contents.items()}
        archived = Counter(row["key"] for row in await rows_of(resources, item_revisions, stream=stream))
        assert archived == Counter({k: len(seen) - 1 for k, seen in contents.items()})
        events = [(e.key, e.revision, e.data.strip('"')) for e in await relay_events(resources) if e.stream == stream]
        assert Counter(events) == Counter(
            (key, n, text) for key, seen in contents.items() for n, (text, _) in enumerate(seen, start=1)
        )
        assert (await watermark_of(resources, lease))["value"] == ({"n": len(batches) - 1} if batches else None)
        assert total.new == len(contents)
        assert total.changed == sum(len(seen) - 1 for seen in contents.values())
        assert total.new + total.changed + total.known == sum(map(len, batches))

    async def _everything(self, resources: Resources) -> list[list[dict[str, Any]]]:
        return [await rows_of(resources, table) for table in (items, item_revisions, outbox, watermarks)]


async def relay_events(resources: Resources, *, limit: int = 1000) -> list[Event]:
    """Return the events that one step of the relay publishes."""
    heard: list[Event] = []

    async def publish(events: Sequence[Event]) -> None:
        heard.extend(events)

    assert await resources.keeping.relay(publish, limit=limit) == len(heard)
    return heard
