"""Items as the databases take them."""

import time
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.errors import InvalidInput
from floodmark.model.batch import Item
from floodmark.model.clean_text import clean
from floodmark.store.item_rows import pack, pack_watermark

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)

# Lone surrogates and NUL included.
ANY_TEXT = st.text(st.characters(codec=None))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=8,
)


@given(ANY_TEXT)
def test_a_cleaned_text_can_be_stored_and_is_as_long(text: str) -> None:
    """Only NUL and lone surrogates are replaced; everything else stays where it is."""
    cleaned = clean(text)
    assert "\0" not in cleaned
    cleaned.encode()
    assert clean(cleaned) == cleaned
    # Pairs of surrogates become the one character they stand for.
    paired = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert len(cleaned) == len(paired)
    for before, after in zip(paired, cleaned, strict=True):
        if before == "\0":
            assert after == "␀"
        elif "\ud800" <= before <= "\udfff":
            assert after == "\ufffd"
        else:
            assert after == before


@settings(max_examples=50)
@given(JSON)
def test_any_json_is_packed_into_text_that_databases_take(data: object) -> None:
    [packed] = pack([Item("k", data)])
    packed.data.decode()
    assert msgspec.json.decode(packed.data) == clean(data)
    assert pack([Item("k", data)]) == [packed]


@given(st.text())
def test_plain_text_is_left_alone(text: str) -> None:
    assert clean(text.replace("\0", "")) == text.replace("\0", "")


def test_the_hash_does_not_depend_on_the_order_of_fields() -> None:
    [one], [two], [three] = (pack([Item("k", data)]) for data in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 3}))
    assert one.content_hash == two.content_hash != three.content_hash


@pytest.mark.parametrize(("same", "other"), [("x", "\ud800"), (["x", {"a": 1, "b": 2}], ["x", {"a": 1, "b": 3}])])
def test_a_fingerprint_takes_the_place_of_the_content(same: object, other: object) -> None:
    [one], [two], [three] = (pack([Item("k", n, fingerprint=seen)]) for n, seen in ((1, same), (2, same), (1, other)))
    assert one.content_hash == two.content_hash != three.content_hash


def test_nor_does_that_of_a_fingerprint() -> None:
    [one], [two] = (pack([Item("k", 1, fingerprint=seen)]) for seen in ({"a": 1, "b": 2}, {"b": 2, "a": 1}))
    assert one.content_hash == two.content_hash


def test_a_tombstone_differs_from_what_it_buries() -> None:
    [alive], [gone] = pack([Item("k", 1)]), pack([Item("k", 1, deleted=True)])
    assert (alive.deleted, gone.deleted) == (False, True)
    assert alive.content_hash != gone.content_hash


def test_of_one_key_the_last_counts_in_the_place_of_the_first() -> None:
    packed = pack([Item("b", 1), Item("a", 2), Item("b", 3), Item("a\0", 4), Item("a␀", 5)])
    assert [(item.key, item.data) for item in packed] == [("b", b"3"), ("a", b"2"), ("a␀", b"5")]


def test_an_item_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the size, and what to do about it. What is just small enough passes."""
    monkeypatch.setattr("floodmark.store.item_rows.MAX_ITEM_BYTES", 3000)
    assert len(pack([Item("k", "x" * 2998)])) == 1
    for data in ("x" * 2999, "\0" * 1000, "ж" * 1500, "\ud800" * 1000):
        with pytest.raises(InvalidInput, match="larger than the 3,000 allowed") as caught:
            pack([Item("k", data)])
        assert caught.value.hint


def test_text_of_nothing_but_surrogates_is_cleaned_quickly() -> None:
    """Whatever a channel contains: one post must not hold up a worker."""
    began = time.process_time()
    assert clean("\ud800" * 1_000_000) == "\ufffd" * 1_000_000
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "moment", [NOON, NOON.replace(tzinfo=None), NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))]
)
def test_times_are_one_instant_however_written(moment: datetime) -> None:
    [packed] = pack([Item("k", 1, moment)])
    assert packed.occurred_at == NOON


@settings(max_examples=50)
@given(st.dictionaries(ANY_TEXT, JSON, max_size=4))
def test_any_watermark_can_be_packed(watermark: dict[str, object]) -> None:
    packed = pack_watermark(watermark)
    assert packed is not None
    assert "\\u0000" not in packed.replace("\\\\", "")
    assert msgspec.json.decode(packed) == clean(watermark)


def test_no_watermark_is_packed_as_none() -> None:
    assert pack_watermark(None) is None
