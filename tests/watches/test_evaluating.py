"""Watches match new items: each once, and nothing that was there before."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import delete, update

from floodmark.errors import Gone
from floodmark.model.batch import Batch, Item
from floodmark.model.execution import Lease
from floodmark.model.outcome import Dead, Done
from floodmark.model.watches import WatchFields
from floodmark.rules.retries import Retries
from floodmark.store.tables import consumers, jobs, outbox
from floodmark.testing.clock import SetClock
from floodmark.testing.factories import given_executions, given_job, rows_of, settle, take
from floodmark.watches.match_repository import MOST_AN_HOUR
from floodmark.watches.tables import watch_matches, watches
from watches.desk import DAY, HOUR, MINUTE, SECOND, WatchDesk

pytestmark = pytest.mark.spec("B8")


async def matched(desk: WatchDesk) -> list[tuple[str, str]]:
    """The names of watches and the keys of items, in order."""
    names = {row["watch_id"]: row["name"] for row in await rows_of(desk.resources, watches)}
    return [(names[row["watch_id"]], row["key"]) for row in await rows_of(desk.resources, watch_matches)]


async def test_new_items_are_matched_once(desk: WatchDesk) -> None:
    await desk.collect("fire before")
    await desk.relay()
    await desk.watch("fire OR smoke", name="fires")
    await desk.watch("rain", name="rain", streams=("test:news",))
    await desk.watch("rain", name="elsewhere", streams=("test:sport",))
    await desk.collect("a big fire", "quiet", "smoke", "rain and fire")
    for _ in range(3):
        await desk.evaluate()
    assert await matched(desk) == [
        ("fires", "a big fire"),
        ("fires", "smoke"),
        ("fires", "rain and fire"),
        ("rain", "rain and fire"),
    ]
    row = await desk.show("fires")
    assert (row.matches, row.suppressed) == (3, 0)
    assert row.last_match_at is not None


async def test_what_is_collected_right_after_a_watch_was_added_is_matched(desk: WatchDesk) -> None:
    """Though the evaluator has loaded the watches before: it notices the change when it commits."""
    await desk.watch("rain", name="rain")
    await desk.evaluate()
    for number in range(3):
        await desk.watch(f"fire {number}", name=f"fire-{number}")
        await desk.collect(f"fire {number}")
        await desk.evaluate()
    assert [name for name, _ in await matched(desk)] == ["fire-0", "fire-1", "fire-2"]


async def test_a_watch_that_is_added_during_an_evaluation_misses_nothing(
    desk: WatchDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is added after the watches were loaded, and an item is kept before the batch is stored."""
    await desk.watch("rain", name="rain")
    await desk.evaluate()
    matcher: Any = desk.evaluator._matcher
    match, added = matcher.match, asyncio.Event()

    async def match_late(*arguments: Any) -> Any:
        found = await match(*arguments)
        if not added.is_set():
            added.set()
            await desk.watch("fire", name="fire")
            await desk.collect("fire")
            await desk.relay()
        return found

    monkeypatch.setattr(matcher, "match", match_late)
    await desk.collect("rain")
    await desk.evaluate()
    assert await matched(desk) == [("rain", "rain"), ("fire", "fire")]


async def test_two_leaders_match_each_item_once(desk: WatchDesk) -> None:
    other = WatchDesk(desk.resources, desk.receiver)
    await desk.watch("fire", name="fires")
    await desk.collect(*(f"fire {number}" for number in range(30)))
    await desk.relay()
    await asyncio.gather(desk.evaluate(), other.evaluate(), desk.evaluate())
    assert len(await matched(desk)) == 30
    await other.sender.close()


async def test_a_changed_item_is_matched_when_it_begins_to_match(desk: WatchDesk) -> None:
    await desk.watch("fire", name="fires")
    await desk.collect(Item("a", {"text": "fire"}), Item("b", {"text": "rain"}))
    await desk.evaluate()
    await desk.collect(Item("a", {"text": "big fire"}), Item("b", {"text": "rain and fire"}))
    await desk.evaluate()
    await desk.collect(Item("a", {"text": "big fire"}, deleted=True), Item("b", {"text": "fire"}))
    await desk.evaluate()
    assert [(row["key"], row["revision"]) for row in await rows_of(desk.resources, watch_matches)] == [
        ("a", 1),
        ("b", 2),
    ]
    await desk.collect(Item("a", {"text": "fire again"}))
    await desk.evaluate()
    assert len(await matched(desk)) == 3, "it had been deleted"


