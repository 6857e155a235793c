"""A call from beginning to end, on a real store: what is refused, made again, told to the fleet, and forgotten."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import event

from floodmark.errors import AccountLost, Gone, SlowDown, Transient
from floodmark.observability.events import (
    BreakerMoved,
    CallRetried,
    Events,
    InternalEvent,
    LimitSet,
    RateLimited,
    StepFailed,
)
from floodmark.outbound import caller as caller_module
from floodmark.outbound.breakers import Breakers
from floodmark.outbound.caller import Caller, CallKey, CallPolicy
from floodmark.outbound.limits import Limits
from floodmark.outbound.retrying import RetryPolicy
from floodmark.rules.breaker import Thresholds
from floodmark.store.database import Database, open_database
from floodmark.testing.clock import SetClock
from floodmark.testing.eventually import eventually

pytest_plugins = ("backends",)

SCOPE = "telegram:reader1"
KEY = CallKey(scope=SCOPE, method="messages.getHistory", target="harbour")
OTHER = CallKey(scope=SCOPE, method="channels.getMessages")
FLOOD = SlowDown(timedelta(seconds=30), KEY.limit, "FloodWait on account reader1")
ONCE = CallPolicy(retry=RetryPolicy(attempts=1))


def a_wait(seconds: float) -> SlowDown:
    return SlowDown(timedelta(seconds=seconds), KEY.limit, FLOOD.reason)


class Process:
    """A caller with a store, a clock and a log of its own events; sleeping only moves the clock."""

    def __init__(self, database: Database, clock: SetClock, policy: CallPolicy | None = None) -> None:
        self.events, self.clock, self.slept, self.sent = Events(), clock, list[float](), 0
        self.seen: list[InternalEvent] = []
        for kind in (BreakerMoved, CallRetried, LimitSet, RateLimited, StepFailed):
            self.events.listen(kind, self.seen.append)
        self.limits, self.breakers = Limits(database, clock), Breakers(database, clock)
        self.caller = Caller(self.limits, self.breakers, policy or CallPolicy(), clock, self.events, sleep=self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(timedelta(seconds=seconds))

    async def call(self, *answers: Any, key: CallKey = KEY) -> Any:
        """Call somebody who gives these answers, one a time; the last one again and again."""
        left = list(answers or ["fine"])

        async def send() -> Any:
            self.sent += 1
            answer = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return await self.caller.call(key, send)

    async def refused(self, *answers: Any, key: CallKey = KEY) -> SlowDown:
        with pytest.raises(SlowDown) as caught:
            await self.call(*answers, key=key)
        return caught.value

    def of(self, kind: type[Any]) -> list[Any]:
        return [e for e in self.seen if type(e) is kind]

    def moves(self) -> list[tuple[str, bool]]:
        return [(e.state, e.elsewhere) for e in self.of(BreakerMoved)]


@pytest.fixture
async def database(sqlite_copy: str) -> AsyncIterator[Database]:
    opened = open_database(sqlite_copy, events=Events())
    yield opened
    await opened.close()


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def process(database: Database, clock: SetClock) -> Process:
    return Process(database, clock)


async def open_breaker(process: Process) -> None:
    for _ in range(5):
        with pytest.raises(Transient):
            await process.call(Transient("no answer"))


# Passing faults


@pytest.mark.spec("F1")
async def test_a_passing_fault_is_tried_again_and_every_attempt_is_told(process: Process) -> None:
    assert await process.call(ConnectionResetError(), TimeoutError(), Transient("busy"), "fine") == "fine"
    told = process.of(CallRetried)
    assert [(e.attempt, e.reason, e.target, e.scope) for e in told] == [
        (1, "ConnectionResetError", "harbour", SCOPE),
        (2, "TimeoutError", "harbour", SCOPE),
        (3, "Transient", "harbour", SCOPE),
    ]
    assert [e.delay for e in told] == process.slept
    for delay, longest in zip(process.slept, (0.5, 1, 2), strict=True):
        assert 0 <= delay <= longest


@pytest.mark.spec("F1")
async def test_after_the_last_attempt_the_error_itself_is_raised(process: Process) -> None:
    with pytest.raises(OSError, match="unreachable"):
        await process.call(OSError("unreachable"))
    assert process.sent == 5
    assert len(process.of(CallRetried)) == 4


@pytest.mark.spec("F1", "T4")
@pytest.mark.parametrize("error", [Gone("deleted"), AccountLost("reader1", "revoked"), ValueError("a bug")])
async def test_what_does_not_pass_is_not_tried_again_and_is_no_failure(process: Process, error: Exception) -> None:
    for _ in range(6):
        with pytest.raises(type(error)):
            await process.call(error)
    assert process.sent == 6
    assert await process.breakers.page() == []


@pytest.mark.spec("F1")
async def test_a_call_that_is_not_answered_ends_at_its_deadline(database: Database, clock: SetClock) -> None:
    process = Process(database, clock, replace(ONCE, call_timeout=timedelta(milliseconds=10)))
    with pytest.raises(Transient, match=r"messages\.getHistory failed: no response within 0\.01 s"):
        await process.caller.call(KEY, asyncio.Event().wait)
    [row] = await process.breakers.page()
    assert (row.failures, row.reason) == (1, "TimeoutError")


# Limits


@pytest.mark.spec("T4", "G5")
async def test_who_is_told_to_wait_calls_nobody_until_it_is_over(process: Process, clock: SetClock) -> None:
    told = await process.refused(FLOOD)
    assert (told.after, told.reason) == (timedelta(seconds=30), FLOOD.reason)
    clock.advance(timedelta(seconds=10))
    rest = await process.refused()
    assert (rest.after, rest.reason, process.sent) == (timedelta(seconds=20), FLOOD.reason, 1)
    assert await process.call(key=OTHER) == "fine"
    clock.advance(timedelta(seconds=20))
    assert await process.call() == "fine"
    [limited] = process.of(RateLimited)
    assert (limited.source, limited.scope, limited.method) == ("telegram", SCOPE, KEY.method)
    assert (limited.target, limited.seconds, limited.reason) == ("harbour", 30, "SlowDown")


async def test_asking_again_does_not_draw_a_limit_out(process: Process, clock: SetClock) -> None:
    """What is raised has no key once it is stored, so settling the execution does not set the limit anew."""
    assert (await process.refused(FLOOD)).key is None
    before = await process.limits.page()
    clock.advance(timedelta(seconds=29.9))
    assert (await process.refused()).key is None
    assert await process.limits.page() == before
    assert before[0].hits == 1


async def test_a_limit_on_the_whole_scope_holds_for_all_its_methods(process: Process) -> None:
    await process.refused(SlowDown(timedelta(seconds=5), SCOPE, "everything"))
    assert (await process.refused(key=OTHER)).reason == "everything"
    assert await process.call(key=CallKey(scope="telegram:reader2", method=KEY.method)) == "fine"


async def test_a_wait_for_this_execution_alone_is_passed_on_and_stored_nowhere(process: Process) -> None:
    assert (await process.refused(SlowDown(timedelta(seconds=5), None, "busy"))).reason == "busy"
    assert await process.limits.page() == []
    assert await process.call() == "fine"


@pytest.mark.spec("T4")
async def test_a_limit_holds_after_a_restart_and_for_others_within_a_second(
    process: Process, database: Database, clock: SetClock
) -> None:
    neighbour = Process(database, clock)
    await neighbour.call()
    await process.refused(FLOOD)
    clock.advance(timedelta(seconds=1))
    assert (await neighbour.refused()).after == timedelta(seconds=29)
    restarted = Process(database, clock)
    await restarted.caller.load(SCOPE)
    waiting = await restarted.caller.wait_of(SCOPE, KEY.method)
    assert waiting is not None
    assert waiting.after == timedelta(seconds=29)
    assert await restarted.caller.wait_of(SCOPE, OTHER.method) is None
    assert restarted.sent == 0


async def test_calls_under_way_together_may_end_but_none_begins_once_one_was_told(process: Process) -> None:
    begun, go = list[str](), asyncio.Event()

    def sending(name: str, answer: Any) -> Callable[[], Awaitable[Any]]:
        async def send() -> Any:
            begun.append(name)
            await go.wait()
            if isinstance(answer, Exception):
                raise answer
            return answer

        return send

    both = [
        asyncio.create_task(process.caller.call(KEY, sending("told", FLOOD))),
        asyncio.create_task(process.caller.call(KEY, sending("fine", "fine"))),
    ]
    await eventually(lambda: len(begun) == 2)
    go.set()
    told, fine = await asyncio.gather(*both, return_exceptions=True)
    assert isinstance(told, SlowDown)
    assert fine == "fine"
    await process.refused()
    assert process.sent == 0


async def test_a_limit_holds_here_before_the_database_has_it(
    process: Process, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is being written, and also when it cannot be: then it is written at the next occasion."""
    await process.call()
    asked = list[SlowDown | None]()

    async def away(*_: Any) -> Any:
        asked.append(await process.caller.wait_of(SCOPE, KEY.method))
        raise ConnectionError("the database is away")

    monkeypatch.setattr(process.limits, "set", away)
    told = await process.refused(FLOOD)
    assert told.key == KEY.limit, "the settle step is to store it"
    assert asked[0] is not None
    assert [e.step for e in process.of(StepFailed)] == ["limits"]
    monkeypatch.undo()
    await process.caller.load(SCOPE)
    [row] = await Limits(database, process.clock).page()
    assert row.key == KEY.limit
    await process.refused()


