"""The breaker: when it opens, who may probe, and what closes it. By example, and by any history of calls."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from floodmark.rules.breaker import (
    Breaker,
    BreakerState,
    Thresholds,
    admit_call,
    close_breaker,
    record_failure,
    record_success,
    refused_until,
    release_probe,
)

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
USUAL = Thresholds()
IN_A_ROW = Thresholds(failures=3, window=None)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def after_failures(*moments: float, thresholds: Thresholds = USUAL, breaker: Breaker | None = None) -> Breaker:
    breaker = breaker or Breaker()
    for moment in moments:
        breaker = record_failure(breaker, at(moment), thresholds, reason="TimeoutError")
    return breaker


@pytest.mark.spec("F2")
def test_it_opens_at_the_fifth_failure_within_thirty_seconds_for_a_minute() -> None:
    assert after_failures(0, 1, 2, 3).state is BreakerState.CLOSED
    opened = after_failures(0, 1, 2, 3, 29)
    assert (opened.state, opened.open_until, opened.trips) == (BreakerState.OPEN, at(89), 1)
    assert opened.reason == "TimeoutError"
    assert refused_until(opened, at(88)) == at(89)
    assert refused_until(opened, at(89)) is None


@pytest.mark.spec("F2")
def test_failures_older_than_the_window_do_not_count() -> None:
    assert after_failures(0, 1, 2, 3, 30).state is BreakerState.CLOSED
    assert after_failures(0, 28, 29, 30, 31, 32).state is BreakerState.OPEN


@pytest.mark.spec("V5")
def test_without_a_window_failures_count_as_long_as_they_come_in_a_row() -> None:
    assert after_failures(0, 1000, 2000, thresholds=IN_A_ROW).state is BreakerState.OPEN
    answered = record_success(after_failures(0, 1, thresholds=IN_A_ROW), IN_A_ROW)
    assert after_failures(2, 3, thresholds=IN_A_ROW, breaker=answered).state is BreakerState.CLOSED


def test_within_a_window_an_answer_does_not_excuse_the_failures_around_it() -> None:
    flickering = record_success(after_failures(0, 1, 2, 3), USUAL)
    assert after_failures(4, breaker=flickering).state is BreakerState.OPEN


@pytest.mark.spec("F2")
def test_after_the_pause_one_call_probes_and_the_others_wait() -> None:
    opened = after_failures(0, 0, 0, 0, 0)
    probing = admit_call(opened, at(60), USUAL)
    assert (probing.state, probing.probe_until) == (BreakerState.HALF_OPEN, at(120))
    assert admit_call(probing, at(61), USUAL) == probing
    assert refused_until(probing, at(61)) == at(66)


@pytest.mark.spec("F2")
def test_a_probe_that_is_answered_closes_it_and_one_that_fails_opens_it_again() -> None:
    probing = admit_call(after_failures(0, 0, 0, 0, 0), at(60), USUAL)
    assert record_success(probing, USUAL, ticket=probing.probe_until) == Breaker(trips=1)
    again = record_failure(probing, at(61), USUAL, reason="OSError", ticket=probing.probe_until)
    assert (again.state, again.open_until, again.trips) == (BreakerState.OPEN, at(121), 2)


def test_calls_begun_before_it_opened_change_nothing() -> None:
    opened = after_failures(0, 0, 0, 0, 0)
    probing = admit_call(opened, at(60), USUAL)
    for breaker in (opened, probing):
        assert record_failure(breaker, at(61), USUAL, reason="late") == breaker
        assert record_success(breaker, USUAL) == breaker


def test_a_probe_that_never_reports_back_is_forgotten_and_its_word_no_longer_counts() -> None:
    first = admit_call(after_failures(0, 0, 0, 0, 0), at(60), USUAL)
    second = admit_call(first, at(120), USUAL)
    assert second.probe_until == at(180)
    assert record_failure(second, at(121), USUAL, reason="late", ticket=first.probe_until) == second
    assert record_success(second, USUAL, ticket=first.probe_until) == second


def test_a_probe_that_was_broken_off_lets_the_next_one_in_at_once() -> None:
    probing = admit_call(after_failures(0, 0, 0, 0, 0), at(60), USUAL)
    free = release_probe(probing, ticket=probing.probe_until)
    assert refused_until(free, at(61)) is None
    assert admit_call(free, at(61), USUAL).probe_until == at(121)


def test_closing_it_by_hand_holds_nothing_against_it_but_keeps_the_count() -> None:
    assert close_breaker(after_failures(0, 0, 0, 0, 0)) == Breaker(trips=1)


@pytest.mark.spec("F2")
@given(
    st.lists(st.floats(0, 120, allow_nan=False), max_size=40).map(sorted),
    st.integers(1, 6),
    st.integers(1, 60),
)
def test_it_opens_exactly_when_enough_failures_fall_into_one_window(
    moments: list[float], threshold: int, window: int
) -> None:
    thresholds = Thresholds(failures=threshold, window=timedelta(seconds=window))
    breaker, seen = Breaker(), list[datetime]()
    for moment in map(at, moments):
        breaker = record_failure(breaker, moment, thresholds, reason="x")
        seen.append(moment)
        within = [m for m in seen if m > moment - timedelta(seconds=window)]
        assert (breaker.state is BreakerState.OPEN) == (len(within) >= threshold)
        assert len(breaker.failed_at) < threshold
        if breaker.state is BreakerState.OPEN:
            return


class AnyHistory(RuleBasedStateMachine):
    """Calls that begin, succeed, fail, are broken off or never come back, in any order and at any pace."""

    thresholds = Thresholds(failures=3, window=timedelta(seconds=10), open_for=timedelta(seconds=20))

    def __init__(self) -> None:
        super().__init__()
        self.now, self.breaker = NOON, Breaker()
        self.calls: list[datetime | None] = []

    @rule(seconds=st.integers(1, 70))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule()
    def a_call_begins(self) -> None:
        before = self.breaker
        self.breaker = admit_call(before, self.now, self.thresholds)
        if self.breaker.state is BreakerState.CLOSED:
            self.calls.append(None)
        elif self.breaker.probe_until != before.probe_until:
            assert refused_until(before, self.now) is None
            # Nobody else can be probing, unless they have been forgotten.
            assert all(ticket is None or ticket <= self.now for ticket in self.calls)
            self.calls.append(self.breaker.probe_until)

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), end=st.sampled_from(["well", "badly", "broken off", "never"]))
    def a_call_ends(self, data: st.DataObject, end: str) -> None:
        ticket = self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1)))
        before = self.breaker
        if end == "well":
            self.breaker = record_success(before, self.thresholds, ticket=ticket)
        elif end == "badly":
            self.breaker = record_failure(before, self.now, self.thresholds, reason="x", ticket=ticket)
        elif end == "broken off":
            self.breaker = release_probe(before, ticket=ticket)
        else:
            # It is known to be lost only by its time.
            self.now = max(self.now, ticket or self.now)
        assert self.breaker.trips - before.trips in (0, 1)

    @invariant()
    def its_parts_agree(self) -> None:
        breaker = self.breaker
        assert (breaker.open_until is not None) == (breaker.state is BreakerState.OPEN)
        assert breaker.probe_until is None or breaker.state is BreakerState.HALF_OPEN
        assert not breaker.failed_at or breaker.state is BreakerState.CLOSED

    @invariant()
    def it_never_refuses_for_ever(self) -> None:
        until = refused_until(self.breaker, self.now)
        assert until is None or self.now < until <= self.now + timedelta(seconds=60)


TestAnyHistory = AnyHistory.TestCase
