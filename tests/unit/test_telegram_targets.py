from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.errors import InvalidInput
from floodmark.sources.telegram.targets import normalise_target, parse_params


@pytest.mark.parametrize(
    ("said", "target"),
    [
        ("@Harbour", "@harbour"),
        ("harbour", "@harbour"),
        (" HARBOUR ", "@harbour"),
        ("https://t.me/Harbour", "@harbour"),
        ("http://www.t.me/harbour/", "@harbour"),
        ("t.me/harbour/123", "@harbour"),
        ("t.me/s/harbour", "@harbour"),
        ("https://t.me/s/harbour?before=12", "@harbour"),
        ("telegram.me/harbour#x", "@harbour"),
        ("T.ME/Harbour_News2", "@harbour_news2"),
        ("-1001234567890", "1234567890"),
        ("1234567890", "1234567890"),
        ("0001234", "1234"),
        ("https://t.me/c/1234567890/55", "1234567890"),
        ("t.me/c/1234567890", "1234567890"),
    ],
)
def test_one_channel_is_one_target_however_it_is_called(said: str, target: str) -> None:
    assert normalise_target(said) == target


@pytest.mark.parametrize(
    "said",
    [
        "",
        "@",
        "abc",
        "1harbour",
        "har__bour",
        "harbour_",
        "har-bour",
        "har bour",
        "x" * 33,
        "@harbour@other",
        "https://example.org/harbour",
        "https://t.me/",
        "t.me/+AbCdEf123",
        "https://t.me/joinchat/AbCdEf",
        "t.me/c/",
        "t.me/c/name",
        "t.me/share/url",
        "t.me/addstickers/Cats",
        "+491701234567",
        "tg://resolve?domain=harbour",
        "tg://user?id=5",
        "0",
        "-5",
        "-1000",
        "12345678901234567890",
        "harböur",
        "харбор",
        "１２３４５",
        "har\0bour",
        "\ud800abcd",
    ],
)
def test_what_cannot_be_a_channel_is_refused_with_a_hint(said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        normalise_target(said)
    assert refused.value.hint


def test_an_invitation_is_refused_with_the_way_in() -> None:
    with pytest.raises(InvalidInput, match="join with the account first") as refused:
        normalise_target("https://t.me/+AbCdEf123")
    assert "t.me/c/" in refused.value.hint


@given(st.text(max_size=60))
def test_any_text_is_a_target_or_refused_and_a_target_stays_the_same(said: str) -> None:
    try:
        target = normalise_target(said)
    except InvalidInput:
        return
    assert normalise_target(target) == target


def test_params_have_their_defaults() -> None:
    params = parse_params({})
    assert (params.history, params.since, params.revisit, params.day) == (1000, None, None, None)


def test_params_are_read_as_people_write_them() -> None:
    params = parse_params({"history": "all", "revisit": "48h", "revisit_every": "1h"})
    assert params.history is None
    assert parse_params({"since": "2026-01-31"}).since == datetime(2026, 1, 31, tzinfo=UTC)
    assert (params.revisit, params.revisit_every) == (timedelta(hours=48), timedelta(hours=1))
    assert parse_params({"history": "50"}).history == 50
    assert parse_params({"day": "2026-01-31"}).day == date(2026, 1, 31)
    assert parse_params({"since": "2026-01-31T08:00:00+01:00"}).since == datetime(2026, 1, 31, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    "params",
    [
        {"history": 0},
        {"history": -1},
        {"history": "many"},
        {"history": True},
        {"history": 1.5},
        {"since": "yesterday"},
        {"since": 5},
        {"since": "2026-01-31", "history": 5},
        {"revisit": "soon"},
        {"revisit": "0s"},
        {"revisit_every": "x"},
        {"day": "2026-13-01"},
        {"day": "today"},
    ],
)
def test_params_that_make_no_sense_are_refused_with_a_hint(params: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_params(params)
    assert refused.value.hint
