"""Comparison of two schedulers. Without clock and I/O."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from msgspec import Struct

# A run further from its instant than this is another run.
USUAL_TOLERANCE = timedelta(seconds=60)


class Pair(Struct, frozen=True):
    """An instant, and the matching run of the old scheduler."""

    expected: datetime
    actual: datetime


class Match(Struct, frozen=True, kw_only=True):
    """Matched and unmatched instants and runs, oldest first. Each is in exactly one list."""

    pairs: tuple[Pair, ...]
    missed: tuple[datetime, ...]
    extra: tuple[datetime, ...]


class Parity(Struct, frozen=True, kw_only=True):
    """The comparison of a job. `drift`: how much later the old scheduler ran, in seconds."""

    expected: int
    actual: int
    matched: int
    missed: tuple[datetime, ...]
    extra: tuple[datetime, ...]
    drift_median_seconds: float | None
    drift_max_seconds: float | None

    @property
    def is_equal(self) -> bool:
        """Return whether every instant has a run, and every run an instant."""
        return not self.missed and not self.extra


def tolerance_for(expected: Sequence[datetime], *, is_interval: bool, given: timedelta | None = None) -> timedelta:
    """Return the maximum distance of a run from its instant: a minute, or half of the time to the next instant if that
    is less.

    An interval counts from the creation of its job, which differs between schedulers, so it always uses half of the
    time to the next instant. A `given` tolerance applies instead, up to the next instant.
    """
    gaps = [later - earlier for earlier, later in pairwise(sorted(expected)) if later > earlier]
    if not gaps:
        return USUAL_TOLERANCE if given is None else given
    nearest = min(gaps)
    if given is not None:
        return min(given, nearest)
    half = nearest / 2
    return half if is_interval else min(USUAL_TOLERANCE, half)


def match(expected: Sequence[datetime], actual: Sequence[datetime], tolerance: timedelta) -> Match:
    """Match each instant to the nearest run within `tolerance`, the closest pairs first; each is used once."""
    instants, runs = sorted(expected), sorted(actual)
    near = sorted(
        (abs(runs[place] - instant), number, place)
        for number, instant in enumerate(instants)
        for place in range(bisect_left(runs, instant - tolerance), bisect_right(runs, instant + tolerance))
    )
    taken: dict[int, int] = {}
    used: set[int] = set()
    for _, number, place in near:
        if number not in taken and place not in used:
            taken[number] = place
            used.add(place)
    return Match(
        pairs=tuple(Pair(instants[number], runs[taken[number]]) for number in sorted(taken)),
        missed=tuple(instant for number, instant in enumerate(instants) if number not in taken),
        extra=tuple(run for place, run in enumerate(runs) if place not in used),
    )


def compare(
    expected: Sequence[datetime],
    actual: Sequence[datetime],
    *,
    begin: datetime,
    end: datetime,
    tolerance: timedelta,
) -> Parity:
    """Compare what is between `begin` and `end`; instants and runs around it are used only as partners.

    An instant whose run may still come after `end`, within the `tolerance`, is not missed yet.
    """
    found = match(expected, actual, tolerance)
    pairs = [pair for pair in found.pairs if begin <= pair.expected <= end]
    missed = tuple(instant for instant in found.missed if begin <= instant <= end - tolerance)
    extra = tuple(run for run in found.extra if begin <= run <= end)
    drift = [(pair.actual - pair.expected).total_seconds() for pair in pairs]
    return Parity(
        expected=len(pairs) + len(missed),
        actual=len(pairs) + len(extra),
        matched=len(pairs),
        missed=missed,
        extra=extra,
        drift_median_seconds=median(drift) if drift else None,
        drift_max_seconds=max(drift, key=abs) if drift else None,
    )
