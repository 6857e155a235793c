"""The real worker with the real executor, on SQLite and on PostgreSQL with Valkey."""

import asyncio
import gc
import os
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace
from sqlalchemy import text

from floodmark.errors import Fenced, SlowDown
from floodmark.model.batch import Batch, Item, Watermark
from floodmark.model.execution import Lease, Queued, State
from floodmark.model.job import Priority
from floodmark.model.outcome import Done
from floodmark.observability.events import ExecutionSettled, LeaseLost, StepFailed, WorkerDraining
from floodmark.operations.views import Views
from floodmark.queue.port import Queue
from floodmark.repositories.jobs import Jobs
from floodmark.rules.explain import explain
from floodmark.rules.retries import Retries
from floodmark.sinks.sql import SqlSink
from floodmark.sources.port import Context, Target
from floodmark.store.port import FIRST_PLACE
from floodmark.store.tables import items, job_executions
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import (
    TTL,
    Opened,
    change_executions,
    count_of,
    execution_of,
    given_executions,
    given_job,
    given_queued,
    requeue,
    rescue,
    rows_of,
    settle,
    state_of,
    take,
    watermark_of,
)
from floodmark.wiring.resources import Resources
from floodmark.worker.executor import Executor
from floodmark.worker.worker import _AHEAD_SECONDS, Worker

pytest_plugins = ("backends",)
pytestmark = pytest.mark.spec("V3", "G8")

HOUR = timedelta(hours=1)

Work = Callable[[Target, Context], Awaitable[None]]