async def test_a_limit_that_someone_lifted_is_gone_within_a_second(process: Process, clock: SetClock) -> None:
    await process.refused(FLOOD)
    await process.limits.clear(KEY.limit)
    clock.advance(timedelta(seconds=1))
    assert await process.call() == "fine"


# Pace


@pytest.mark.spec("F5")
async def test_whoever_was_told_to_wait_goes_on_at_half_the_pace(process: Process, clock: SetClock) -> None:
    for _ in range(9):
        await process.call()
    await process.refused(FLOOD)
    [row] = await process.limits.page()
    assert row.rate == pytest.approx(1.0)
    clock.advance(timedelta(seconds=30))
    process.slept.clear()
    for _ in range(3):
        await process.call()
    assert process.slept == pytest.approx([1, 1], abs=0.1)


@pytest.mark.spec("F5", "G5")
async def test_who_would_wait_long_for_a_turn_comes_back_later(process: Process, clock: SetClock) -> None:
    await process.refused(FLOOD)
    clock.advance(timedelta(seconds=30))
    await process.call()
    wait = await process.refused()
    assert wait.key is None
    assert wait.after > timedelta(seconds=2)
    assert "limited to one call every 10 s" in wait.reason
    clock.advance(wait.after)
    assert await process.call() == "fine"


