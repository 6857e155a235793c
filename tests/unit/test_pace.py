"""The pace: halved when told to wait, growing while it is quiet. By example, and against a server with a limit."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.rules.pace import (
    CEILING,
    GROWTH,
    PATIENCE_SECONDS,
    SLOWEST,
    Pace,
    record_call,
    seconds_to_wait,
    slow_down,
    speed_up,
)

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def calling(pace: Pace, *moments: float) -> Pace:
    for moment in moments:
        pace = record_call(pace, at(moment))
    return pace


@pytest.mark.spec("F5")
def test_nobody_is_paced_until_told_to_wait() -> None:
    pace = calling(Pace(), *[0] * 1000)
    assert pace.rate is None
    assert seconds_to_wait(pace, at(0)) == 0
    assert speed_up(pace, at(1), began=at(0)) == pace


@pytest.mark.spec("F5")
def test_told_to_wait_it_goes_on_at_half_of_what_was_called() -> None:
    pace = calling(Pace(), *[0] * 40)
    assert slow_down(pace, at(0), began=at(0)).rate == pytest.approx(4)
    steady = calling(Pace(), *(n / 2 for n in range(100)))
    assert slow_down(steady, at(49.5), began=at(49.5)).rate == pytest.approx(1, rel=0.1)


@pytest.mark.spec("F5")
def test_what_was_called_counts_when_it_is_less_than_what_was_allowed() -> None:
    pace = calling(Pace(rate=8.0), 0)
    assert slow_down(pace, at(0), began=at(0)).rate == pytest.approx(0.1)
    busy = calling(Pace(rate=1.0), *[0] * 100)
    assert slow_down(busy, at(0), began=at(0)).rate == pytest.approx(0.5)


@pytest.mark.spec("F5")
def test_calls_that_were_under_way_together_halve_it_once() -> None:
    pace = calling(Pace(rate=4.0), *[0] * 40)
    first = slow_down(pace, at(1), began=at(0))
    assert slow_down(first, at(1.1), began=at(0.5)) == first
    assert speed_up(first, at(2), began=at(0.5)) == first


@pytest.mark.spec("F5")
def test_calls_keep_their_distance_and_queue_for_their_turns() -> None:
    pace = calling(Pace(rate=2.0), 0)
    assert seconds_to_wait(pace, at(0)) == 0.5
    pace = calling(pace, 0)
    assert seconds_to_wait(pace, at(0)) == 1.0
    assert seconds_to_wait(pace, at(0.75)) == 0.25
    assert seconds_to_wait(pace, at(5)) == 0
    assert seconds_to_wait(calling(pace, 5), at(5)) == 0.5


@pytest.mark.spec("F5")
def test_while_it_is_quiet_it_grows_by_a_little_every_second_until_nobody_is_held_back() -> None:
    pace, second = Pace(rate=1.0), 0
    while pace.rate is not None:
        before = pace.rate
        pace = speed_up(calling(pace, second), at(second), began=at(second))
        assert pace.rate is None or 0 <= pace.rate - before <= GROWTH * 1.001
        second += 1
    assert second == pytest.approx((CEILING - 1) / GROWTH, abs=3)


def test_a_long_pause_earns_no_more_than_a_short_one() -> None:
    pace = speed_up(Pace(rate=1.0), at(0), began=at(0))
    later = speed_up(pace, at(100_000), began=at(100_000))
    assert later.rate == pytest.approx(1 + 10 * GROWTH)


def test_a_clock_that_was_put_back_does_not_keep_anyone_waiting() -> None:
    pace = calling(Pace(rate=SLOWEST), 3600)
    assert seconds_to_wait(pace, at(3600)) == pytest.approx(30)
    assert seconds_to_wait(pace, at(0)) == 0


moves = st.lists(st.tuples(st.sampled_from(["call", "well", "told"]), st.floats(-5, 40, allow_nan=False)), max_size=60)


@pytest.mark.spec("F5", "G6")
@given(moves)
def test_whatever_happens_the_rate_stays_within_its_bounds_and_being_told_never_raises_it(
    history: list[tuple[str, float]],
) -> None:
    pace, now = Pace(), 0.0
    for what, passed in history:
        now += passed
        before = pace.rate
        if what == "call":
            pace = record_call(pace, at(now))
        elif what == "well":
            pace = speed_up(pace, at(now), began=at(now))
            assert pace.rate is None or (before is not None and pace.rate >= before)
        else:
            pace = slow_down(pace, at(now), began=at(now))
            assert pace.rate is not None
            assert before is None or pace.rate <= max(before, SLOWEST)
        assert pace.rate is None or SLOWEST <= pace.rate <= CEILING
        assert 0 <= seconds_to_wait(pace, at(now)) <= PATIENCE_SECONDS + 1 / SLOWEST


@pytest.mark.spec("F5")
@pytest.mark.parametrize(("allowed", "window"), [(2, 5), (10, 30), (20, 5), (30, 10)])
def test_it_settles_near_what_a_server_allows(allowed: int, window: int) -> None:
    """A server takes so many calls in a window, then asks for as long a wait. It has to ask far less often."""
    waits, answered = an_hour(allowed, window, is_paced=True)
    hasty_waits, hasty_answered = an_hour(allowed, window, is_paced=False)
    assert waits < 0.6 * hasty_waits
    assert answered > 0.5 * hasty_answered


def an_hour(allowed: int, window: int, *, is_paced: bool) -> tuple[int, int]:
    """How often we were told to wait, and how often we were answered."""
    pace, now, waits, answered = Pace(), 0.0, 0, 0
    taken: list[float] = []
    while now < 3600:
        now += 0.01 + (seconds_to_wait(pace, at(now)) if is_paced else 0)
        pace = record_call(pace, at(now))
        taken = [moment for moment in taken if moment > now - window]
        if len(taken) >= allowed:
            pace = slow_down(pace, at(now), began=at(now))
            waits, now = waits + 1, now + window
        else:
            taken.append(now)
            pace = speed_up(pace, at(now), began=at(now))
            answered += 1
    return waits, answered
