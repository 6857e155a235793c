"""Sets of whole numbers as sorted intervals `(first, last)`, both ends included. Pure."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

Interval = tuple[int, int]


def union(intervals: Iterable[Interval], *, apart: int = 1) -> list[Interval]:
    """Return the intervals in order, without overlaps.

    Two of them become one if the second begins at most `apart` after the end of the first.
    """
    made: list[Interval] = []
    for first, last in sorted(intervals):
        if made and first - made[-1][1] <= apart:
            made[-1] = (made[-1][0], max(made[-1][1], last))
        else:
            made.append((first, last))
    return made


def subtract(intervals: Iterable[Interval], removed: Iterable[Interval]) -> list[Interval]:
    """Return the numbers of `intervals` that are not in `removed`."""
    made, holes = list[Interval](), union(removed)
    for first, last in union(intervals):
        begin = first
        for out_first, out_last in holes:
            if out_last < begin:
                continue
            if out_first > last:
                break
            if out_first > begin:
                made.append((begin, out_first - 1))
            begin = out_last + 1
        if begin <= last:
            made.append((begin, last))
    return made


def intersect(intervals: Iterable[Interval], others: Iterable[Interval]) -> list[Interval]:
    """Return the numbers that are in both."""
    some = union(intervals)
    return subtract(some, subtract(some, others))


def spaces(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the numbers between the intervals."""
    made = union(intervals)
    return [(one[1] + 1, other[0] - 1) for one, other in pairwise(made)]


def count(intervals: Iterable[Interval]) -> int:
    """Return how many numbers the intervals have."""
    return sum(last - first + 1 for first, last in union(intervals))


def missing(first: int, last: int, present: Sequence[int]) -> list[Interval]:
    """Return the numbers from `first` to `last` that are not in `present`, which is in order."""
    made, begin = list[Interval](), first
    for number in present:
        if number > begin:
            made.append((begin, min(number - 1, last)))
        begin = max(begin, number + 1)
    if begin <= last:
        made.append((begin, last))
    return made