async def test_the_first_run_of_a_stream_notifies_nobody(desk: WatchDesk) -> None:
    await desk.watch("fire", name="fires")
    await desk.collect("fire 1", "fire 2", job="new")
    await desk.work()
    await desk.collect("fire 3", job="new")
    await desk.work()
    row = await desk.show("fires")
    assert (row.matches, row.suppressed) == (1, 2)
    assert desk.texts == [["fire 3"]]


async def test_old_items_that_come_late_notify_nobody(timed: WatchDesk, clock: SetClock) -> None:
    await timed.watch("fire", name="fires")
    await timed.watch("fire", name="patient", max_age_seconds=30 * 86400)
    clock.advance(HOUR)
    now = clock.now()
    await timed.collect(
        Item("old", {"text": "fire"}, now - 3 * DAY),
        Item("of yesterday", {"text": "fire"}, now - 20 * HOUR),
        Item("new", {"text": "fire"}, now),
    )
    await timed.evaluate()
    assert [key for name, key in await matched(timed) if name == "fires"] == ["of yesterday", "new"]
    assert len([name for name, _ in await matched(timed) if name == "patient"]) == 3
    assert (await timed.show("fires")).suppressed == 1
    clock.advance(7 * DAY)
    await timed.collect(Item("of the outage", {"text": "fire"}, clock.now() - 6 * DAY))
    await timed.evaluate()
    assert ("fires", "of the outage") in await matched(timed), "it is newer than the last run"


async def test_a_stream_is_known_by_its_job_and_its_channel(desk: WatchDesk) -> None:
    """The posts of a channel are in a stream that is named by its number."""
    await desk.watch("fire", name="by-job", streams=("channel",))
    await desk.watch("fire", name="by-stream", streams=("test:channel",))
    await desk.watch("fire", name="by-number", streams=("telegram:7",))
    await desk.watch("fire", name="by-tag", tags=("city",))
    await desk.watch("fire", name="by-source", sources=("test",))
    await desk.watch("fire", name="other", tags=("sea",))
    await desk.collect(job="channel", tags=["city", "x"])
    await given_executions(desk.resources, [(await desk.operations.job("channel")).job_id])
    [lease] = await take(desk.resources)
    await desk.resources.keeping.keep(lease, Batch([Item("7:1", {"text": "fire"})], stream="telegram:7"))
    assert await settle(desk.resources, lease, Done())
    await desk.evaluate()
    assert {name for name, _ in await matched(desk)} == {"by-job", "by-stream", "by-number", "by-tag", "by-source"}


async def test_a_paused_watch_looks_at_nothing_and_sends_nothing(light: WatchDesk) -> None:
    await light.watch("fire", name="fires")
    await light.collect("fire 1")
    await light.evaluate()
    await light.operations.pause_watch("fires")
    await light.collect("fire 2")
    await light.work()
    assert light.sent == []
    await light.operations.resume_watch("fires")
    await light.collect("fire 3")
    await light.work()
    assert light.texts == [["fire 1", "fire 3"]], "what it had found before is sent now"


async def test_conditions_patterns_and_words_must_all_match(light: WatchDesk) -> None:
    await light.watch("fire", name="all", pattern="(?i)harbou?r", where=("views >= 1000", "!media"))
    items = [
        Item("a", {"text": "fire at the Harbour", "views": 1000}),
        Item("b", {"text": "fire at the Harbour", "views": 999}),
        Item("c", {"text": "fire at the harbor", "views": 5000, "media": {"kind": "photo"}}),
        Item("d", {"text": "smoke at the harbor", "views": 5000}),
        Item("e", {"text": "fire in town", "views": 5000}),
    ]
    await light.collect(*items)
    await light.evaluate()
    assert await matched(light) == [("all", "a")]


@pytest.mark.thorough
async def test_changes_of_watches_take_effect_at_once(desk: WatchDesk) -> None:
    row = await desk.watch("fire", name="w")
    await desk.evaluate()
    for query, text in (("smoke", "smoke 1"), ("rain", "rain 1"), ("snow", "snow 1")):
        fields = WatchFields(name="w", query=query, notify=("webhook",))
        row = await desk.operations.replace_watch("w", fields, version=row.version)
        await desk.collect(text, f"fire with {text[:2]}")
        await desk.evaluate()
    assert [key for _, key in await matched(desk)] == ["smoke 1", "rain 1", "snow 1"]
    await desk.operations.remove_watch("w")
    await desk.collect("snow 2")
    await desk.evaluate()
    assert await matched(desk) == []


