"""Durations as people write and read them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.errors import InvalidInput
from floodmark.model.durations import format_duration, parse_every

pytestmark = pytest.mark.spec("V1")


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("15m", timedelta(minutes=15)),
        ("90s", timedelta(seconds=90)),
        ("1h30m", timedelta(minutes=90)),
        ("2d", timedelta(days=2)),
        ("1w", timedelta(weeks=1)),
        ("300", timedelta(minutes=5)),
        (" 1 H 30 min ", timedelta(minutes=90)),
        ("1d2h3m4s", timedelta(days=1, hours=2, minutes=3, seconds=4)),
    ],
)
def test_a_duration_is_written_as_people_write_it(text: str, duration: timedelta) -> None:
    assert parse_every(text) == duration


@pytest.mark.parametrize(
    "text",
    ["", " ", "0", "0s", "-5m", "m", "5x", "1.5h", "30m1h", "5m5m", "1e3", "٣m", "1h-30m", "9" * 1000, "999999999w"],
)
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_every(text)
    assert "1h30m" in refused.value.hint
    assert len(str(refused.value)) < 100


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(hours=1, minutes=30), "1 h 30 min"),
        (timedelta(minutes=5), "5 min"),
        (timedelta(seconds=41.9), "41 s"),
        (timedelta(minutes=2, seconds=5), "2 min 5 s"),
        (timedelta(days=3, hours=4, minutes=59), "3 d 4 h"),
        (timedelta(days=1, minutes=5), "1 d"),
        (timedelta(milliseconds=250), "250 ms"),
        (timedelta(), "0 s"),
        (timedelta(hours=-2, minutes=-5), "-2 h 5 min"),
    ],
)
def test_a_duration_is_shown_by_its_two_largest_units(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


@given(st.timedeltas(timedelta(seconds=1), timedelta(days=9999)))
def test_what_is_shown_can_be_typed_in_again(duration: timedelta) -> None:
    """Rounded down, and by less than the smaller of the two units."""
    shown = parse_every(format_duration(duration))
    assert shown <= duration
    assert duration - shown < max(timedelta(hours=1), duration / 24) or duration < timedelta(days=1)
    assert parse_every(format_duration(shown)) == shown


@given(st.text(st.sampled_from("0123456789 wdhmins"), max_size=12) | st.text(max_size=12))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        assert parse_every(text) > timedelta()
    except InvalidInput as refused:
        assert refused.hint  # noqa: PT017 - either way is right
