"""What an error means for an execution."""

from datetime import timedelta

import pytest

from floodmark.errors import AccountLost, Gone, InvalidInput, Permanent, Transient
from floodmark.model.batch import Kept
from floodmark.model.outcome import Dead, Retry
from floodmark.rules.retries import Retries, describe
from floodmark.testing.factories import a_job, a_lease

SECOND = timedelta(seconds=1)

pytestmark = pytest.mark.spec("T4")


def retries() -> Retries:
    return Retries(base=SECOND, longest=60 * SECOND)


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


@pytest.mark.spec("B10")
def test_a_very_long_error_is_cut_and_says_so() -> None:
    text = describe(Permanent("x" * 1_000_000))
    assert len(text) < 10_100
    assert text.endswith("... (990,000 more characters)")