@pytest.fixture(params=["sqlite", "redis_on_postgres"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a worker notices soon that it was stopped."""
    monkeypatch.setattr("floodmark.worker.worker._WAIT", timedelta(milliseconds=50))


@pytest.fixture
async def resources(opened: Opened) -> AsyncIterator[Resources]:
    async with opened() as resources:
        yield resources


class Written:
    """A source written for one test: yields one item named for its target, then does the work it was given."""

    kind = "test"

    def __init__(self, work: Work) -> None:
        self._work = work

    async def collect(self, target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        yield Batch([Item(target.name, 1)], {"since": since, "attempt": context.attempt})
        await self._work(target, context)

    def check(self, target: str, params: Mapping[str, Any]) -> None:
        """Everything goes."""


class Gate:
    """Work that begins, and ends when it is let through. Remembers how many were at it at once."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.now, self.most = 0, 0
        self._open = asyncio.Event()

    async def __call__(self, target: Target, context: Context) -> None:
        self.began.append(target.name)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self._open.wait()
            # So that others get a turn before this one ends.
            await asyncio.sleep(0)
        finally:
            self.now -= 1

    def open(self) -> None:
        self._open.set()


async def nothing(target: Target, context: Context) -> None:
    """Work that is done at once."""


@asynccontextmanager
async def working(
    resources: Resources, work: Work, *, slots: int = 3, batch: int = 10, ttl: timedelta = TTL, name: str = "a"
) -> AsyncIterator[Worker]:
    """A worker at work; in the end it is told to stop, and what it does then is waited for."""
    retries = Retries(base=HOUR, longest=HOUR, chance=Random(1))
    sink = SqlSink(resources.keeping, resources.events)
    executor = Executor({"test": Written(work)}, sink, retries, asyncio.Event())
    worker = Worker(resources.queue, executor, resources.events, name=name, slots=slots, batch=batch, ttl=ttl)
    running = asyncio.create_task(worker.run(), name="worker")
    try:
        yield worker
    finally:
        worker.stop()
        # For a test that failed half-way; the others have nothing left to hand back.
        done, _ = await asyncio.wait([running], timeout=60)
        if not done:
            worker.hand_back()
        async with asyncio.timeout(120):
            await running


async def states(resources: Resources) -> Counter[str]:
    return Counter(row["state"] for row in await rows_of(resources, job_executions))


async def until(resources: Resources, **expected: int) -> None:
    async def check() -> bool:
        assert await states(resources) == expected
        return True

    await eventually(check)


async def test_everything_that_waits_is_run_once(resources: Resources) -> None:
    """Item, watermark and outcome of each are there in the end."""
    runs: Counter[str] = Counter()

    async def work(target: Target, context: Context) -> None:
        runs[target.name] += 1

    settled: list[ExecutionSettled] = []
    resources.events.listen(ExecutionSettled, settled.append)
    async with working(resources, work, slots=5):
        await given_queued(resources, 30)
        await given_queued(resources, 10, priority=Priority.LOW)
        await until(resources, done=40)

    assert set(runs.values()) == {1}
    assert await count_of(resources, items) == 40
    assert Counter((event.status, event.new) for event in settled) == {("done", 1): 40}
    rows = await rows_of(resources, job_executions)
    assert {(row["attempt"], row["worker"], row["items_new"]) for row in rows} == {(1, "a", 1)}


@pytest.mark.parametrize("portions", [4, pytest.param(60, marks=[pytest.mark.release, pytest.mark.timeout(1200)])])
async def test_many_executions_leave_nothing_open(resources: Resources, portions: int) -> None:
    """Descriptors, tasks and memory do not grow with what was run; the first few may open what stays open."""
    counts: list[tuple[int, int]] = []
    sizes: list[int] = []
    async with working(resources, nothing, slots=5):
        for portion in range(portions):
            await given_queued(resources, 50)
            await until(resources, done=50 * (portion + 1))
            gc.collect()
            counts.append((len(os.listdir("/dev/fd")), len(asyncio.all_tasks())))
            sizes.append(resident_bytes())

    assert max(fds for fds, _ in counts[1:]) <= counts[0][0] + 5
    assert max(tasks for _, tasks in counts[1:]) <= counts[0][1] + 5
    assert max(sizes[portions // 2 :]) <= max(sizes[: portions // 2]) + 16 * 1024 * 1024


def resident_bytes() -> int:
    """Return the memory that this process uses; 0 where the system does not say."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if status.exists() else 0


async def test_a_worker_whose_loop_was_blocked_is_replaced_and_keeps_nothing(
    resources: Resources, opened: Opened
) -> None:
    """A collector blocks the event loop for longer than its lease: no heartbeat leaves, and another takes over."""
    blocked = threading.Event()

    def block() -> None:
        asyncio.run(_blocked())

    async def _blocked() -> None:
        async with opened() as stuck:
            [lease] = await take(stuck, worker="stuck", ttl=timedelta(seconds=1))
            sink = SqlSink(stuck.keeping, stuck.events)
            time.sleep(1.5)  # noqa: ASYNC251 - that is the point
            blocked.set()
            while not taken_over.is_set():
                time.sleep(0.05)  # noqa: ASYNC251
            with pytest.raises(Fenced):
                await sink.keep(lease, Batch([Item("late", 1)], {"late": True}))
            assert not await settle(stuck, lease, Done())

    taken_over = threading.Event()
    [execution_id] = await given_queued(resources)
    thread = asyncio.create_task(asyncio.to_thread(block))
    await eventually(blocked.is_set)

    async def rescued() -> bool:
        return [queued.execution_id for queued in await rescue(resources)] == [execution_id]

    await eventually(rescued)
    async with working(resources, nothing, name="b"):
        await until(resources, done=1)
        taken_over.set()
        await thread
    assert [row["key"] for row in await rows_of(resources, items)] != ["late"]
    assert (await execution_of(resources, execution_id))["worker"] == "b"


@pytest.mark.spec("G7")
async def test_an_idle_worker_ends_when_it_is_stopped(resources: Resources) -> None:
    """The call that waits for work has asked for all slots, so that there is no room for another call."""
    async with working(resources, nothing) as worker:
        await given_queued(resources)
        await until(resources, done=1)
        await is_idle(worker)


@pytest.mark.spec("G2")
async def test_a_call_that_found_nothing_leaves_its_room_to_the_other_one(resources: Resources) -> None:
    """Two calls lease at once while there is much to do; one had asked for all slots, and the other waited for room."""
    slow = SlowSecondCalls(resources.queue)
    # One slot: whichever call asks for it leaves no room to the other.
    async with working(replace(resources, queue=slow), nothing, slots=1, batch=1) as worker:
        await given_queued(resources)
        await eventually(slow.is_asked.is_set)
        await until(resources, done=1)
        await is_idle(worker)
        slow.may_answer.set()
        await given_queued(resources)
        await until(resources, done=2)


class SlowSecondCalls:
    """A real queue that is slow to answer the calls that do not wait, and has nothing for them."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def lease(self, limit: int, *, worker: str, ttl: timedelta, wait: timedelta) -> list[Lease]:
        if wait:
            return await self._queue.lease(limit, worker=worker, ttl=ttl, wait=wait)
        self.is_asked.set()
        await self.may_answer.wait()
        return []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


async def is_idle(worker: Worker) -> None:
    """Wait until what the worker did last no longer counts when it leases ahead."""
    await asyncio.sleep(5 * _AHEAD_SECONDS)
    assert worker.busy == 0


@pytest.mark.spec("G1", "T6")
@pytest.mark.thorough
async def test_two_workers_share_the_work(resources: Resources, opened: Opened) -> None:
    runs: Counter[str] = Counter()

    async def work(target: Target, context: Context) -> None:
        runs[target.name] += 1
        await asyncio.sleep(0)

    await given_queued(resources, 40)
    async with opened() as other, working(resources, work), working(other, work, name="b"):
        await until(resources, done=40)

    assert set(runs.values()) == {1}


async def test_no_more_run_at_once_than_there_are_slots(resources: Resources) -> None:
    gate = Gate()
    async with working(resources, gate, slots=3) as worker:
        await given_queued(resources, 12)
        await eventually(lambda: gate.now == 3)
        assert worker.busy == 3
        gate.open()
        await until(resources, done=12)
        await eventually(lambda: worker.busy == 0)

    assert gate.most == 3


@pytest.mark.spec("G5")
async def test_what_is_told_to_wait_frees_its_slot(resources: Resources) -> None:
    """One slot, an hour of waiting, and the next one runs at once."""

    async def work(target: Target, context: Context) -> None:
        if target.name == "flooded":
            raise SlowDown(HOUR, "account:1", "flood wait")

    async with working(resources, work, slots=1):
        [flooded] = await given_queued(resources, name="flooded")
        await given_queued(resources, 2)
        await until(resources, waiting=1, done=2)

    row = await execution_of(resources, flooded)
    assert (row["state"], row["reason"], row["attempt"], row["items_new"]) == ("waiting", "flood wait", 0, 1)


@pytest.mark.spec("T4")
async def test_what_fails_is_put_off_and_harms_nobody(resources: Resources) -> None:
    """Whatever it raises."""

    async def work(target: Target, context: Context) -> None:
        if target.name.startswith("bad"):
            raise {"bad-0": ValueError("?"), "bad-1": RuntimeError("\x00"), "bad-2": OSError("\ud800")}[target.name]

    async with working(resources, work, slots=1):
        for n in range(3):
            await given_queued(resources, name=f"bad-{n}")
        await given_queued(resources, name="hopeless-bad", retry_max=0)
        await given_queued(resources, 2)
        await until(resources, waiting=3, done=3)


@pytest.mark.spec("E4", "G9")
async def test_a_row_that_cannot_be_read_harms_nobody(resources: Resources) -> None:
    """Someone has typed nonsense into a job that is queued already: those claimed with it run, and it says why not."""
    nonsense = "'soon'" if resources.database.dialect == "sqlite" else "'NaN'"
    [bad] = await given_queued(resources, name="bad", put=False)
    await given_queued(resources, 3, put=False)
    async with resources.database.writing() as connection:
        await connection.execute(text(f"UPDATE jobs SET timeout_seconds = {nonsense} WHERE name = 'bad'"))

    async with working(resources, nothing):
        queued = [Queued(row["execution_id"], Priority.NORMAL) for row in await rows_of(resources, job_executions)]
        await resources.queue.put(queued)
        await until(resources, dead=1, done=3)

    row = await execution_of(resources, bad)
    assert (row["state"], row["attempt"]) == ("dead", 1)
    told = f"bad cannot be run: timeout_seconds has a value of the wrong kind, {nonsense.lower()}"
    assert row["error_message"] == f"{told}. Correct it, then: floodmark run bad"
    seen = await Jobs(resources.database, resources.clock).get("bad")
    assert explain(await Views(resources.database, resources.clock).load(seen, leader="x")).sentence.startswith(
        "its row in the database cannot be read: timeout_seconds has a value of the wrong kind"
    )


# Draining and stopping


@pytest.mark.thorough
async def test_a_draining_worker_takes_no_more(resources: Resources, opened: Opened) -> None:
    """What it has goes on; others take the rest; and it takes its share again when it is told to."""
    gate, told = Gate(), list[WorkerDraining]()
    resources.events.listen(WorkerDraining, told.append)
    async with opened() as other, working(resources, gate, slots=5) as worker:
        [held] = await given_queued(resources)
        await eventually(lambda: gate.now == 1)
        worker.drain()
        worker.drain()
        assert [(event.worker, event.running) for event in told] == [("a", 1)]

        async with working(other, nothing, name="b"):
            ids = await given_queued(resources, 6)
            await until(resources, running=1, done=6)
        assert {(await execution_of(resources, i))["worker"] for i in ids} == {"b"}

        gate.open()
        await until(resources, done=7)
        assert await state_of(resources, held) is State.DONE
        worker.resume()
        await given_queued(resources, 2)
        await until(resources, done=9)


@pytest.mark.spec("G7")
async def test_a_stopped_worker_finishes_what_runs_and_hands_back_the_rest(
    resources: Resources, opened: Opened
) -> None:
    """Nothing is left in its hands, and what it had not begun has cost nothing."""
    gate = Gate()

    async def work(target: Target, context: Context) -> None:
        if not target.name.startswith("quick"):
            await gate(target, context)

    # Quick ones first, so that more are fetched ahead.
    for n in range(30):
        await given_queued(resources, name=f"quick-{n}")
    await given_queued(resources, 12)
    async with working(resources, work, slots=1) as worker:
        await eventually(lambda: gate.now == 1)
        worker.stop()
        gate.open()

    assert await states(resources) == {"done": 31, "queued": 11}
    rows = await rows_of(resources, job_executions, state="queued")
    assert {row["attempt"] for row in rows} == {0}
    async with opened() as other, working(other, nothing, name="b"):
        await requeue(other)
        await until(resources, done=42)


@pytest.mark.spec("G7")
async def test_what_does_not_end_in_time_is_handed_back(resources: Resources) -> None:
    """With what it has kept until then; the next worker goes on from there."""
    gate = Gate()
    async with working(resources, gate) as worker:
        [execution_id] = await given_queued(resources)
        await eventually(lambda: gate.now == 1)
        worker.stop()
        worker.hand_back()

    row = await execution_of(resources, execution_id)
    assert (row["state"], row["attempt"], row["items_new"]) == ("queued", 0, 1)
    [again] = await take(resources, worker="b")
    assert again.watermark == {"since": None, "attempt": 1}


async def test_an_idle_worker_stops_soon(resources: Resources) -> None:
    async with working(resources, nothing):
        began = time.monotonic()
    assert time.monotonic() - began < 30


# Leases


@pytest.mark.spec("E1")
async def test_a_run_may_take_longer_than_its_lease(resources: Resources, opened: Opened) -> None:
    """The heartbeat renews it, so nobody takes it over."""
    gate, ttl = Gate(), timedelta(seconds=4)
    async with opened() as other, working(resources, gate, ttl=ttl) as worker:
        [execution_id] = await given_queued(resources)
        await eventually(lambda: gate.now == 1)
        first_end = (await execution_of(resources, execution_id))["lease_until"]

        async def has_outlived_its_lease() -> bool:
            assert await worker.heartbeat() == ttl / 3
            assert await rescue(other) == []
            assert await take(other, worker="b", ttl=ttl) == []
            now = (await execution_of(resources, execution_id))["lease_until"]
            return bool(now - first_end > ttl)

        await eventually(has_outlived_its_lease)
        gate.open()
        await until(resources, done=1)

    row = await execution_of(resources, execution_id)
    assert (row["attempt"], row["fence"], row["rescues"]) == (1, 1, 0)


@pytest.mark.spec("E1", "G3")
async def test_a_lost_lease_ends_the_work_on_it(resources: Resources, opened: Opened) -> None:
    """And the worker may be given it again, like any other."""
    gate, lost = Gate(), list[LeaseLost]()
    resources.events.listen(LeaseLost, lost.append)
    async with opened() as other, working(resources, gate) as worker:
        [execution_id] = await given_queued(resources)
        await eventually(lambda: gate.now == 1)
        worker.drain()
        await _take_away(other, execution_id)
        await worker.heartbeat()
        await eventually(lambda: gate.now == 0)
        assert [event.execution_id for event in lost] == [execution_id]
        await until(resources, queued=1)

        gate.open()
        worker.resume()
        await requeue(other)
        await until(resources, done=1)

    row = await execution_of(resources, execution_id)
    assert row["attempt"] == 1
    assert row["fence"] > 1


@pytest.mark.spec("E1", "G3")
async def test_a_worker_that_was_replaced_without_knowing_changes_nothing(resources: Resources, opened: Opened) -> None:
    """It ends its work, but its outcome is not counted."""
    gate, lost = Gate(), list[LeaseLost]()
    resources.events.listen(LeaseLost, lost.append)
    async with opened() as other, working(resources, gate) as worker:
        [execution_id] = await given_queued(resources)
        await eventually(lambda: gate.now == 1)
        worker.drain()
        await _take_away(other, execution_id)
        [theirs] = await eventually(lambda: take(other, worker="b"))
        gate.open()
        await eventually(lambda: lost)

        row = await execution_of(resources, execution_id)
        assert (row["state"], row["worker"], row["fence"]) == ("running", "b", theirs.fence)
        assert (await watermark_of(resources, theirs))["fence"] == theirs.fence


@pytest.mark.spec("V8")
async def test_a_cancelled_execution_is_ended(resources: Resources) -> None:
    gate = Gate()
    async with working(resources, gate) as worker:
        cancelled, _ = await given_queued(resources, 2)
        await eventually(lambda: gate.now == 2)
        await change_executions(resources, [cancelled], cancel_requested="cancelled by operator")
        await worker.heartbeat()
        await until(resources, running=1, cancelled=1)
        gate.open()
        await until(resources, done=1, cancelled=1)

    row = await execution_of(resources, cancelled)
    assert (row["state"], row["reason"], row["items_new"]) == ("cancelled", "cancelled by operator", 1)


@pytest.mark.spec("V8")
@pytest.mark.thorough
async def test_cancelling_everything_in_hand_leaves_a_worker_that_works(resources: Resources) -> None:
    """What was fetched ahead is closed without having begun, and then there is room again."""
    gate, failed = Gate(), list[StepFailed]()
    resources.events.listen(StepFailed, failed.append)

    async def work(target: Target, context: Context) -> None:
        if target.name.startswith("slow"):
            await gate(target, context)

    for n in range(30):
        await given_queued(resources, name=f"quick-{n}")
    slow = [(await given_queued(resources, name=f"slow-{n}"))[0] for n in range(12)]
    async with working(resources, work, slots=1) as worker:
        await eventually(lambda: gate.now == 1)

        async def are_cancelled() -> bool:
            await change_executions(resources, slow, cancel_requested="enough")
            await worker.heartbeat()
            assert await states(resources) == {"done": 30, "cancelled": 12}, failed
            return True

        await eventually(are_cancelled)
        await given_queued(resources, 2)
        await until(resources, done=32, cancelled=12)


# Trouble with the store


async def test_an_outcome_is_written_down_when_the_store_is_back(resources: Resources) -> None:
    """It is tried until it works; nothing is run a second time."""
    gate, failed = Gate(), list[StepFailed]()
    resources.events.listen(StepFailed, failed.append)
    async with working(resources, gate) as worker:
        [execution_id] = await given_queued(resources)
        await eventually(lambda: gate.now == 1)
        worker.drain()
        await _alter(resources, "ALTER TABLE watermarks RENAME TO away")
        gate.open()
        await eventually(lambda: [event for event in failed if event.step == "settle"])
        assert await state_of(resources, execution_id) is State.RUNNING
        await _alter(resources, "ALTER TABLE away RENAME TO watermarks")
        await until(resources, done=1)

    assert gate.began == [gate.began[0]]
    assert (await execution_of(resources, execution_id))["attempt"] == 1


async def test_a_worker_outlives_a_store_that_cannot_be_read(resources: Resources) -> None:
    """It says so, and goes on when it can."""
    failed: list[StepFailed] = []
    resources.events.listen(StepFailed, failed.append)
    job_id = await given_job(resources)
    await _alter(resources, "ALTER TABLE watermarks RENAME TO away")
    async with working(resources, nothing):
        await given_executions(resources, [job_id])
        await eventually(lambda: [event for event in failed if event.step == "lease"])
        await _alter(resources, "ALTER TABLE away RENAME TO watermarks")

        async def is_done() -> bool:
            # What was read from the queue but not claimed is found again after a while.
            found = await resources.upkeep.queued(after=FIRST_PLACE, older_than=-TTL, limit=10)
            await resources.queue.put([one.queued for one in found], again=True)
            return await states(resources) == {"done": 1}

        await eventually(is_done)


async def _take_away(resources: Resources, execution_id: str) -> None:
    """As if the worker had been silent for long, and the rescuer had come."""
    [row] = await rows_of(resources, job_executions, execution_id=execution_id)
    past = row["created_at"] - timedelta(days=1)
    await change_executions(resources, [execution_id], lease_until=past)
    async with resources.database.writing() as connection:
        await connection.execute(text("UPDATE watermarks SET lease_until = NULL"))
    assert len(await rescue(resources)) == 1


async def _alter(resources: Resources, statement: str) -> None:
    async with resources.database.writing() as connection:
        await connection.execute(text(statement))


@pytest.mark.spec("B17")
@pytest.mark.thorough
async def test_outcomes_that_cannot_be_written_keep_their_slots(redis_on_postgres: Opened, pg_clean: str) -> None:
    """Else a worker would go on leasing, and hold far more executions than it has slots for."""
    async with redis_on_postgres() as resources, working(resources, nothing, slots=10, batch=100) as worker:
        # Connects, and prepares its statements.
        await given_queued(resources)
        await until(resources, done=1)
        await given_queued(resources, 100, put=False)
        other = await asyncpg.connect(pg_clean)
        await other.execute("BEGIN")
        # Claims read jobs, and only outcomes write them.
        await other.execute("LOCK TABLE jobs IN EXCLUSIVE MODE")
        await requeue(resources)
        await eventually(lambda: len(worker._held) >= 10, within=120)
        for _ in range(20):
            await asyncio.sleep(0.02)
            assert len(worker._held) == 10
        await other.execute("ROLLBACK")
        await eventually(lambda: _all_ended(resources), within=120)
        await other.close()


async def _all_ended(resources: Resources) -> bool:
    """Return whether each was run; those that waited for the lock for too long will be run again."""
    return not {"queued", "running"} & (await states(resources)).keys()