@pytest.mark.spec("F5")
async def test_the_pace_survives_a_restart_and_is_lifted_with_the_limit(
    process: Process, database: Database, clock: SetClock
) -> None:
    await process.refused(FLOOD)
    clock.advance(timedelta(seconds=30))
    restarted = Process(database, clock)
    await restarted.caller.load(SCOPE)
    await restarted.call()
    await restarted.refused()
    await restarted.limits.clear(KEY.limit)
    clock.advance(timedelta(seconds=1))
    for _ in range(5):
        await restarted.call()
    assert restarted.slept == []


@pytest.mark.spec("F5")
async def test_a_regained_pace_is_stored_for_the_next_process(
    process: Process, database: Database, clock: SetClock
) -> None:
    """Each process makes some calls and ends: one second of waiting must not slow the others down for a day."""
    for _ in range(9):
        await process.call()
    await process.refused(a_wait(seconds=1))
    clock.advance(timedelta(seconds=1))
    rates = [(await process.limits.show(KEY.limit)).rate or 0.0]
    for _ in range(3):
        restarted = Process(database, clock)
        await restarted.caller.load(SCOPE)
        for _ in range(40):
            await restarted.call()
        rates.append((await process.limits.show(KEY.limit)).rate or 0.0)
    assert rates == sorted(rates)
    assert rates[-1] > 1.3 * rates[0]

    # Of so short a wait nothing is left after a while, even if nobody calls.
    clock.advance(timedelta(minutes=11))
    later = Process(database, clock)
    for _ in range(20):
        await later.call()
    assert later.slept == []


async def test_a_regained_pace_does_not_hide_a_newer_wait(
    process: Process, database: Database, clock: SetClock
) -> None:
    for _ in range(9):
        await process.call()
    await process.refused(FLOOD)
    clock.advance(timedelta(seconds=30))
    for _ in range(20):
        await process.call()
    [before] = await process.limits.page(with_past=True)
    other = Process(database, clock)
    await other.refused(FLOOD)
    clock.advance(timedelta(seconds=31))
    await process.call()
    [after] = await process.limits.page(with_past=True)
    assert before.rate is not None
    assert after.rate is not None
    assert after.rate < before.rate


@pytest.mark.spec("F5")
async def test_a_fixed_pace_does_not_change(database: Database, clock: SetClock) -> None:
    process = Process(database, clock, CallPolicy(is_adaptive=False))
    await process.refused(FLOOD)
    assert (await process.limits.page())[0].rate is None
    clock.advance(timedelta(seconds=30))
    for _ in range(20):
        await process.call()
    assert process.slept == []


# Breakers


@pytest.mark.spec("F2", "G5")
async def test_an_open_breaker_defers_and_one_probe_closes_it(database: Database, clock: SetClock) -> None:
    process = Process(database, clock, ONCE)
    await open_breaker(process)
    refusal = await process.refused()
    assert (refusal.after, refusal.key) == (timedelta(seconds=60), None)
    assert refusal.reason == f"breaker {SCOPE} is open until 12:01:00 UTC (Transient)"
    assert process.sent == 5
    clock.advance(timedelta(seconds=60))
    assert await process.call() == "fine"
    assert process.moves() == [("open", False), ("half-open", False), ("closed", False)]


