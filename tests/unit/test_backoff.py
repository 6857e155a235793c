"""How long to wait after failures."""

import random
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
