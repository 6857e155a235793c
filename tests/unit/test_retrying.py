"""How a call is made again: how often, after which pauses, for how long, and what is told about it."""

import asyncio
from datetime import timedelta

import pytest

from floodmark.errors import Gone, SlowDown, Transient
from floodmark.observability.events import CallRetried, Events
from floodmark.outbound.retrying import Retrying, RetryPolicy


class Line:
    """A server that does not answer, and pauses that take no time."""

    def __init__(self) -> None:
        self.calls = 0
        self.pauses: list[float] = []
        self.told: list[CallRetried] = []
        self.events = Events()
        self.events.listen(CallRetried, self.told.append)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    async def no_answer(self) -> str:
        self.calls += 1
        raise Transient("no answer") from ConnectionResetError()

    def retrying(self, policy: RetryPolicy | None = None) -> Retrying:
        return Retrying(policy or RetryPolicy(), self.events, sleep=self.sleep)


@pytest.mark.spec("F1")
async def test_the_pauses_are_drawn_at_random_up_to_a_bound_that_doubles() -> None:
    bounds, seen = (0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0), list[list[float]]()
    for _ in range(30):
        line = Line()
        with pytest.raises(Transient):
            await line.retrying(RetryPolicy(attempts=8)).call(line.no_answer, target="harbour", method="m")
        seen.append(line.pauses)
    for number, bound in enumerate(bounds):
        drawn = [pauses[number] for pauses in seen]
        assert 0 <= min(drawn) < bound / 2 < max(drawn) <= bound


@pytest.mark.spec("F1")
@pytest.mark.parametrize(("elapsed", "calls"), [(timedelta(microseconds=1), 1), (timedelta(hours=1), 5)])
async def test_it_is_not_tried_again_once_too_much_time_has_passed(elapsed: timedelta, calls: int) -> None:
    line = Line()
    with pytest.raises(Transient):
        await line.retrying(RetryPolicy(elapsed=elapsed)).call(line.no_answer, target="harbour", method="m")
    assert line.calls == calls


@pytest.mark.spec("F1")
async def test_every_attempt_that_is_made_again_is_told_with_number_delay_and_reason() -> None:
    line = Line()
    with pytest.raises(Transient):
        await line.retrying(RetryPolicy(attempts=3)).call(line.no_answer, target="harbour", method="m", scope="s:a")
    told = [(e.target, e.method, e.attempt, e.delay, e.reason, e.scope) for e in line.told]
    assert told == [
        ("harbour", "m", number, delay, "ConnectionResetError", "s:a") for number, delay in enumerate(line.pauses, 1)
    ]


@pytest.mark.parametrize("error", [Gone("x"), SlowDown(RetryPolicy().base, "k"), KeyError("x"), EOFError()])
async def test_other_errors_are_raised_at_once_as_they_are(error: Exception) -> None:
    async def send() -> None:
        raise error

    line = Line()
    with pytest.raises(type(error)) as caught:
        await line.retrying().call(send, target="harbour", method="m")
    assert caught.value is error
    assert line.told == []


async def test_one_attempt_means_no_second() -> None:
    line = Line()
    with pytest.raises(Transient):
        await line.retrying(RetryPolicy(attempts=1)).call(line.no_answer, target="harbour", method="m")
    assert (line.calls, line.pauses) == (1, [])


async def test_calls_at_the_same_time_do_not_share_their_attempts() -> None:
    line = Line()
    retrying = line.retrying(RetryPolicy(attempts=3))
    calls = (retrying.call(line.no_answer, target="harbour", method="m") for _ in range(4))
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(error) for error in errors] == [Transient] * 4
    assert (line.calls, len(line.told)) == (12, 8)