@pytest.mark.thorough
async def test_more_matches_than_anyone_reads_are_only_counted(desk: WatchDesk) -> None:
    await desk.watch("fire", name="fires")
    for begin in (0, 600):
        await desk.collect(*(f"fire {number}" for number in range(begin, begin + 600)))
    await desk.work()
    assert len(await matched(desk)) == MOST_AN_HOUR
    assert (await desk.show("fires")).matches == 1200
    assert [message["count"] for message in desk.sent] == [1200]
    assert desk.sent[0]["lines"][-1] == "… and 1,190 more: floodmark watch history fires"


async def test_pruned_events_and_a_restored_database_stop_nothing(desk: WatchDesk) -> None:
    await desk.watch("fire", name="fires")
    await desk.collect("fire 1", "fire 2")
    await desk.relay()
    async with desk.resources.database.writing() as connection:
        await connection.execute(delete(outbox).where(outbox.c.key == "fire 1"))
    await desk.evaluate()
    assert await matched(desk) == [("fires", "fire 2")]
    async with desk.resources.database.writing() as connection:
        await connection.execute(update(consumers).where(consumers.c.name == "watches").values(position=10**9))
    await desk.evaluate()
    await desk.collect("fire 3")
    await desk.evaluate()
    assert await matched(desk) == [("fires", "fire 2"), ("fires", "fire 3")]


async def test_events_that_are_read_again_are_not_matched_again(desk: WatchDesk) -> None:
    await desk.watch("fire", name="fires")
    await desk.collect("fire 1")
    await desk.work()
    async with desk.resources.database.writing() as connection:
        await connection.execute(update(consumers).where(consumers.c.name == "watches").values(position=0))
        await connection.execute(update(watches).values(after_position=0))
    await desk.work()
    assert len(await matched(desk)) == len(desk.sent) == 1
    assert (await desk.show("fires")).matches == 1


async def test_without_watches_nothing_is_read(light: WatchDesk) -> None:
    await light.collect("fire 1")
    await light.evaluate()
    assert await rows_of(light.resources, consumers) == []
    await light.watch("fire", name="fires")
    [consumer] = await rows_of(light.resources, consumers)
    assert consumer["position"] == await light.resources.repositories.events.last_position() == 1
    await light.operations.remove_watch("fires")
    await light.collect("fire 2")
    await light.evaluate()
    await light.watch("fire", name="fires")
    await light.evaluate()
    assert await matched(light) == []


async def test_a_threshold_counts_matches_across_batches(timed: WatchDesk, clock: SetClock) -> None:
    await timed.watch("fire", name="fires", threshold_count=3, threshold_seconds=600)
    for text, after in (("fire 1", SECOND), ("fire 2", 11 * MINUTE), ("fire 3", 5 * MINUTE)):
        clock.advance(after)
        await timed.collect(text)
        await timed.work()
    assert timed.sent == [], "two in ten minutes"
    clock.advance(MINUTE)
    await timed.collect("fire 4", "rain")
    await timed.work()
    assert timed.texts == [["fire 2", "fire 3", "fire 4"]]
    await timed.collect("fire 5", "fire 6")
    await timed.work()
    assert len(timed.sent) == 1, "counting starts again"
    await timed.collect("fire 7", "fire 8")
    await timed.work()
    assert timed.texts[1:] == [["fire 5", "fire 6", "fire 7"]]
    assert (await timed.show("fires")).matches == 8


# Sources


@pytest.mark.thorough
async def test_a_source_that_is_late_is_told_once_until_it_recovers(timed: WatchDesk, clock: SetClock) -> None:
    watch = await timed.watch(kind="source_late", name="late")
    await timed.watch(kind="source_late", name="others", streams=("sport",))
    schedule = {"schedule_type": "interval", "interval_seconds": 60.0, "created_at": clock.now()}
    async with timed.resources.database.writing() as connection:
        await connection.execute(update(jobs).where(jobs.c.name == "news").values(**schedule))
    await timed.work()
    assert timed.sent == []
    for round_ in (1, 2):
        clock.advance(HOUR)
        for _ in range(2):
            timed.evaluator._sources_at = 0.0
            await timed.work()
        assert len(timed.sent) == round_
        await timed.collect()
    assert timed.sent[0]["lines"] == ["news is late: it was last read to its end 1 h ago"]
    assert (await timed.show(watch.name)).matches == 2
    trial = await timed.operations.try_watch(WatchFields(kind="source_late"))
    assert trial.matches == ()


