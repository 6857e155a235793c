"""A lease goes in, an outcome comes out: the real executor, small sources, the real sink on SQLite."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from floodmark.errors import Gone, InvalidInput, SlowDown
from floodmark.model.batch import Batch, Item, Kept, Watermark
from floodmark.model.execution import Lease
from floodmark.model.notes import notes_of
from floodmark.model.outcome import Cancelled, Dead, Done, Outcome, Released, Retry, Snooze
from floodmark.rules.retries import Retries
from floodmark.sinks.sql import SqlSink
from floodmark.sources.port import Context, Target
from floodmark.store.tables import items
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import Opened, count_of, expire, given_lease, rescue, take, watermark_of
from floodmark.wiring.resources import Resources
from floodmark.worker.executor import Executor, Interrupt

pytest_plugins = ("backends",)

SECOND = timedelta(seconds=1)
ONE, TWO = Batch([Item("1", 1)], {"id": 1}), Batch([Item("2", 2), Item("3", 3)], {"id": 3})

Collect = Callable[[Target, Watermark | None, Context], AsyncIterator[Batch]]


class Written:
    """A source written for one test."""

    kind = "test"

    def __init__(self, collect: Collect) -> None:
        self.collect = collect

    def check(self, target: str, params: Mapping[str, Any]) -> None:
        """Everything goes."""


class Runner:
    """Runs one lease on one source, as a worker would."""

    def __init__(self, resources: Resources) -> None:
        self.resources, self.interrupt, self.stopping = resources, Interrupt(), asyncio.Event()
        self.asked_for_more = asyncio.Event()
        """Set by a source when its first batch is kept and counted."""

    async def run(self, lease: Lease, collect: Collect) -> Outcome | None:
        retries = Retries(base=SECOND, longest=SECOND, chance=Random(1))
        sink = SqlSink(self.resources.keeping, self.resources.events)
        return await Executor({"test": Written(collect)}, sink, retries, self.stopping).execute(lease, self.interrupt)

    async def for_ever(self, target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        """A source that has more to come, but never yields it."""
        yield ONE
        self.asked_for_more.set()
        await asyncio.Event().wait()


@pytest.fixture
async def resources(sqlite: Opened) -> AsyncIterator[Resources]:
    async with sqlite() as resources:
        yield resources


@pytest.fixture
def runner(resources: Resources) -> Runner:
    return Runner(resources)


async def two_batches(target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
    yield ONE
    yield TWO


@pytest.mark.spec("G3")
async def test_everything_is_kept_and_counted(resources: Resources, runner: Runner) -> None:
    lease = await given_lease(resources)

    assert await runner.run(lease, two_batches) == Done(kept=Kept(new=3))
    assert await count_of(resources, items) == 3
    assert (await watermark_of(resources, lease))["value"] == {"id": 3}


async def test_a_source_is_told_what_it_needs_to_know(resources: Resources, runner: Runner) -> None:
    """The execution's own params win over those of the job."""
    told: list[Any] = []

    async def collect(target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        told.extend([target, since, context])
        yield Batch([])

    lease = await given_lease(resources, name="news", params={"depth": 1, "lang": "en"}, url="http://x", account="a1")
    lease = replace(lease, params={"depth": 9}, watermark={"id": 7})
    await runner.run(lease, collect)

    target, since, context = told
    assert target == Target(
        name="news", stream="test:news", params={"depth": 9, "lang": "en"}, url="http://x", account="a1"
    )
    assert since == {"id": 7}
    assert (context.execution_id, context.job_name, context.attempt) == (lease.execution_id, "news", 1)
    assert context.stopping is runner.stopping


@pytest.mark.spec("G5", "T4")
async def test_being_told_to_wait_is_a_snooze(resources: Resources, runner: Runner) -> None:
    """For the whole fleet; what was kept until then counts."""

    async def collect(target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        yield ONE
        raise SlowDown(timedelta(seconds=33), "account:1", "flood wait")

    assert await runner.run(await given_lease(resources), collect) == Snooze(
        after=timedelta(seconds=33), reason="flood wait", key="account:1", kept=Kept(new=1)
    )


@pytest.mark.spec("G5")
@pytest.mark.parametrize(
    ("told", "waits"),
    [
        (timedelta.max, timedelta(days=1)),
        (timedelta(hours=30), timedelta(days=1)),
        (33, timedelta(seconds=33)),
        (2.5, timedelta(seconds=2.5)),
        (10**30, timedelta(days=1)),
        (timedelta(), SECOND),
        (-SECOND, SECOND),
        (timedelta(hours=24), timedelta(hours=24)),
    ],
)
async def test_a_wait_is_bounded(
    resources: Resources, runner: Runner, told: timedelta | float, waits: timedelta
) -> None:
    """Whatever a server says: it can be written down, and it ends."""

    async def collect(target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        yield Batch([])
        raise SlowDown(told)

    outcome = await runner.run(await given_lease(resources), collect)
    assert isinstance(outcome, Snooze)
    assert outcome.after == waits


@pytest.mark.spec("V3")
async def test_a_time_out_ends_it(resources: Resources, runner: Runner) -> None:
    outcome = await runner.run(await given_lease(resources, timeout_seconds=3), runner.for_ever)

    assert isinstance(outcome, Retry)
    assert outcome.error == "TimeoutError: took longer than its time-out of 3 s"
    assert outcome.kept == Kept(new=1)


async def test_a_time_out_of_the_source_itself_is_told_as_such(resources: Resources, runner: Runner) -> None:
    """It is not the execution that took too long."""

    async def collect(target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        yield ONE
        raise TimeoutError("no answer from the server")

    outcome = await runner.run(await given_lease(resources), collect)
    assert isinstance(outcome, Retry)
    assert outcome.error == "TimeoutError: no answer from the server"


@pytest.mark.spec("V8", "G7")
@pytest.mark.parametrize("reason", [Cancelled(reason="cancelled by operator"), Released()])
async def test_it_can_be_ended_from_outside(resources: Resources, runner: Runner, reason: Cancelled | Released) -> None:
    """With the outcome it was ended for, and what was kept until then."""
    running = asyncio.create_task(runner.run(await given_lease(resources), runner.for_ever))
    await runner.asked_for_more.wait()
    runner.interrupt.end(reason)

    outcome = await running
    assert isinstance(outcome, Cancelled | Released)
    assert (outcome.reason, outcome.kept) == (reason.reason, Kept(new=1))


@pytest.mark.spec("E1")
async def test_a_lost_lease_leaves_nothing_to_say(resources: Resources, runner: Runner) -> None:
    running = asyncio.create_task(runner.run(await given_lease(resources), runner.for_ever))
    await runner.asked_for_more.wait()
    runner.interrupt.end(None)

    assert await running is None


@pytest.mark.parametrize("raised", [ValueError("while leaving"), SlowDown(SECOND, "k"), TimeoutError("closing")])
async def test_what_a_source_makes_of_being_ended_does_not_count(
    resources: Resources, runner: Runner, raised: Exception
) -> None:
    """A cancelled execution is cancelled, even if the source fails on its way out."""

    async def collect(target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        yield ONE
        runner.asked_for_more.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise raised

    running = asyncio.create_task(runner.run(await given_lease(resources), collect))
    await runner.asked_for_more.wait()
    runner.interrupt.end(Cancelled(reason="enough"))

    assert await running == Cancelled(reason="enough", kept=Kept(new=1))


async def test_ending_it_twice_is_ending_it_once(resources: Resources, runner: Runner) -> None:
    running = asyncio.create_task(runner.run(await given_lease(resources), runner.for_ever))
    await runner.asked_for_more.wait()
    runner.interrupt.end(Cancelled(reason="first"))
    runner.interrupt.end(Cancelled(reason="second"))

    assert await running == Cancelled(reason="second", kept=Kept(new=1))
    runner.interrupt.end(None)


@pytest.mark.spec("G3", "E1")
async def test_a_fenced_worker_has_nothing_to_say(resources: Resources, runner: Runner) -> None:
    """The batch was refused: another has taken over, and the last word is its."""
    lease = await given_lease(resources)
    await expire(resources, lease)
    await rescue(resources)
    await take(resources, worker="b")

    assert await runner.run(lease, two_batches) is None
    assert await count_of(resources, items) == 0


@pytest.mark.spec("G7")
async def test_a_leaving_worker_stops_at_a_batch(resources: Resources, runner: Runner) -> None:
    """What was yielded is kept; the next worker goes on from there."""
    lease = await given_lease(resources)
    runner.stopping.set()

    assert await runner.run(lease, two_batches) == Released(kept=Kept(new=1))
    assert (await watermark_of(resources, lease))["value"] == {"id": 1}


@pytest.mark.spec("G9")
async def test_an_unknown_source_is_a_dead_letter(resources: Resources, runner: Runner) -> None:
    outcome = await runner.run(await given_lease(resources, source="gopher"), two_batches)

    assert isinstance(outcome, Dead)
    assert "this worker has no source 'gopher'" in outcome.error
    assert "It has: test" in outcome.error
    assert not outcome.pause


@pytest.mark.parametrize(("error", "pauses"), [(Gone("deleted"), True), (InvalidInput("bad params"), False)])
async def test_what_cannot_work_is_a_dead_letter(
    resources: Resources, runner: Runner, error: Exception, pauses: bool
) -> None:
    async def collect(target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        yield ONE
        raise error

    outcome = await runner.run(await given_lease(resources), collect)
    assert isinstance(outcome, Dead)
    assert (outcome.error, outcome.pause, outcome.kept) == (str(error), pauses, Kept(new=1))


async def test_a_source_that_fails_before_its_first_batch(resources: Resources, runner: Runner) -> None:
    def collect(target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        raise ConnectionError("refused")

    outcome = await runner.run(await given_lease(resources), collect)
    assert isinstance(outcome, Retry)
    assert outcome.error == "ConnectionError: refused"


async def test_an_item_that_cannot_be_kept_is_a_dead_letter(resources: Resources, runner: Runner) -> None:
    """Not a crash, and not retried for ever."""

    async def collect(target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        yield Batch([Item("1", "x" * 20_000_000)])

    outcome = await runner.run(await given_lease(resources), collect)
    assert isinstance(outcome, Dead)
    assert "larger than" in outcome.error


@pytest.mark.spec("G7")
@pytest.mark.parametrize("how", ["stopping", "fenced", "failed keep", "interrupt"])
async def test_a_source_lets_go_of_what_it_holds_before_the_outcome_is_told(
    resources: Resources, runner: Runner, how: str
) -> None:
    """Another may want it at once: an account, a browser."""
    held = True

    async def collect(target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        nonlocal held
        try:
            yield Batch([Item("1", object())]) if how == "failed keep" else ONE
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            held = False

    lease = await given_lease(resources)
    if how == "stopping":
        runner.stopping.set()
    if how == "fenced":
        await expire(resources, lease)
        await rescue(resources)
        await take(resources, worker="b")
    running = asyncio.create_task(runner.run(lease, collect))
    if how == "interrupt":
        await eventually(lambda: count_of(resources, items))
        runner.interrupt.end(None)
    await running

    assert not held


async def test_a_source_need_not_be_a_generator(resources: Resources, runner: Runner) -> None:
    class Once:
        def __init__(self) -> None:
            self._left = [ONE]

        def __aiter__(self) -> AsyncIterator[Batch]:
            return self

        async def __anext__(self) -> Batch:
            if not self._left:
                raise StopAsyncIteration
            return self._left.pop()

    assert await runner.run(await given_lease(resources), lambda *_: Once()) == Done(kept=Kept(new=1))


@pytest.mark.spec("G9")
async def test_notes_are_kept_whatever_the_outcome_and_over_all_slices(resources: Resources, runner: Runner) -> None:
    """A bound that was reached in the first slice is still known at the end; there are at most 50 notes, each once."""

    async def put_off(target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        context.note("one page has no text")
        yield ONE
        raise SlowDown(timedelta(seconds=33), None, "flood wait")

    async def ends(target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        for number in range(60):
            context.note(f"note {number}")
        context.note("one page has no text")
        yield TWO

    lease = await given_lease(resources)
    first = await runner.run(lease, put_off)
    assert isinstance(first, Snooze)
    assert first.result == {"notes": ["one page has no text"]}
    second = await runner.run(replace(lease, result=first.result), ends)
    assert isinstance(second, Done)
    assert notes_of(second.result)[:2] == ["one page has no text", "note 0"]
    assert notes_of(second.result)[-1] == "and 11 more notes"


@pytest.mark.spec("G7")
async def test_a_source_that_loses_its_cancellation_is_cancelled_again(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `asyncio.wait_for` does on Python 3.11 when its result comes in the same moment."""
    monkeypatch.setattr("floodmark.worker.executor._CANCEL_AGAIN_SECONDS", 0.05)
    lost = 0

    async def collect(target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        nonlocal lost
        yield ONE
        runner.asked_for_more.set()
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                if lost == 2:
                    raise
                lost += 1

    lease = await given_lease(runner.resources)
    running = asyncio.create_task(runner.run(lease, collect))
    await runner.asked_for_more.wait()
    runner.interrupt.end(Cancelled(reason="enough"))
    assert await running == Cancelled(reason="enough", kept=Kept(new=1))
    assert lost == 2
    assert not running.cancelling()
