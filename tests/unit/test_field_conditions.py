"""Conditions on the fields of an item."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.errors import InvalidInput
from floodmark.rules.field_conditions import parse_condition, parse_conditions

pytestmark = pytest.mark.spec("B8")

POST: Any = {
    "views": 1200,
    "author": "Ada",
    "text": "Smoke over the harbour",
    "media": {"kind": "photo", "size": 3.5},
    "reactions": [{"emoji": "a", "count": 3}, {"emoji": "b", "count": 40}],
    "tags": ["fire", "harbour"],
    "pinned": True,
    "edit_date": None,
    "date": "2026-06-01T12:00:00Z",
    "code": "007",
}


@pytest.mark.parametrize(
    "text",
    [
        "views >= 1000",
        "views>=1200",
        "views = 1200",
        "views < 1200.5",
        "author = Ada",
        "author != Bob",
        "nothing != Bob",
        "media",
        "media.kind = photo",
        "media.size > 3",
        "!edit_date",
        "!media.colour",
        "reactions.count > 10",
        "tags = fire",
        "tags != flood",
        "text ~ HARBOUR",
        "pinned = true",
        "date >= 2026-06-01",
        "code = '007'",
        "code = 007",
    ],
)
def test_a_condition_that_holds(text: str) -> None:
    assert parse_condition(text).holds(POST)


@pytest.mark.parametrize(
    "text",
    [
        "views > 1200",
        "views = true",
        "pinned = 1",
        "author = ada",
        "!media",
        "edit_date",
        "media.kind != photo",
        "tags != fire",
        "text ~ river",
        "nothing = 1",
        "author > 5",
        "media = photo",
        "media > photo",
        "code = 7",
        "views.count = 3",
    ],
)
def test_a_condition_that_does_not_hold(text: str) -> None:
    assert not parse_condition(text).holds(POST)


@pytest.mark.parametrize("text", ["", "= 3", "views >=", "a..b = 3", "views > true", "a b c", "x" * 501])
def test_a_text_that_is_no_condition_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_condition(text)
    assert "views >= 1000" in refused.value.hint


def test_too_many_conditions_are_refused() -> None:
    assert len(parse_conditions(["a"] * 20)) == 20
    with pytest.raises(InvalidInput, match="more than 20"):
        parse_conditions(["a"] * 21)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(["a", "!a", "a = 1", "a.b < 2", "a ~ x", "a != z", "a >= z", "a.b.c > 1"]), JSON)
def test_no_item_makes_a_condition_fail(text: str, data: Any) -> None:
    assert parse_condition(text).holds(data) in (True, False)


@given(JSON)
def test_equal_and_different_are_opposites(data: Any) -> None:
    assert parse_condition("a = 1").holds(data) != parse_condition("a != 1").holds(data)
    assert parse_condition("a").holds(data) != parse_condition("!a").holds(data)
