"""Intervals: a grid that begins at the anchor and never drifts."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.errors import InvalidInput
from floodmark.model.job import NEVER
from floodmark.triggers import between
from floodmark.triggers.interval import Interval, interval

ANCHOR = datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
STEPS = st.timedeltas(timedelta(seconds=1), timedelta(days=400))
MOMENTS = st.datetimes(datetime(1950, 1, 1), datetime(2150, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds are naive

pytestmark = pytest.mark.spec("V1", "G1")


def test_it_fires_at_its_anchor_and_every_step_after_it() -> None:
    trigger = interval(900, ANCHOR)
    assert between(trigger, ANCHOR - timedelta(days=9), NEVER, 3) == [
        ANCHOR,
        ANCHOR + timedelta(minutes=15),
        ANCHOR + timedelta(minutes=30),
    ]


def test_nothing_was_due_before_the_anchor() -> None:
    trigger = interval(900, ANCHOR)
    assert trigger.latest(ANCHOR - timedelta(microseconds=1)) is None
    assert trigger.latest(ANCHOR) == ANCHOR


def test_a_fraction_of_a_second_is_kept_to_the_microsecond() -> None:
    """Adding 1.1 s a million times in floating point would drift; the grid does not."""
    trigger = interval(1.1, ANCHOR)
    millionth = ANCHOR + timedelta(microseconds=1_100_000 * 1_000_000)
    assert trigger.latest(millionth) == millionth
    assert trigger.after(millionth) == millionth + timedelta(seconds=1.1)


def test_the_grid_is_kept_in_utc_wherever_the_anchor_came_from() -> None:
    abroad = ANCHOR.astimezone(timezone(timedelta(hours=5, minutes=45)))
    assert interval(60, abroad) == interval(60, ANCHOR)


def test_an_interval_beyond_the_calendar_fires_once() -> None:
    trigger = interval(86_400 * 365_000_000, ANCHOR)
    assert trigger.after(ANCHOR - timedelta(days=1)) == ANCHOR
    assert trigger.after(ANCHOR) is None


@given(MOMENTS, STEPS, MOMENTS)
def test_after_and_latest_are_neighbours_on_the_grid(anchor: datetime, step: timedelta, moment: datetime) -> None:
    trigger = Interval(anchor=anchor, step=step)
    later, earlier = trigger.after(moment), trigger.latest(moment)

    assert later is not None
    assert later > moment
    assert (later - anchor) % step == timedelta()
    assert (earlier is None) == (moment < anchor)
    assert earlier is None or (earlier <= moment and earlier + step == later)
    assert earlier is not None or later == anchor


@pytest.mark.parametrize("seconds", [0.999, 0, -5])
def test_less_than_a_second_is_refused_with_a_hint(seconds: float) -> None:
    with pytest.raises(InvalidInput, match=f"an interval of {seconds} s is too short") as refused:
        interval(seconds, ANCHOR)
    assert "1 second or more" in refused.value.hint


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), 1e300])
def test_what_is_no_length_of_time_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidInput, match="is too long"):
        interval(seconds, ANCHOR)
