"""Conditions of `--where`: what they are true for, and that they are never code."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.errors import InvalidInput
from floodmark.rules.item_conditions import Condition, parse_condition, read_path

pytestmark = pytest.mark.spec("B6")

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "~", "!~")


def parse(text: str) -> Condition:
    return parse_condition(text, NOW)


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("views>100", 101, True),
        ("views>100", 100, False),
        ("views >= 1e2", 100, True),
        ("views<100", 99.5, True),
        ("views=100", 100.0, True),
        ("views=100", "100", True),
        ("views>many", 5, False),
        ("views>100", None, False),
        ("channel=harbour", "harbour", True),
        ("channel=harbour", "Harbour", False),
        ("channel!=harbour", None, True),
        ("channel=null", None, True),
        ("channel='null'", None, False),
        ("channel='null'", "null", True),
        ("channel=''", "", True),
        ("text~FERRY", "The ferry is back", True),
        ("text~Straße", "STRASSE", True),
        ("text!~ferry", "The ferry is back", False),
        ("text=a=b", "a=b", True),
        ('text=" a "', " a ", True),
        ("name>m", "n", True),
        ("tags=news", ["sport", "news"], True),
        ("tags!=news", ["sport", "news"], False),
        ("tags~new", ["sport", "news"], True),
        ("tags=news", [], False),
        ("pinned=true", True, True),
        ("pinned=true", 1, False),
        ("media~photo", {"type": "photo"}, True),
        ("date>=2026-11-01", datetime(2026, 11, 1, tzinfo=UTC), True),
        ("date>2026-11-01", datetime(2026, 11, 1, 23, tzinfo=UTC), False),
        ("date=2026-11-01", datetime(2026, 11, 1, 23, tzinfo=UTC), True),
        ("date<=2026-11-01", datetime(2026, 11, 2, tzinfo=UTC), False),
        ("date<2026-11-01", datetime(2026, 10, 31, tzinfo=UTC), True),
        ("date>2026-11-01T06:00", datetime(2026, 11, 1, 7, tzinfo=UTC), True),
        ("date>2d", datetime(2026, 11, 15, tzinfo=UTC), True),
        ("date=tomorrow", NOW, False),
    ],
)
def test_a_condition_is_true_for(text: str, value: Any, expected: bool) -> None:
    assert parse(text).is_true_for(value) is expected


@pytest.mark.parametrize("text", ["", "views", "=5", "views>", "a b=c", "views=>5 or 1", "(views>1)", "views??1"])
def test_what_is_no_condition_is_refused_with_an_example(text: str) -> None:
    if text == "views=>5 or 1":
        assert parse(text).value == ">5 or 1", "the value is text, whatever it looks like"
        return
    with pytest.raises(InvalidInput) as error:
        parse(text)
    assert "views>100" in error.value.hint


@given(text=st.text(max_size=40), value=JSON)
def test_any_text_is_a_condition_or_refused(text: str, value: Any) -> None:
    try:
        condition = parse(text)
    except InvalidInput:
        return
    assert condition.is_true_for(value) in (True, False)


@given(field=st.from_regex(r"[a-z][a-z_.]{0,8}", fullmatch=True), value=JSON, other=st.text(max_size=8))
def test_a_negative_operator_is_the_opposite(field: str, value: Any, other: str) -> None:
    for positive, negative in (("=", "!="), ("~", "!~")):
        yes, no = (parse(f"{field}{operator}'{other}'") for operator in (positive, negative))
        assert yes.is_true_for(value) is not no.is_true_for(value)


@given(number=st.integers(-(10**12), 10**12), value=st.integers(-(10**12), 10**12))
def test_numbers_compare_as_numbers(number: int, value: int) -> None:
    expected = {"=": value == number, "<": value < number, ">": value > number, ">=": value >= number}
    assert {one: parse(f"n{one}{number}").is_true_for(value) for one in expected} == expected


def test_a_path_reads_nested_values() -> None:
    data = {"media": {"type": "photo"}, "reactions": [{"count": 1}, {"count": 5}, 7]}
    assert read_path(data, ("media", "type")) == "photo"
    assert read_path(data, ("reactions", "count")) == [1, 5, None]
    assert read_path(data, ("media", "type", "deeper")) is None
    assert read_path("text", ("media",)) is None
