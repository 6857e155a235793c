"""How long to wait after failures."""

import random
from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.rules.backoff import backoff, backoff_bound

SECOND = timedelta(seconds=1)

pytestmark = pytest.mark.spec("F1", "T4")


@given(seed=st.integers(), failures=st.integers(1, 10_000))
def test_a_pause_lies_between_nothing_and_a_bound_that_doubles(seed: int, failures: int) -> None:
    bound = min(60 * SECOND, SECOND * 2 ** min(failures - 1, 30))
    assert backoff_bound(failures, base=SECOND, longest=60 * SECOND) == bound
    assert timedelta() <= backoff(failures, base=SECOND, longest=60 * SECOND, chance=random.Random(seed)) <= bound


@pytest.mark.parametrize(("failures", "bound"), [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (100, 60)])
def test_pauses_use_the_whole_range(failures: int, bound: float) -> None:
    """Full jitter: callers that failed together do not return together."""
    chance = random.Random(1)
    drawn = (backoff(failures, base=SECOND, longest=60 * SECOND, chance=chance) for _ in range(400))
    pauses = sorted(pause.total_seconds() for pause in drawn)
    assert pauses[0] < bound * 0.1
    assert pauses[-1] > bound * 0.9
    assert sum(pauses) / 400 == pytest.approx(bound / 2, rel=0.15)


@given(base=st.timedeltas(timedelta(), timedelta(days=3650)), failures=st.integers(1, 10_000))
def test_no_base_is_too_long(base: timedelta, failures: int) -> None:
    assert backoff_bound(failures, base=base, longest=timedelta(days=3650)) <= timedelta(days=3650)


@pytest.mark.spec("G8")
def test_callers_that_failed_together_return_at_a_small_rate() -> None:
    """A thousand callers fail at the same instant, until a server is back after two minutes. Measured: its peak rate.

    Without jitter all of them would arrive in the same tenth of a second.
    """
    chance, back_at, width = random.Random(1), 120.0, 0.1
    arrivals: list[float] = []
    for _ in range(1000):
        at, failures = 0.0, 1
        while at < back_at:
            at += backoff(failures, base=SECOND, longest=60 * SECOND, chance=chance).total_seconds()
            failures += 1
        arrivals.append(at)
    rates = Counter(int(at / width) for at in arrivals)
    assert max(rates.values()) <= 20
    assert max(arrivals) <= back_at + 60
