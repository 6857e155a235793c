"""How a call is made again: how often, after which pauses, for how long, and what is told about it."""

import pytest

from floodmark.errors import Gone, SlowDown, Transient
from floodmark.observability.events import CallRetried, Events
from floodmark.outbound.retrying import Retrying, RetryPolicy


class Line:
    """Somebody who does not answer. Time passes only by pauses, and by `seconds` with each call."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.now, self.seconds, self.calls = 0.0, seconds, 0
        self.pauses: list[float] = []
        self.told: list[CallRetried] = []
        self.events = Events()
        self.is_over = lambda: False
        self.events.listen(CallRetried, self.told.append)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    async def no_answer(self) -> str:
        self.calls += 1
        self.now += self.seconds
        raise Transient("no answer") from ConnectionResetError()

    def retrying(self, policy: RetryPolicy | None = None) -> Retrying:
        return Retrying(
            policy or RetryPolicy(), self.events, sleep=self.sleep, monotonic=lambda: self.now, is_over=self.is_over
        )


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
async def test_it_is_not_tried_again_once_too_much_time_has_passed() -> None:
    line = Line(seconds=50)
    with pytest.raises(Transient):
        await line.retrying().call(line.no_answer, target="harbour", method="m")
    assert line.calls == 3


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


async def test_it_can_be_ended_from_outside() -> None:
    line = Line()
    line.is_over = lambda: line.calls == 2
    with pytest.raises(Transient):
        await line.retrying().call(line.no_answer, target="harbour", method="m")
    assert line.calls == 2
