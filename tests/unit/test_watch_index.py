"""One search for the literals of all watches finds what each watch finds by itself."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from floodmark.errors import InvalidInput
from floodmark.model.watches import WatchFields
from floodmark.search.documents import SearchableItem, document_of
from floodmark.search.matching import matches
from floodmark.search.query import parse_query
from floodmark.watches.compiled import CompiledWatch
from floodmark.watches.documents import WatchedItem
from floodmark.watches.evaluation import evaluate
from floodmark.watches.event_reader import WatchedEvent
from floodmark.watches.index import WatchIndex, WatchSet
from floodmark.watches.places import CollectingJob, StreamFilter, StreamPlace

pytestmark = pytest.mark.spec("B8")

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
PLACES = {
    "telegram:7": StreamPlace(
        "telegram:7", [CollectingJob(name="news", stream="telegram:@news", source="telegram", tags=("city",))]
    ),
    "web:https://example.org": StreamPlace("web:https://example.org"),
}
WORDS = ("fire", "Fire", "fires", "smoke", "café", "москва", "東京都", "東京", "ice-cream", "big fire", "a_b", "x", "K")


def a_watch(watch_id: str = "w", **fields: Any) -> CompiledWatch:
    named = WatchFields(**{"name": watch_id, **fields})
    return CompiledWatch(named, watch_id=watch_id, default_max_age=DAY)


def an_event(data: Any, *, stream: str = "telegram:7", key: str = "7:1", **changes: Any) -> WatchedEvent:
    usual = {
        "position": 5,
        "stream": stream,
        "key": key,
        "revision": 1,
        "existed": None,
        "occurred_at": NOON,
        "collected_at": NOON,
        "deleted": False,
        "data": msgspec.json.encode(data).decode(),
    }
    return WatchedEvent(**{**usual, **changes})


def a_set(*watches: CompiledWatch) -> WatchSet:
    return WatchSet(WatchIndex({watch.watch_id: watch for watch in watches}))


def found_by(watches: WatchSet, *events: WatchedEvent) -> set[tuple[str, str]]:
    found = evaluate(events, watches, PLACES)
    assert not found.failures
    return {(match.watch.watch_id, match.event_id) for match in (*found.matches, *(one for _, one in found.changed))}


QUERIES = st.recursive(
    st.sampled_from([*(f'"{word}"' for word in WORDS), "fire*", "title:fire", "author:Ada", "is:cut", "url:example"]),
    lambda inner: st.tuples(inner, st.sampled_from([" ", " OR ", " -"]), inner).map(lambda one: f"({''.join(one)})"),
    max_leaves=4,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "query": QUERIES,
        "pattern": st.sampled_from(["(?i)fire", "smoke|cafe", r"\d+", "москва", "東京", "x?", "(?i)Big.+K"]),
        "where": st.lists(st.sampled_from(["views > 10", "!media", "author = Ada"]), max_size=1).map(tuple),
        "streams": st.lists(st.sampled_from(["telegram:*", "news", "web:*", "telegram:7", "none"]), max_size=2).map(
            tuple
        ),
        "sources": st.sampled_from([(), ("telegram",), ("web", "feed")]),
        "tags": st.sampled_from([(), ("city",), ("sea",)]),
    },
)
TEXTS = st.lists(st.sampled_from(WORDS) | st.text(max_size=5), max_size=6).map(" ".join)
ITEMS = st.fixed_dictionaries(
    {"text": TEXTS},
    optional={
        "title": TEXTS,
        "author": st.sampled_from(["Ada", "Bob"]),
        "views": st.integers(0, 20),
        "media": st.just({"caption": "fire"}),
        "link": st.just("https://example.org/fire"),
    },
)


def compile_valid(number: int, fields: dict[str, Any]) -> CompiledWatch | None:
    try:
        return a_watch(f"w{number}", **fields)
    except InvalidInput:
        return None


@given(st.lists(FIELDS, max_size=6), st.lists(FIELDS, max_size=3), ITEMS, st.sampled_from(sorted(PLACES)))
def test_an_index_finds_what_each_watch_finds_by_itself(
    indexed: list[dict[str, Any]], recent: list[dict[str, Any]], data: Any, stream: str
) -> None:
    compiled = [watch for number, fields in enumerate(indexed) if (watch := compile_valid(number, fields))]
    changed = [watch for number, fields in enumerate(recent, 4) if (watch := compile_valid(number, fields))]
    watches = a_set(*compiled).change({watch.watch_id: watch for watch in changed}, ["w0"])
    current = {watch.watch_id: watch for watch in (*compiled, *changed) if watch.watch_id != "w0"}
    event, item = an_event(data, stream=stream), WatchedItem("7:1", data)
    naive = {
        (watch.watch_id, event.event_id)
        for watch in current.values()
        if watch.filter.accepts(PLACES[stream]) and watch.matches(item)
    }
    assert found_by(watches, event) == naive
    assert found_by(watches.rebuild(), event) == naive


@given(QUERIES, ITEMS)
def test_words_mean_the_same_as_in_a_search(query: str, data: Any) -> None:
    try:
        node = parse_query(query)
    except InvalidInput:
        return
    document = document_of(SearchableItem("telegram:7", "7:1", 1, NOON, data))
    assert bool(found_by(a_set(a_watch(query=query)), an_event(data))) == matches(node, document.runs)


@pytest.mark.parametrize(
    ("streams", "accepted"),
    [
        ((), True),
        (("telegram:*",), True),
        (("telegram:7",), True),
        (("telegram:@news",), True),
        (("news",), True),
        (("*",), True),
        (("*@n*s",), True),
        (("web:*", "new*"), True),
        (("telegram",), False),
        (("telegram:@newsroom",), False),
        (("web:*",), False),
    ],
)
def test_a_stream_is_named_as_people_know_it(streams: tuple[str, ...], accepted: bool) -> None:
    assert StreamFilter(streams, (), ()).accepts(PLACES["telegram:7"]) == accepted


def test_a_name_with_many_stars_is_quick() -> None:
    place = StreamPlace("web:" + "a" * 2000)
    assert not StreamFilter(("*a*a*a*a*a*a*a*a*a*a*b",), (), ()).accepts(place)


def test_sources_and_tags_are_those_of_the_jobs() -> None:
    news, page = PLACES["telegram:7"], PLACES["web:https://example.org"]
    assert StreamFilter((), ("telegram",), ("city",)).accepts(news)
    assert not StreamFilter((), ("telegram",), ("sea",)).accepts(news)
    assert StreamFilter((), ("web",), ()).accepts(page), "its job was deleted"
    assert not StreamFilter((), (), ("city",)).accepts(page)


def test_a_watch_looks_only_at_events_after_it_was_added() -> None:
    watch = CompiledWatch(WatchFields(name="w", query="fire"), watch_id="w", after_position=5, default_max_age=DAY)
    post = {"text": "fire"}
    assert found_by(a_set(watch), an_event(post, position=5), an_event(post, position=6, key="7:2")) == {
        ("w", "telegram:7/7:2/1")
    }


def test_deleted_items_match_nothing() -> None:
    assert not found_by(a_set(a_watch(query="fire")), an_event({"text": "fire"}, deleted=True))


def test_a_page_that_changed_is_told_with_the_difference() -> None:
    watches = a_set(a_watch(kind="page_changed"), a_watch("price", kind="page_changed", query="price"))
    page = {"title": "Shop", "text": "...", "difference": "@@ -1 +1 @@\n-Price 5\n+Price 7"}
    stream, url = "web:https://example.org", "https://example.org/shop"
    event = an_event(page, stream=stream, key=url, revision=2)
    [one, _] = evaluate([event], watches, PLACES).matches
    assert (one.title, one.text, one.url) == (f"{stream}: Shop changed", page["difference"], url)
    new = an_event(page, stream=stream, key=url)
    assert not evaluate([new], watches, PLACES).matches, "a new page has not changed"
    other = an_event({**page, "title": "News", "difference": "+hello"}, stream=stream, revision=2)
    assert [match.watch.watch_id for match in evaluate([other], watches, PLACES).matches] == ["w"]


def test_a_long_difference_is_cut() -> None:
    page = {"title": "T", "text": "", "difference": "\n".join(f"+{'line' * 100} {n}" for n in range(50))}
    [one] = evaluate([an_event(page, revision=2)], a_set(a_watch(kind="page_changed")), PLACES).matches
    lines = one.text.splitlines()
    assert len(lines) == 13
    assert lines[-1] == "… and 38 more lines"
    assert max(map(len, lines)) == 160


def test_an_item_that_cannot_be_read_stops_no_other() -> None:
    broken = replace(an_event({}, key="7:2"), data="{")
    found = evaluate([broken, an_event({"text": "fire"})], a_set(a_watch(query="fire")), PLACES)
    assert [event_id for event_id, _ in found.failures] == ["telegram:7/7:2/1"]
    assert len(found.matches) == 1


def test_a_batch_with_very_many_matches_ends_early() -> None:
    watches = a_set(*(a_watch(f"w{number}", query="fire") for number in range(3000)))
    events = [an_event({"text": "fire"}, key=f"7:{number}", position=number) for number in range(10, 20)]
    found = evaluate(events, watches, PLACES)
    assert found.examined == 4
    assert len(found.matches) == 12_000


@pytest.mark.parametrize(
    ("fields", "text", "excerpt"),
    [
        ({"query": "fire"}, "short fire", "short fire"),
        ({"query": "fire"}, f"{'word ' * 100}fire {'more ' * 100}", "… word"),
        ({"query": "fir*"}, f"{'word ' * 100}Fire! {'more ' * 100}", "… word"),
        ({"pattern": "F.re"}, f"{'word ' * 100}Fire! {'more ' * 100}", "… word"),
    ],
)
def test_the_part_of_a_text_that_matches_is_shown(fields: dict[str, Any], text: str, excerpt: str) -> None:
    [one] = evaluate([an_event({"text": text})], a_set(a_watch(**fields)), PLACES).matches
    assert one.text.startswith(excerpt)
    assert "fire" in one.text.lower()
    assert len(one.text) <= 290


def test_a_post_has_an_address() -> None:
    post = {"text": "fire", "channel": "news", "channel_id": 7, "id": 12}
    [one] = evaluate([an_event(post)], a_set(a_watch(query="fire")), PLACES).matches
    assert (one.url, one.title) == ("https://t.me/news/12", "telegram:@news")
