"""Which texts of an item can be searched, and how a match is shown."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.search.document_ids import IdAllocator, ids_between, second_of_id
from floodmark.search.documents import MOST_TOKENS, SearchableItem, document_of
from floodmark.search.query import parse_query
from floodmark.search.snippets import LENGTH, mark_title, snippet_of
from floodmark.search.texts import ItemTexts, texts_of

pytestmark = pytest.mark.spec("B5")

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def test_a_telegram_post_is_found_by_its_text_and_by_what_is_attached() -> None:
    post = {
        "id": 4811,
        "channel_id": 1_000_001,
        "channel": "harbour",
        "date": "2026-11-15T11:58:00Z",
        "text": "Big fire",
        "kind": "message",
        "entities": [{"type": "text_url", "offset": 0, "length": 3, "url": "https://example.org/a"}],
        "media": {"type": "document", "id": "77", "mime": "application/pdf", "filename": "plan.pdf"},
        "author": "Ann",
        "reactions": [{"emoji": "👍", "count": 3}],
        "edit_date": "2026-11-15T12:00:00Z",
    }
    found = texts_of("1000001:4811", post)
    assert found.title == ""
    assert found.texts == ("Big fire", "Ann", "https://example.org/a", "plan.pdf")
    assert found.fields == {"author": ("Ann",), "channel": ("harbour",)}


def test_a_page_and_a_feed_entry_are_found_by_title_text_and_url() -> None:
    page = {"url": "https://example.org/p", "title": "Fire", "text": "long text", "links": ["https://x.example/"]}
    found = texts_of(
        "https://example.org/p", {**page, "hash": "abc", "difference": "+long text", "fetched_at": "2026-01-01T00:00"}
    )
    assert (found.title, found.texts) == ("Fire", ("long text", "https://example.org/p"))
    assert found.url == "https://example.org/p"
    entry = {
        "title": "Smoke",
        "summary": "It smokes",
        "content": "It smokes a lot",
        "link": "https://example.org/e",
        "tags": ["news", "Local"],
        "feed": "The News",
        "language": "en",
        "published": "2026-01-01T00:00:00+00:00",
    }
    found = texts_of("tag:example.org,2026:1", entry)
    assert found.texts == ("It smokes a lot", "https://example.org/e", "news", "Local")
    fields = {"feed": ("The News",), "language": ("en",), "tag": ("news", "Local"), "title": ("Smoke",)}
    assert found.fields == {**fields, "url": ("https://example.org/e",)}


@pytest.mark.parametrize(
    ("data", "texts"),
    [
        (None, ()),
        ("just text", ("just text",)),
        (7, ()),
        ([["a", {"x": "b"}], "a"], ("a", "b", "a")),
        (
            {"b": "two", "a": "one", "text": "first", "n": {"z": "four", "y": ["three"]}},
            ("first", "one", "two", "three", "four"),
        ),
        ({"text": " \n"}, ()),
    ],
)
def test_texts_come_in_an_order_that_no_database_changes(data: Any, texts: tuple[str, ...]) -> None:
    assert texts_of("1", data).texts == texts


_JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(_JSON, st.text(max_size=20))
def test_any_data_has_a_document_within_the_bounds(data: Any, key: str) -> None:
    document = document_of(SearchableItem("s", key, 1, NOON, data))
    again = document_of(SearchableItem("s", key, 1, NOON, _reordered(data)))
    assert document == again
    assert document.digest == again.digest
    assert sum(map(len, document.runs)) <= MOST_TOKENS + 2
    assert all(token and " " not in token and '"' not in token for run in document.runs for token in run)


def test_a_huge_item_is_cut_and_takes_no_longer_than_a_large_one() -> None:
    data = {
        "text": "fire " * 500_000,
        "content": "x" * 1_000_000,
        "more": [f"word{number}" for number in range(50_000)],
    }
    document = document_of(SearchableItem("s", "1", 1, NOON, data))
    assert document.body[0] == "fire"
    assert sum(map(len, document.runs)) <= MOST_TOKENS + 2
    assert ":is:cut" in document.marks


def _reordered(value: Any) -> Any:
    """As PostgreSQL stores it: with fields in another order."""
    if isinstance(value, dict):
        return {
            name: _reordered(value[name]) for name in sorted(value, key=lambda name: (len(name), name), reverse=True)
        }
    return [_reordered(one) for one in value] if isinstance(value, list) else value


def test_ids_follow_the_time_and_spill_into_later_seconds() -> None:
    taken: dict[int, int] = {}
    allocator = IdAllocator(taken.get)
    first = [allocator.allocate(NOON) for _ in range(1024)]
    assert first == list(range(first[0], first[0] + 1024))
    assert allocator.moved == 0
    assert {second_of_id(number) for number in first} == {second_of_id(first[0])}
    others = [allocator.allocate(NOON) for _ in range(3000)]
    assert sorted({*first, *others}) == [*first, *others]
    assert allocator.moved == 4
    within = ids_between(NOON, NOON + timedelta(seconds=1), allocator.moved)
    assert within[0] == first[0]
    assert others[-1] < within[1]
    assert allocator.allocate(NOON + timedelta(seconds=1)) not in {*first, *others}


def shown(query: str, *texts: str) -> str:
    """The snippet with its matches in brackets."""
    parts = snippet_of(parse_query(query), ItemTexts("", texts, {}))
    return "".join(f"[{part.text}]" if part.is_match else part.text for part in parts)


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("fire", "A FIRE in town", "A [FIRE] in town"),
        ("fire smoke", "fire, Smoke", "[fire], [Smoke]"),
        ('"big fire"', "fire, a big fire", "fire, a [big fire]"),
        ("strasse", "Die Straße!", "Die [Straße]!"),
        # One character becomes two, another one vanishes: the length stays.
        ("fire", "ß e\u0301 fire", "ß e\u0301 [fire]"),
        ("cafe*", "the Caféteria", "the [Caféteria]"),
        ("京都", "東京都の京都", "東[京都]の[京都]"),
        ("東京都", "東京都庁", "[東京都]庁"),
        ("都", "東京都庁", "東京[都]庁"),
        ("fire -drill", "no drill but fire", "no drill but [fire]"),
        ("title:fire", "fire", "fire"),
        ("nothing", "<b>text</b>", "<b>text</b>"),
    ],
)
def test_matches_are_marked_as_they_are_written(query: str, text: str, expected: str) -> None:
    assert shown(query, text) == expected


def test_the_snippet_shows_the_part_with_most_of_the_words() -> None:
    text = f"fire at the start. {'filler ' * 100} here is fire and smoke near the quay. {'filler ' * 100}"
    found = shown("fire smoke quay", "other text with fire", text)
    assert "[fire] and [smoke] near the [quay]" in found
    assert found.startswith("…")
    assert found.endswith("…")
    assert len(found) <= LENGTH + 10


def test_a_match_far_into_a_long_text_is_shown() -> None:
    assert "[fire]" in shown("fire", "x" * 50_000 + " " + "word " * 10_000 + "fire " + "word " * 1000)
    assert shown("fire", "word " * 300_000).startswith("word word")


def test_the_title_is_marked_by_words_of_the_title_field_too() -> None:
    parts = mark_title(parse_query("title:ice river"), "Ice on the river")
    assert [part.text for part in parts if part.is_match] == ["Ice", "river"]


@given(st.text(max_size=300), st.sampled_from(["fire", "東", '"a b"', "ab* OR é"]))
def test_a_snippet_is_a_part_of_the_text(text: str, query: str) -> None:
    parts = snippet_of(parse_query(query), ItemTexts("", (text,), {}))
    assert "".join(part.text for part in parts).strip("…") in text
