"""The ledger of completeness: intervals merge, storage stays bounded, and it never claims too much."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from floodmark.model.completeness import Coverage, Ledger, Trouble
from floodmark.rules.completeness import (
    MOST_GAPS,
    MOST_RANGES,
    NEAR,
    describe_place,
    find_gaps,
    merge_coverage,
    seconds_of,
    summarise,
)
from floodmark.rules.intervals import count, intersect, missing, spaces, subtract, union

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
INTERVALS = some.lists(some.tuples(some.integers(0, 60), some.integers(0, 12)).map(lambda at: (at[0], sum(at))))


def numbers(intervals: list[tuple[int, int]]) -> set[int]:
    """Return the numbers of intervals."""
    return {number for first, last in intervals for number in range(first, last + 1)}


@given(INTERVALS, INTERVALS)
def test_intervals_behave_as_sets(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    """Union, difference, intersection and count agree with sets of numbers, and results are in order and apart."""
    assert numbers(union([*one, *other])) == numbers(one) | numbers(other)
    assert numbers(subtract(one, other)) == numbers(one) - numbers(other)
    assert numbers(intersect(one, other)) == numbers(one) & numbers(other)
    assert count(one) == len(numbers(one))
    for made in (union(one), subtract(one, other)):
        assert all(b[0] - a[1] > 1 for a, b in pairwise(made))
    holes = numbers(spaces(one))
    assert not one or holes == set(range(min(numbers(one)), max(numbers(one)))) - numbers(one)


@given(some.sets(some.integers(0, 40)))
def test_missing_numbers_are_the_others(present: set[int]) -> None:
    """What is missing and what is present make the whole range."""
    assert numbers(missing(5, 30, sorted(present))) == set(range(5, 31)) - present


@pytest.mark.spec("B13")
@given(some.lists(INTERVALS, max_size=6))
def test_a_ledger_claims_what_was_read_and_nothing_else(batches: list[list[tuple[int, int]]]) -> None:
    """In any order of batches, complete ranges and gaps are the read numbers and the numbers between them."""
    ledger, read = Ledger(), set[int]()
    for ranges in batches:
        ledger = merge_coverage(ledger, Coverage(ranges=ranges), NOON)
        read |= numbers(ranges)
    complete = [(one.first, one.last) for one in ledger.complete]
    assert numbers(complete) == read
    assert complete == union(complete)
    between = numbers([(gap.first or 0, gap.last or 0) for gap in find_gaps(ledger)])
    assert between == numbers(spaces(complete))


@settings(max_examples=5, deadline=None)
@given(some.lists(some.integers(0, 10**6), min_size=150, max_size=400, unique=True))
def test_a_ledger_stays_small_and_careful(places: list[int]) -> None:
    """Beyond its bounds a ledger claims less: no number is complete that was not read, and no gap is forgotten."""
    ledger = Ledger()
    for start in range(0, len(places), 40):
        some_places = [(place * 1000, place * 1000 + 5) for place in places[start : start + 40]]
        unseen = [(first + 1, first + 2) for first, _ in some_places]
        ledger = merge_coverage(ledger, Coverage(ranges=some_places, unseen=unseen), NOON)
    read = [(place * 1000, place * 1000 + 5) for place in places]
    assert len(ledger.complete) <= MOST_RANGES
    assert not subtract([(one.first, one.last) for one in ledger.complete], read)
    kept = [(gap.first or 0, gap.last or 0) for gap in ledger.gaps]
    assert len(kept) <= MOST_GAPS
    assert not subtract([(place * 1000 + 1, place * 1000 + 2) for place in places], kept)


@pytest.mark.spec("B13")
def test_unseen_numbers_are_told_from_deleted_ones() -> None:
    """Numbers that were not returned are a gap until the source was asked for each of them."""
    ledger = merge_coverage(None, Coverage(ranges=[(1, 100)], unseen=[(7, 9), (50, 50)]), NOON)
    [gap] = find_gaps(ledger)
    assert (gap.kind, gap.first, gap.last, gap.count) == ("unseen", 7, 50, 4)

    ledger = merge_coverage(ledger, Coverage(checked=[(7, 20)], deleted=[(7, 8)]), NOON)
    [gap] = find_gaps(ledger)
    assert (gap.first, gap.last) == (21, 50)
    ledger = merge_coverage(ledger, Coverage(checked=[(21, 50)], deleted=[(50, 50)]), NOON)
    assert find_gaps(ledger) == []
    assert [(one.first, one.last, one.count) for one in ledger.deleted] == [(7, 50, 3)]

    again = merge_coverage(ledger, Coverage(ranges=[(40, 120)], unseen=[(50, 50), (110, 110)]), NOON)
    assert [(gap.first, gap.count) for gap in find_gaps(again)] == [(110, 1)], "50 is known to be deleted"
    far = merge_coverage(again, Coverage(ranges=[(121, 900)], unseen=[(111 + NEAR, 111 + NEAR)]), NOON)
    assert len(find_gaps(far)) == 2


@pytest.mark.spec("B13")
def test_a_cut_feed_has_a_gap_until_it_is_lost() -> None:
    """A poll that begins after the end of the last one leaves a gap in time, which may become final."""
    first = Coverage(axis="time", ranges=[(seconds_of(NOON), seconds_of(NOON) + 60)], begins_at=NOON)
    late = NOON + timedelta(hours=2)
    ledger = merge_coverage(None, first, NOON)
    ledger = merge_coverage(ledger, Coverage(axis="time", ranges=[(seconds_of(late), seconds_of(late))]), late)
    [gap] = find_gaps(ledger)
    assert (gap.kind, gap.since) == ("cut", late)
    assert describe_place("time", gap) == "2026-05-01 12:01:01 UTC to 2026-05-01 13:59:59 UTC"
    assert summarise(ledger, late) == "complete from 2026-05-01 to 2026-05-01 14:00 UTC, the last check, 1 gap: 1 cut"

    lost = merge_coverage(ledger, Coverage(axis="time", lost=[(gap.first or 0, gap.last or 0)]), late)
    assert [one.kind for one in find_gaps(lost)] == ["lost"]


def test_troubles_are_replaced_and_keep_their_time() -> None:
    """A refused page that is refused again is as old as before; one that is read is gone."""
    later = NOON + timedelta(days=1)
    refused, bound = Trouble(kind="refused", reason="status 403", count=3), Trouble(kind="bound", reason="max_pages=5")
    ledger = merge_coverage(None, Coverage(axis="crawl", ranges=[(1, 1)], troubles=[refused, bound]), NOON)
    ledger = merge_coverage(ledger, Coverage(axis="crawl", troubles=[refused], cleared=["bound"]), later)
    assert [(gap.kind, gap.count, gap.since) for gap in find_gaps(ledger)] == [("refused", 3, NOON)]
    ledger = merge_coverage(ledger, Coverage(axis="crawl", cleared=["refused", "bound"]), later)
    assert find_gaps(ledger) == []


def test_another_scope_starts_a_new_ledger() -> None:
    """The ranges of another channel say nothing about this one."""
    ledger = merge_coverage(None, Coverage(ranges=[(1, 9)], scope="7"), NOON)
    assert merge_coverage(ledger, Coverage(ranges=[(20, 30)], scope="8"), NOON).complete[0].first == 20