async def test_a_source_that_is_gone_is_told_once(desk: WatchDesk) -> None:
    def outcome_of(lease: Lease) -> Dead:
        found = Retries(base=SECOND, longest=SECOND).after(lease, Gone("the channel was deleted"), Done().kept)
        assert isinstance(found, Dead)
        return found

    await dies(desk, "before", outcome_of)
    await desk.watch(kind="source_gone", name="gone")
    await desk.watch(kind="source_gone", name="tagged", tags=("city",))
    await dies(desk, "fails", lambda _: Dead(error="no answer"))
    await dies(desk, "channel", outcome_of)
    for _ in range(3):
        desk.evaluator._sources_at = 0.0
        await desk.work()
    assert [message["lines"] for message in desk.sent] == [["channel is gone: the channel was deleted"]]
    trial = await desk.operations.try_watch(WatchFields(kind="source_gone"))
    assert sorted(match.title for match in trial.matches) == ["before is gone", "channel is gone"]


async def dies(desk: WatchDesk, name: str, outcome_of: Any) -> None:
    """A job fails permanently."""
    await given_executions(desk.resources, [await given_job(desk.resources, name=name)])
    [lease] = await take(desk.resources)
    assert await settle(desk.resources, lease, outcome_of(lease))


# Cookies


def a_scan(*cookies: str, phase: str = "before") -> dict[str, Any]:
    """A report with these marketing cookies."""
    entry: dict[str, Any] = {
        "domain": ".shop.example",
        "path": "/",
        "party": "first",
        "purpose": "marketing",
        "vendor": None,
        "partition": None,
        "lifetime_seconds": 3600,
        "http_only": False,
        "secure": True,
        "same_site": "Lax",
        "set_by": "script",
    }
    found: dict[str, Any] = {
        "result": "complete",
        "note": "",
        "banner": None,
        "contacts": [],
        "storage": [],
        "visits": [],
    }
    phases = [{**found, "phase": phase, "cookies": [{**entry, "name": name} for name in cookies]}]
    return {
        "schema": "floodmark.cookies/2",
        "domain": "shop.example",
        "result": "scan complete",
        "final": "https://shop.example/",
        "scanned_at": "2026-06-01T12:00:00+00:00",
        "phases": phases,
    }


async def test_cookies_are_told_when_they_are_new(desk: WatchDesk) -> None:
    await desk.watch(kind="cookie_before_consent", name="before", notify=("webhook",))
    await desk.watch(kind="cookies_changed", name="changed", notify=("webhook",))
    begin = datetime.now(UTC)
    scans = [a_scan("_fbp"), a_scan("_fbp"), a_scan("_fbp", "_gcl"), a_scan(), {"schema": "floodmark.cookies/2"}]
    for number, scan in enumerate(scans):
        await desk.collect(Item(f"scan-{number}", scan, begin + number * SECOND), job="cookies")
        await desk.work()
    told = [(message["watch"], message["matches"][0]["key"]) for message in desk.sent]
    assert told == [("before", "scan-0"), ("before", "scan-2"), ("changed", "scan-2"), ("changed", "scan-3")]
    assert desk.sent[0]["matches"][0]["title"] == "test:cookies: shop.example sets 1 cookie before consent"
    assert desk.sent[1]["matches"][0]["text"].startswith("_gcl (marketing; first party, shop.example): set by a script")
    assert "1 new cookie before consent" in desk.sent[2]["matches"][0]["text"]
    assert desk.sent[0]["matches"][0]["url"] == "https://shop.example/"


async def test_a_page_that_changed_is_told_with_its_difference(light: WatchDesk) -> None:
    await light.watch(kind="page_changed", name="pages")
    page = {"title": "Shop", "text": "Price 5", "url": "https://shop.example/"}
    await light.collect(Item("https://shop.example/", page))
    changed = {**page, "text": "Price 7", "difference": "@@ -1 +1 @@\n-Price 5\n+Price 7"}
    await light.collect(Item("https://shop.example/", changed))
    await light.work()
    [message] = light.sent
    assert message["lines"] == [
        "test:news: Shop changed",
        "\u2007\u2007@@ -1 +1 @@",
        "\u2007\u2007-Price 5",
        "\u2007\u2007+Price 7",
    ]
    assert message["links"][0] == "https://shop.example/"


async def test_a_watch_that_was_written_by_sql_and_cannot_be_read_stops_no_other(light: WatchDesk) -> None:
    await light.watch("fire", name="fires")
    await light.watch("rain", name="broken")
    async with light.resources.database.writing() as connection:
        await connection.execute(update(watches).where(watches.c.name == "broken").values(query="(", generation=99))
        await connection.execute(update(consumers).values(state={"generation": 99}))
    await light.collect("fire", "rain")
    await light.evaluate()
    assert await matched(light) == [("fires", "fire")]
