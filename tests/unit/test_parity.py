"""Comparing what two schedulers did."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.importers.parity import compare, match, tolerance_for

pytestmark = pytest.mark.spec("V11", "E10")

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

moments = st.lists(st.integers(0, 3600).map(lambda seconds: NOON + timedelta(seconds=seconds)), max_size=40)
tolerances = st.integers(0, 600).map(lambda seconds: timedelta(seconds=seconds))


def hourly(count: int, late: float = 0) -> list[datetime]:
    return [NOON + timedelta(hours=number, seconds=late) for number in range(count)]


@given(expected=moments, actual=moments, tolerance=tolerances)
def test_every_instant_and_every_run_is_used_exactly_once(
    expected: list[datetime], actual: list[datetime], tolerance: timedelta
) -> None:
    found = match(expected, actual, tolerance)
    assert sorted([*(pair.expected for pair in found.pairs), *found.missed]) == sorted(expected)
    assert sorted([*(pair.actual for pair in found.pairs), *found.extra]) == sorted(actual)
    assert all(abs(pair.expected - pair.actual) <= tolerance for pair in found.pairs)


@given(expected=moments, actual=moments, tolerance=tolerances)
def test_what_is_left_over_could_not_have_been_paired(
    expected: list[datetime], actual: list[datetime], tolerance: timedelta
) -> None:
    found = match(expected, actual, tolerance)
    assert all(abs(missed - extra) > tolerance for missed in found.missed for extra in found.extra)


@given(expected=moments, tolerance=tolerances)
def test_whoever_did_the_same_is_equal(expected: list[datetime], tolerance: timedelta) -> None:
    found = compare(expected, expected[::-1], begin=NOON, end=NOON + 60 * MINUTE, tolerance=tolerance)
    assert found.is_equal
    assert found.matched == len(expected)
    assert found.drift_max_seconds in (None, 0)


@given(
    count=st.integers(3, 30),
    late=st.floats(0, 20),
    gone=st.integers(0, 29),
    doubled=st.integers(0, 29),
    again=st.floats(0, 29),
)
def test_one_miss_and_one_double_are_found_wherever_they_are(
    count: int, late: float, gone: int, doubled: int, again: float
) -> None:
    gone, doubled = gone % count, doubled % count
    expected = [NOON + number * MINUTE for number in range(count)]
    actual = [instant + timedelta(seconds=late) for instant in expected]
    twice = [] if doubled == gone else [expected[doubled] + timedelta(seconds=again)]
    runs = [*actual[:gone], *actual[gone + 1 :], *twice]
    tolerance = tolerance_for(expected, is_interval=False)
    found = compare(expected, runs, begin=NOON, end=expected[-1] + MINUTE, tolerance=tolerance)
    assert found.missed == (expected[gone],)
    assert len(found.extra) == len(twice)
    assert found.expected - len(found.missed) == found.actual - len(found.extra) == found.matched == count - 1


def test_drift_is_how_much_later_the_old_one_was() -> None:
    runs = [moment + timedelta(seconds=late) for moment, late in zip(hourly(3), (1, 2, -9), strict=True)]
    found = compare(hourly(3), runs, begin=NOON, end=hourly(3)[-1], tolerance=MINUTE)
    assert (found.drift_median_seconds, found.drift_max_seconds) == (1, -9)


def test_what_lies_outside_is_not_judged_but_finds_its_partner() -> None:
    expected, runs = hourly(4), hourly(4, late=30)
    found = compare(expected, runs, begin=NOON + 20 * timedelta(seconds=1), end=NOON + 125 * MINUTE, tolerance=MINUTE)
    assert found.is_equal
    assert found.matched == 2


def test_a_run_that_may_still_come_is_not_missed_yet() -> None:
    def missed(seconds: float) -> int:
        end = NOON + timedelta(seconds=seconds)
        return len(compare([NOON], [], begin=NOON, end=end, tolerance=MINUTE).missed)

    assert [missed(0), missed(59), missed(60)] == [0, 0, 1]


def test_an_interval_that_counts_from_another_moment_is_the_same_interval() -> None:
    expected, runs = hourly(5), hourly(5, late=25 * 60)
    tolerance = tolerance_for(expected, is_interval=True)
    assert compare(expected, runs, begin=NOON, end=expected[-1], tolerance=tolerance).is_equal
    assert tolerance_for(expected, is_interval=False) == MINUTE
    assert tolerance_for([], is_interval=True) == MINUTE


def test_a_tolerance_that_was_given_holds_up_to_the_next_instant() -> None:
    assert tolerance_for(hourly(3), is_interval=True, given=5 * MINUTE) == 5 * MINUTE
    assert tolerance_for(hourly(3), is_interval=False, given=500 * MINUTE) == 60 * MINUTE
    assert tolerance_for(hourly(1), is_interval=False, given=500 * MINUTE) == 500 * MINUTE
