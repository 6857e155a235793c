"""Items as the dashboard shows them: formats of posts, differences of texts, what an item is."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape

from floodmark.dashboard.differences import LONGEST_LINE, MOST_LINES, Difference, compare_texts
from floodmark.dashboard.item_content import fields_of, kind_of, text_of, title_of, url_of
from floodmark.dashboard.post_text import describe_media, mark_post
from floodmark.dashboard.report_content import report_of
from floodmark.model.streams import StoredItem

pytestmark = pytest.mark.spec("B10")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
LINES = st.lists(st.sampled_from(["a", "b", "c d e", "c d f", ""]), max_size=12)


def an_item(data: Any, stream: str = "python:x", key: str = "k") -> StoredItem:
    now = datetime.now(UTC)
    return StoredItem(
        stream=stream, key=key, revision=1, occurred_at=now, collected_at=now, data=data, content_hash="",
        deleted=False, execution_id=None,
    )  # fmt: skip


def test_formats_become_elements() -> None:
    text = "👍 bold and link @name"
    entities = [
        {"type": "bold", "offset": 3, "length": 8},
        {"type": "italic", "offset": 8, "length": 8},
        {"type": "text_url", "offset": 12, "length": 4, "url": "https://example.org/?a=1&b=2"},
        {"type": "mention", "offset": 17, "length": 5},
    ]
    link = 'href="https://example.org/?a=1&amp;b=2" rel="noopener noreferrer" target="_blank"'
    assert mark_post(text, entities) == (
        f"👍 <b>bold </b><b><i>and</i></b><i> </i><i><a {link}>link</a></i> "
        '<a href="https://t.me/name" rel="noopener noreferrer" target="_blank">@name</a>'
    )


def test_only_addresses_of_the_web_become_links() -> None:
    for url in ("javascript:alert(1)", "data:text/html,x", "https://" + "x" * 3000):
        marked = mark_post("click", [{"type": "text_url", "offset": 0, "length": 5, "url": url}])
        assert 'href="javascript' not in marked
        assert 'href="data' not in marked
    assert 'href="https://example.org"' in mark_post("example.org", [{"type": "url", "offset": 0, "length": 11}])


@given(
    TEXTS,
    st.lists(st.tuples(st.sampled_from(["bold", "pre", "url", "spoiler"]), st.integers(-3, 70), st.integers(-3, 70))),
)
def test_a_post_keeps_its_text_whatever_its_formats(text: str, formats: list[tuple[str, int, int]]) -> None:
    """Also if they overlap, leave the text, or cut a character in two; every element is closed."""
    entities = [{"type": kind, "offset": offset, "length": length} for kind, offset, length in formats]
    marked = mark_post(text, entities)
    plain = re.sub(r"</?(?:a|b|code|span)(?: [^>]*)?>", "", marked)
    if not any(ord(letter) > 0xFFFF for letter in text):
        assert plain == str(escape(text))
    for element in ("a", "b", "code", "span"):
        assert len(re.findall(rf"<{element}[ >]", marked)) == marked.count(f"</{element}>")


@given(JSON)
def test_any_content_can_be_shown(data: Any) -> None:
    for stream in ("telegram:1", "cookies:x", "python:x"):
        for content in (
            data,
            {"text": "x", "media": data, "schema": "floodmark.cookies/2", "phases": [data], "url": "x"},
        ):
            item = an_item(content, stream, "1:1" if stream == "telegram:1" else "k")
            assert kind_of(item) in ("post", "report", "page", "entry", "other")
            assert isinstance(title_of(item), str)
            assert isinstance(text_of(content), str)
            assert url_of(item) is None
            fields_of(content)
    describe_media(data)
    mark_post(data, data)
    report_of({"phases": [data, {"cookies": data}], "findings": data, "manifest": data, "notes": data})


def test_media_are_described() -> None:
    photo = describe_media({"type": "photo", "width": 1280, "height": 720, "size": 182_044})
    assert photo is not None
    assert (photo.name, photo.details) == ("Photo", ("1280 × 720", "182.0 KB"))
    voice = describe_media({"type": "voice", "duration": 75})
    assert voice is not None
    assert voice.details == ("1:15",)


def sides(difference: Difference) -> tuple[list[str], list[str]]:
    before = ["".join(part.text for part in row.before) for row in difference.rows if row.before is not None]
    after = ["".join(part.text for part in row.after) for row in difference.rows if row.after is not None]
    return before, after


def test_a_difference_marks_words_and_leaves_out_what_is_the_same() -> None:
    same = "\n".join(f"line {number}" for number in range(10))
    found = compare_texts(f"open until 22\n{same}\nend", f"open until 23\n{same}\nend\nmore")
    assert [row.kind for row in found.rows] == ["changed", "same", "same", "skipped", "same", "same", "added"]
    changed = found.rows[0]
    assert changed.before is not None
    assert [(part.text, part.is_changed) for part in changed.before] == [("open until ", False), ("22", True)]
    assert (found.rows[3].count, found.added, found.removed, found.is_cut) == (7, 2, 1, False)


@given(LINES, LINES)
def test_a_difference_has_all_changed_lines(old: list[str], new: list[str]) -> None:
    found = compare_texts("\n".join(old), "\n".join(new))
    skipped = sum(row.count for row in found.rows)
    before, after = sides(found)
    assert len(before) + skipped == len("\n".join(old).splitlines())
    assert len(after) + skipped == len("\n".join(new).splitlines())
    assert (not found.added and not found.removed) == ("\n".join(old).splitlines() == "\n".join(new).splitlines())


def test_differences_of_long_texts_are_bounded() -> None:
    lines = "\n".join(str(number) for number in range(MOST_LINES + 500))
    found = compare_texts(lines, lines + "\nmore")
    assert found.is_cut
    found = compare_texts("x" * 1_000_000, "y" * 1_000_000)
    assert found.is_cut
    assert max(len(line) for side in sides(found) for line in side) <= LONGEST_LINE
