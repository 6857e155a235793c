"""What is counted by the minute: pure, by example and by property."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.rules.minutes import (
    BOUNDS,
    GIVEN_UP,
    MINUTE,
    CountedGroup,
    Lateness,
    add_ends,
    begin_of_minute,
    count_minute,
    pause_before_recount,
    step_for,
    sum_ends,
    sum_lateness,
    sum_minutes,
)

pytestmark = pytest.mark.spec("B10")

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
ends = st.dictionaries(
    st.integers(0, 5).map(lambda n: NOW + n * MINUTE), st.tuples(*[st.integers(0, 9)] * 4), max_size=4
)


def lateness_of(seconds: list[float]) -> Lateness:
    found = Lateness()
    for late in seconds:
        bucket = next((n for n, bound in enumerate(BOUNDS) if late < bound), len(BOUNDS))
        alone = tuple(int(n == bucket) for n in range(len(BOUNDS) + 1))
        found = sum_lateness([found, Lateness(late, late, alone)])
    return found


@given(st.lists(st.floats(0, 200_000), min_size=1, max_size=40), st.floats(0.01, 1))
def test_a_quantile_lies_in_the_bucket_of_the_exact_one(seconds: list[float], share: float) -> None:
    lateness, ordered = lateness_of(seconds), sorted(seconds)
    exact = next(late for n, late in enumerate(ordered, start=1) if n >= len(ordered) * share)
    found = lateness.quantile(share)
    assert found is not None
    low = max((bound for bound in (0.0, *BOUNDS) if bound <= exact), default=0.0)
    high = next((bound for bound in BOUNDS if bound > exact), ordered[-1])
    assert low - 1e-9 <= found <= high + 1e-9
    assert found <= ordered[-1]


def test_without_executions_there_is_no_quantile() -> None:
    assert Lateness().quantile(0.5) is None


@given(st.lists(ends, max_size=6))
def test_ends_are_added_once_however_often_they_are_counted(counts: list[dict[datetime, tuple[int, ...]]]) -> None:
    """What is added over time is the most that was ever seen, and never less."""
    counted: dict[datetime, tuple[int, ...]] = {}
    total: dict[datetime, tuple[int, ...]] = {}
    for found in counts:
        merged, added = add_ends(counted, found)
        counted, total = dict(merged), sum_ends(total, added)
        assert add_ends(counted, found)[1] == {}
    most = {
        minute: tuple(max(found.get(minute, (0,) * 4)[n] for found in counts) for n in range(4))
        for found in counts
        for minute in found
    }
    assert {minute: ends for minute, ends in total.items() if any(ends)} == {
        minute: ends for minute, ends in most.items() if any(ends)
    }


def test_groups_add_up_to_a_minute() -> None:
    later = NOW + MINUTE
    found = count_minute(
        [
            CountedGroup(later, "done", 3, 4, 0.3, 0.09),
            CountedGroup(later, "done", None, 1),
            CountedGroup(later, "dead", 6, 1, 0.9, 0.9),
            CountedGroup(None, "running", 6, 2, 1.4, 0.8),
            CountedGroup(None, "queued", None, 5),
        ]
    )
    assert (found.created, found.unfinished, dict(found.ends)) == (13, 7, {later: (5, 1, 0, 0)})
    assert (found.lateness.started, found.lateness.highest) == (7, 0.9)
    assert found.lateness.seconds == pytest.approx(2.6)


def test_a_minute_is_final_when_all_its_executions_have_ended() -> None:
    assert pause_before_recount(NOW, 0, NOW + MINUTE) == timedelta()
    assert pause_before_recount(NOW, 0, NOW + 5 * MINUTE) is None
    assert pause_before_recount(NOW, 1, NOW + GIVEN_UP + 2 * MINUTE) is None
    pauses = [pause_before_recount(NOW, 1, NOW + n * MINUTE) for n in (3, 11, 101, 10_000)]
    assert pauses == [timedelta(seconds=n) for n in (12, 60, 600, 1800)]


def test_steps_have_usual_lengths_and_cover_the_whole_time() -> None:
    assert [step_for(hours, 400) for hours in (0.1, 6, 12, 24, 72, 168, 10_000)] == [1, 1, 2, 5, 15, 30, 1440]
    blank = dict.fromkeys(
        ("done", "dead", "cancelled", "skipped", "items_new", "items_changed", "created", "unfinished", "queued"), 0
    )
    late = Lateness(3.0, 3.0, tuple(int(n == 8) for n in range(len(BOUNDS) + 1)))
    rows = [
        {**blank, "minute": NOW + n * MINUTE, "done": n, "queued": n, "created": None, "lateness": late if n else None}
        for n in (0, 1, 4, 7)
    ]
    found = sum_minutes(rows, NOW, NOW + 12 * MINUTE, 5)
    assert [(row.at, row.done, row.queued, row.started) for row in found] == [
        (NOW, 5, 4, 2),
        (NOW + 5 * MINUTE, 7, 7, 1),
        (NOW + 10 * MINUTE, 0, 0, 0),
    ]
    assert found[2].lateness_p95_seconds is None
    assert begin_of_minute(NOW + timedelta(seconds=59)) == NOW
