"""Watches over HTTP and by the clients: the same as without HTTP between, checked, audited, and for those who may."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.serving import Api, served, serving
from floodmark.client import Client, SyncClient
from floodmark.errors import Conflict, InvalidInput, NotFound
from floodmark.model.batch import Item
from floodmark.model.watches import WatchFields
from floodmark.testing.clock import SetClock
from floodmark.testing.factories import Opened
from floodmark.watches.repository import WatchRepository
from notifying.receivers import Receiver
from watches.desk import DAY, HOUR, WatchDesk, settings_for

pytestmark = pytest.mark.spec("B8", "V8")

FIRES: dict[str, Any] = {"name": "fires", "query": "fire OR smoke", "streams": ["telegram:*"], "notify": ["slack"]}


@pytest.fixture
async def api(opened: Opened, receiver: Receiver) -> AsyncIterator[Api]:
    async with serving(lambda **more: opened(**settings_for(receiver), **more)) as api:
        yield api


async def test_a_watch_is_added_shown_changed_paused_and_removed(api: Api) -> None:
    made = await api.post("watches", json={**FIRES, "cooldown_seconds": 1800, "quiet": "22:00-7:00"})
    assert made.status_code == 201, made.text
    row = made.json()
    assert (row["name"], row["kind"], row["quiet"], row["version"], row["paused"]) == (
        "fires",
        "items",
        "22:00-07:00",
        1,
        False,
    )
    assert (await api.get("watches/fires")).json() == row
    assert (await api.get("watches/fir")).json() == row, "by the beginning of its name"
    changed = await api.put("watches/fires", json={**FIRES, "digest": "daily"}, params={"version": 1})
    assert (changed.json()["digest"], changed.json()["cooldown_seconds"], changed.json()["version"]) == (
        "daily",
        None,
        2,
    )
    assert (await api.put("watches/fires", json=FIRES, params={"version": 1})).status_code == 409
    same = await api.put("watches/fires", json={**FIRES, "digest": "daily"})
    assert same.json()["version"] == 2, "nothing has changed"
    assert (await api.post("watches/fires/pause")).json()["paused"]
    assert not (await api.post("watches/fires/resume")).json()["paused"]
    await api.post("watches", json={**FIRES, "name": "another", "kind": "page_changed"})
    first = (await api.get("watches", params={"limit": 1})).json()
    assert [one["name"] for one in first["items"]] == ["another"]
    rest = (await api.get("watches", params={"cursor": first["next"]})).json()
    assert [one["name"] for one in rest["items"]] == ["fires"]
    assert len((await api.get("watches", params={"kind": "page_changed"})).json()["items"]) == 1
    assert (await api.delete("watches/fires")).json()["name"] == "fires"
    assert (await api.get("watches/fires")).status_code == 404
    audit = (await api.get("audit")).json()["items"]
    actions = ["watch.added", "watch.changed", "watch.paused", "watch.resumed", "watch.added", "watch.removed"]
    assert [entry["action"] for entry in reversed(audit)] == actions
    assert audit[4]["before"]["digest"] is None
    assert audit[4]["after"]["digest"] == "daily"


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"notify": ["slak"]}, "the channel 'slak' is not configured"),
    ({"notify": []}, "a watch needs a channel to notify"),
    ({"query": "("}, "the query cannot be read"),
    ({"query": "-fire"}, "needs a word to search for"),
    ({"pattern": "fire("}, "missing ): ( at character 5"),
    ({"pattern": r"\bfire"}, "ASCII letters only"),
    ({"whole_word": True}, "whole words need a pattern"),
    ({"where": ["views >"]}, "is not a condition on a field"),
    ({"quiet": "25:00-07:00"}, "is not a part of a day"),
    ({"timezone": "Europe/Berln"}, "unknown time zone"),
    ({"threshold_count": 3}, "a threshold needs a number and a time"),
    ({"name": "a b"}, "is not a name of a watch"),
    ({"query": None, "streams": []}, "would match every item"),
    ({"kind": "source_late", "where": ["a = 1"]}, "has no fields"),
    ({"streams": ["a\x00b"]}, "cannot be stored"),
    ({"tags": [" "]}, "is empty"),
)


async def test_a_watch_that_makes_no_sense_is_refused(light: WatchDesk) -> None:
    for change, says in REFUSED:
        with pytest.raises(InvalidInput) as refused:
            await light.operations.add_watch(WatchFields(**{**FIRES, **change}))
        assert says in str(refused.value)
        assert refused.value.hint
    assert (await light.operations.watches()).items == []


async def test_an_unknown_channel_is_refused_with_those_that_are_configured(light: WatchDesk) -> None:
    with pytest.raises(InvalidInput) as refused:
        await light.watch("fire", notify=("slak",))
    assert refused.value.hint == "did you mean slack? configured are: discord, slack, telegram, webhook"


async def test_a_body_that_is_not_as_documented_is_refused(light: WatchDesk) -> None:
    changes: tuple[dict[str, Any], ...] = (
        {"threshold_count": 1, "threshold_seconds": 5},
        {"digest": "weekly"},
        {"cooldown_seconds": 0},
        {"kind": "pages"},
        {"query": "x" * 2001},
        {"colour": "red"},
        {"streams": "telegram:*"},
    )
    async with served(light.resources) as api:
        for change in changes:
            assert (await api.post("watches", json={**FIRES, **change})).status_code == 422, change
    assert (await light.operations.watches()).items == []


async def test_a_watch_without_a_name_gets_one_from_its_words(light: WatchDesk) -> None:
    names = [(await light.watch("fire OR smoke")).name for _ in range(3)]
    assert names == ["fire-or-smoke", "fire-or-smoke-2", "fire-or-smoke-3"]
    assert (await light.watch(kind="page_changed", streams=("web:*",))).name == "page_changed-web"
    assert (await light.watch("Пожар в порту!")).name == "пожар-в-порту"
    with pytest.raises(Conflict, match="there is already a watch"):
        await light.watch("rain", name="fire-or-smoke")


async def test_a_name_is_found_by_its_beginning_and_similar_ones_are_suggested(desk: WatchDesk) -> None:
    await desk.watch("fire", name="fires-harbour")
    await desk.watch("fire", name="fires-town")
    assert (await desk.operations.watch("fires-t")).name == "fires-town"
    with pytest.raises(InvalidInput) as refused:
        await desk.operations.watch("fires")
    assert "fires-harbour, fires-town" in refused.value.hint
    with pytest.raises(NotFound) as missing:
        await desk.operations.watch("firs-town")
    assert "fires-town" in missing.value.hint


async def test_patterns_that_must_be_searched_everywhere_are_few(
    light: WatchDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("floodmark.operations.handlers.watches.MOST_SLOW_PATTERNS", 1)
    first = await light.watch(pattern=r"\d+")
    with pytest.raises(Conflict, match="already 1 patterns"):
        await light.watch(pattern="[abc]+")
    await light.watch(pattern="fire|smoke")
    await light.watch("fire", pattern="[abc]+")
    fields = WatchFields(name=first.name, pattern=r"\d\d", notify=("slack",))
    assert (await light.operations.replace_watch(first.name, fields)).pattern == r"\d\d"


async def test_there_are_not_more_watches_than_can_be_evaluated(
    light: WatchDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("floodmark.watches.repository.MOST_WATCHES", 2)
    for number in range(2):
        await light.watch("fire", name=f"w{number}")
    with pytest.raises(Conflict, match="no more are possible"):
        await light.watch("fire", name="w2")
    await light.operations.remove_watch("w0")
    await light.watch("fire", name="w2")


# Trying


async def test_a_trial_shows_what_would_have_matched_and_notifies_nobody(timed: WatchDesk, clock: SetClock) -> None:
    await timed.collect("fire long ago")
    await timed.relay()
    clock.advance(8 * DAY)
    await timed.collect("fire 1", "rain", "fire 2")
    await timed.collect("fire of the first run", job="new")
    await timed.collect(Item("old", {"text": "fire"}, clock.now() - 30 * DAY))
    await timed.relay()
    trial = await timed.operations.try_watch(WatchFields(query="fire"))
    assert [match.text for match in trial.matches] == ["fire 1", "fire 2"]
    assert (trial.suppressed, trial.examined, trial.next) == (2, 5, None)
    assert trial.since is not None
    far = await timed.operations.try_watch(WatchFields(query="fire"), since=30 * DAY)
    assert len(far.matches) == 3
    assert (await timed.operations.watches()).items == []
    await timed.work()
    assert timed.receiver.posts == []


async def test_a_trial_is_read_in_parts(light: WatchDesk) -> None:
    await light.collect(*(f"fire {number}" for number in range(450)))
    await light.relay()
    found, after, requests = list[str](), None, 0
    while True:
        trial = await light.operations.try_watch(WatchFields(query="fire"), after=after, limit=100)
        found += [match.text for match in trial.matches]
        requests += 1
        if trial.next is None:
            break
        after = trial.next
    assert found == [f"fire {number}" for number in range(450)]
    assert requests == 3
    assert (await light.operations.try_watch(WatchFields(query="fire"), since=HOUR / 3600)).examined >= 0


@pytest.mark.thorough
async def test_matches_and_messages_are_listed_page_by_page(light: WatchDesk) -> None:
    await light.watch("fire", name="fires")
    for number in range(5):
        await light.collect(f"fire {number}")
        await light.work()
    pages = light.operations.each_watch_match("fires", limit=2)
    assert [row.text async for row in pages] == [f"fire {number}" for number in reversed(range(5))]
    sent = [row async for row in light.operations.each_watch_notification("fires", limit=2)]
    assert [(row.channel, row.matches, row.title) for row in sent] == [("webhook", 1, "fires: 1 match")] * 5
    assert len({row.notification_id for row in sent}) == 5


async def test_the_clients_know_watches(api: Api) -> None:
    fields = WatchFields(**FIRES)
    async with Client(api.base) as client:
        row = await client.add_watch(fields)
        assert [found async for found in client.each_watch()] == [row]
        assert row.streams == ("telegram:*",)
        assert (await client.try_watch(fields)).matches == ()
        assert (await client.watch_matches("fires")).items == []
        assert (await client.pause_watch("fires")).paused
        with pytest.raises(InvalidInput, match="is not configured"):
            await client.replace_watch("fires", WatchFields(**{**FIRES, "notify": ("pager",)}))


def test_the_blocking_client_has_the_same_methods() -> None:
    for name in ("add_watch", "each_watch", "try_watch", "watch_notifications", "remove_watch"):
        assert hasattr(SyncClient, name)


@pytest.mark.thorough
async def test_changes_of_watches_are_counted_together(desk: WatchDesk) -> None:
    """The evaluator reads only what has changed."""
    repository = WatchRepository(desk.resources.database, desk.resources.clock)
    await desk.watch("fire", name="a")
    await desk.watch("rain", name="b")
    rows, active = await repository.changed_since(1)
    assert [row["name"] for row in rows] == ["b"]
    assert len(active) == 2
    await desk.operations.pause_watch("a")
    rows, active = await repository.changed_since(2)
    assert rows == []
    assert len(active) == 1