@pytest.mark.spec("F2")
async def test_a_call_stops_being_made_again_when_its_breaker_opens(
    process: Process, database: Database, clock: SetClock
) -> None:
    hasty = Process(database, clock, ONCE)
    for _ in range(3):
        with pytest.raises(Transient):
            await hasty.call(Transient("no answer"))
    assert "is open until" in (await process.refused(Transient("no answer"))).reason
    assert process.sent == 2


@pytest.mark.spec("F2")
async def test_a_probe_is_one_attempt_and_its_failure_opens_the_breaker_again(
    process: Process, database: Database, clock: SetClock
) -> None:
    await open_breaker(Process(database, clock, ONCE))
    clock.advance(timedelta(seconds=60))
    await process.refused(Transient("still not"))
    assert process.sent == 1
    [row] = await process.breakers.page()
    assert (row.state, row.trips) == ("open", 2)


@pytest.mark.parametrize("answer", [FLOOD, Gone("deleted")])
async def test_a_probe_that_gets_any_answer_closes_the_breaker(
    answer: Exception, process: Process, database: Database, clock: SetClock
) -> None:
    await open_breaker(Process(database, clock, ONCE))
    clock.advance(timedelta(seconds=60))
    with pytest.raises(type(answer)):
        await process.call(answer)
    assert (await process.breakers.page())[0].state == "closed"


async def test_a_probe_that_is_cancelled_lets_the_next_one_in(
    process: Process, database: Database, clock: SetClock
) -> None:
    await open_breaker(Process(database, clock, ONCE))
    clock.advance(timedelta(seconds=60))
    begun = asyncio.Event()

    async def hanging() -> None:
        begun.set()
        await asyncio.Event().wait()

    probe = asyncio.create_task(process.caller.call(KEY, hanging))
    await begun.wait()
    assert "is being probed" in (await process.refused()).reason
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    assert await process.call() == "fine"


@pytest.mark.spec("V5")
async def test_a_source_can_have_thresholds_of_its_own(database: Database, clock: SetClock) -> None:
    web = Thresholds(failures=2, window=None, open_for=timedelta(seconds=7))
    process = Process(database, clock, replace(ONCE, others={"web": web}))
    page = CallKey(scope="web:example.org", method="GET")
    for answer in (Transient("x"), "fine", Transient("x"), Transient("x")):
        if answer == "fine":
            await process.call(answer, key=page)
        else:
            with pytest.raises(Transient):
                await process.call(answer, key=page)
    assert (await process.refused(key=page)).after == timedelta(seconds=7)


async def test_a_failure_counts_here_when_the_database_is_away(
    database: Database, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(database, clock, ONCE)

    async def away(*_: Any) -> Any:
        raise ConnectionError("the database is away")

    monkeypatch.setattr(process.breakers, "change", away)
    await open_breaker(process)
    assert "is open" in (await process.refused()).reason
    assert process.of(StepFailed)[0].step == "breakers"


async def test_looking_again_notices_that_another_process_closed_a_breaker(
    process: Process, database: Database, clock: SetClock
) -> None:
    other = Process(database, clock, ONCE)
    await open_breaker(other)
    await process.refused()
    clock.advance(timedelta(seconds=60))
    await other.call()
    await process.caller.step()
    assert process.moves() == [("open", True), ("closed", True)]


# What it costs


@pytest.mark.spec("G6")
async def test_calls_that_go_well_do_not_ask_the_database_more_than_once_a_second(
    process: Process, database: Database, clock: SetClock
) -> None:
    statements = list[str]()

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    await process.call()
    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    for _ in range(100):
        await process.call()
    assert statements == []
    clock.advance(timedelta(seconds=1))
    for _ in range(100):
        await process.call()
    assert 1 <= len(statements) <= 3
    event.remove(database.engine.sync_engine, "before_cursor_execute", note)


@pytest.mark.spec("G6")
async def test_what_is_remembered_is_bounded(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller_module, "_MAX_SCOPES", 5)
    monkeypatch.setattr(caller_module, "_MAX_METHODS", 5)
    await process.refused(FLOOD)
    for number in range(20):
        await process.call(key=CallKey(scope=f"web:{number}", method="GET"))
        await process.call(key=CallKey(scope="web:0", method=f"GET {number}"))
    assert len(process.caller._scopes) == 5
    assert len(process.caller._scopes["web:0"].paces) == 5
    # Forgotten, but still true: it is read again.
    await process.refused()
