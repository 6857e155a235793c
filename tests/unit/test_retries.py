"""What an error means for an execution."""

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.errors import AccountLost, Gone, InvalidInput, Permanent, Transient
from floodmark.model.batch import Kept
from floodmark.model.outcome import Dead, Retry
from floodmark.rules.retries import Retries, describe
from floodmark.testing.factories import a_job, a_lease

SECOND = timedelta(seconds=1)

pytestmark = pytest.mark.spec("T4")


def retries(seed: int = 1, *, base: timedelta = SECOND, longest: timedelta = 60 * SECOND) -> Retries:
    return Retries(base=base, longest=longest, chance=random.Random(seed))


@given(seed=st.integers(), attempt=st.integers(1, 10_000))
def test_a_pause_lies_between_nothing_and_a_bound_that_doubles(seed: int, attempt: int) -> None:
    bound = min(60 * SECOND, SECOND * 2 ** min(attempt - 1, 30))
    assert timedelta() <= retries(seed).pause(attempt) <= bound


@pytest.mark.parametrize(("attempt", "bound"), [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (100, 60)])
def test_pauses_use_the_whole_range(attempt: int, bound: float) -> None:
    """Full jitter: those who failed together do not come back together."""
    chance = retries()
    pauses = sorted(chance.pause(attempt).total_seconds() for _ in range(400))
    assert pauses[0] < bound * 0.1
    assert pauses[-1] > bound * 0.9
    assert sum(pauses) / 400 == pytest.approx(bound / 2, rel=0.15)


def test_the_same_seed_gives_the_same_pauses() -> None:
    assert [retries(7).pause(n) for n in (1, 2, 3)] == [retries(7).pause(n) for n in (1, 2, 3)]


@pytest.mark.parametrize(
    "error", [OSError("no route"), Transient("busy"), TimeoutError(), ValueError("?"), KeyError("x")]
)
def test_it_is_tried_again_until_its_retries_are_used_up(error: Exception) -> None:
    job = a_job(retry_max=3)
    outcomes = [retries().after(a_lease(job, attempt=n), error, Kept(new=n)) for n in (1, 2, 3, 4)]

    assert [type(outcome) for outcome in outcomes] == [Retry, Retry, Retry, Dead]
    assert [outcome.kept.new for outcome in outcomes] == [1, 2, 3, 4]
    assert all(isinstance(outcome, Retry | Dead) and outcome.error for outcome in outcomes)
    assert isinstance(outcomes[3], Dead)
    assert not outcomes[3].pause


def test_no_retries_means_one_attempt() -> None:
    assert isinstance(retries().after(a_lease(a_job(retry_max=0)), OSError("x"), Kept()), Dead)


@pytest.mark.spec("T13")
def test_a_target_that_is_gone_pauses_its_job() -> None:
    outcome = retries().after(a_lease(), Gone("the channel was deleted"), Kept(new=2))
    assert isinstance(outcome, Dead)
    assert (outcome.error, outcome.pause, outcome.kept) == ("the channel was deleted", True, Kept(new=2))


def test_a_lost_account_pauses_the_jobs_on_it() -> None:
    """Each of them says why; there is nothing to wait for but a person."""
    outcome = retries().after(a_lease(), AccountLost("reader1", "session revoked"), Kept())
    assert isinstance(outcome, Dead)
    assert (outcome.error, outcome.pause) == ("account reader1: session revoked", True)


@pytest.mark.parametrize("error", [Permanent("404"), InvalidInput("no such source")])
def test_what_cannot_work_is_dead_at_once(error: Exception) -> None:
    """But the job goes on: its next run may find another world."""
    outcome = retries().after(a_lease(), error, Kept())
    assert isinstance(outcome, Dead)
    assert not outcome.pause


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("bad number"), "ValueError: bad number"),
        (ValueError(), "ValueError"),
        (KeyError("id"), "KeyError: 'id'"),
        (Transient("the site is busy"), "the site is busy"),
        (Permanent("no key", hint="Yield one"), "no key. Yield one"),
        (ValueError("  spaced\n"), "ValueError: spaced"),
    ],
)
def test_an_error_is_told_in_one_line(error: Exception, told: str) -> None:
    assert describe(error) == told


def test_the_details_hold_the_end_of_the_traceback() -> None:
    """Bounded, however deep it goes."""

    def fall(depth: int) -> None:
        if depth:
            fall(depth - 1)
        raise ValueError("at the bottom")

    with pytest.raises(ValueError, match="bottom") as caught:
        fall(200)
    outcome = retries().after(a_lease(), caught.value, Kept())

    assert isinstance(outcome, Retry)
    assert outcome.details["type"] == "ValueError"
    assert outcome.details["traceback"].endswith("ValueError: at the bottom\n")
    assert len(outcome.details["traceback"]) <= 4000
