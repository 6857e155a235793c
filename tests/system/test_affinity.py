"""A source that prefers certain workers, run by several workers on every queue."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from floodmark.coordination.service import Service, run_services
from floodmark.model.batch import Batch, Item, Watermark
from floodmark.model.execution import Lease
from floodmark.observability.events import ExecutionsOffered, StepFailed
from floodmark.runtime.worker_role import WorkerRole
from floodmark.scheduler.requeuer import Waker
from floodmark.sources.port import Context, Target
from floodmark.store.tables import items, job_executions
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import Opened, given_queued, rows_of
from floodmark.wiring.resources import Resources

pytest_plugins = ("backends",)
pytestmark = pytest.mark.spec("T15")

# Longer than any test, and shorter than anyone would notice.
LONG, SHORT = "10m", "0.2"
RUNS = 12


@pytest.fixture(params=["sqlite", "postgres_only", "redis_on_postgres"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


class Home:
    """What the workers of a test share: the worker that is preferred, and who ran what."""

    def __init__(self) -> None:
        self.worker: str | None = None
        self.ran: list[str] = []
        self.blocked: str | None = None
        self.unblock = asyncio.Event()


class Homing:
    """A source that is at home in one worker. It blocks in one of them, so that this has no free slot."""

    kind = "test"

    def __init__(self, me: str, home: Home) -> None:
        self._me, self._home = me, home

    async def preferred_workers(self, leases: Sequence[Lease]) -> Sequence[str | None]:
        return [self._home.worker] * len(leases)

    async def collect(self, target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        self._home.ran.append(self._me)
        if self._home.blocked == self._me:
            await self._home.unblock.wait()
        yield Batch([Item(target.name, 1)], {"by": self._me})

    def check(self, target: str, params: Mapping[str, Any]) -> None:
        """Everything goes."""


class Lost(Homing):
    """The same, but it cannot tell where it is at home."""

    async def preferred_workers(self, leases: Sequence[Lease]) -> Sequence[str | None]:
        raise OSError("the map is lost")


@pytest.fixture
def home() -> Home:
    return Home()


class Running:
    """A worker at work."""

    def __init__(self, resources: Resources) -> None:
        self.resources, self.stop = resources, asyncio.Event()
        self.offered, self.failed = list[ExecutionsOffered](), list[StepFailed]()
        resources.events.listen(ExecutionsOffered, self.offered.append)
        resources.events.listen(StepFailed, self.failed.append)

    @property
    def name(self) -> str:
        return self.resources.name


@asynccontextmanager
async def a_worker(
    opened: Opened, home: Home, *, source: type[Homing] = Homing, affinity: str = LONG, slots: int = 4
) -> AsyncIterator[Running]:
    settings = {"execution_affinity": affinity, "scheduler_worker_pool_size": slots, "execution_lease": "60"}
    async with opened(**settings) as resources:
        running = Running(resources)
        role = WorkerRole(resources, {"test": source(resources.name, home)})
        waker = Waker(resources.upkeep, resources.queue)
        await role.announce()
        async with run_services([Service("waker", waker.step, timedelta(seconds=1))], resources.events):
            work = asyncio.create_task(role.run(running.stop))
            try:
                yield running
            finally:
                home.unblock.set()
                running.stop.set()
                await work


async def know_each_other(*workers: Running) -> None:
    await eventually(lambda: all(len(worker.resources.partition.workers) >= len(workers) for worker in workers))


async def all_done(resources: Resources, count: int) -> None:
    """Each execution ran once, and kept its item once."""

    async def check() -> bool:
        rows = await rows_of(resources, job_executions)
        assert [row["state"] for row in rows].count("done") == count, [(r["state"], r["reason"]) for r in rows]
        assert {row["attempt"] for row in rows if row["state"] == "done"} <= {1}
        return True

    await eventually(check)
    assert {row["revision"] for row in await rows_of(resources, items)} == {1}


@pytest.mark.spec("G7")
async def test_the_preferred_worker_runs_everything(opened: Opened, home: Home) -> None:
    async with a_worker(opened, home) as one, a_worker(opened, home) as two:
        home.worker = two.name
        await know_each_other(one, two)
        await given_queued(one.resources, RUNS)
        await all_done(one.resources, RUNS)
        assert home.ran == [two.name] * RUNS
        assert (one.failed, two.failed) == ([], [])


async def test_a_worker_alone_keeps_everything(opened: Opened, home: Home) -> None:
    """Also when the source still prefers a worker that is gone."""
    home.worker = "another"
    async with a_worker(opened, home) as one:
        await given_queued(one.resources, RUNS)
        await all_done(one.resources, RUNS)
        assert home.ran == [one.name] * RUNS
        assert one.offered == []


@pytest.mark.thorough
async def test_a_busy_worker_blocks_nothing(opened: Opened, home: Home) -> None:
    """Its only slot is taken, so the other worker takes what was offered to it."""
    async with a_worker(opened, home, affinity=SHORT, slots=1) as busy:
        home.worker = home.blocked = busy.name
        await given_queued(busy.resources)
        await eventually(lambda: home.ran == [busy.name])
        async with a_worker(opened, home, affinity=SHORT) as other:
            await know_each_other(busy, other)
            await given_queued(busy.resources, RUNS)
            # One more may wait in the busy worker, for a slot that it expected to be free soon.
            await eventually(lambda: home.ran.count(other.name) >= RUNS - 1)
            assert home.ran.count(busy.name) == 1
            home.unblock.set()
            await all_done(busy.resources, RUNS + 1)


async def test_a_dead_worker_blocks_nothing(opened: Opened, home: Home) -> None:
    """It counts as alive for a while; what is offered to it meanwhile is taken by the others."""
    home.worker = "dead"
    async with a_worker(opened, home, affinity=SHORT) as one:
        await one.resources.repositories.fleet.record_presence(
            "dead", role="worker", hostname="gone", pid=1, slots=4, busy=0, draining=False, ttl=timedelta(hours=1)
        )
        await eventually(lambda: "dead" in one.resources.partition.workers)
        await given_queued(one.resources, RUNS)
        await all_done(one.resources, RUNS)
        assert home.ran == [one.name] * RUNS
        assert sum(event.count for event in one.offered) == RUNS
        assert one.resources.registry.get_sample_value("floodmark_executions_offered_total") == RUNS


@pytest.mark.thorough
async def test_a_worker_that_leaves_blocks_nothing(opened: Opened, home: Home) -> None:
    """It is asked to stop, and still has an execution to finish."""
    async with a_worker(opened, home) as leaving:
        home.worker = home.blocked = leaving.name
        await given_queued(leaving.resources)
        await eventually(lambda: home.ran == [leaving.name])
        async with a_worker(opened, home) as other:
            await know_each_other(leaving, other)
            leaving.stop.set()
            await eventually(lambda: other.resources.partition.workers == {other.name})
            await given_queued(other.resources, RUNS)
            await eventually(lambda: home.ran.count(other.name) == RUNS)
            assert home.ran.count(leaving.name) == 1
            home.unblock.set()
            await all_done(other.resources, RUNS + 1)


@pytest.mark.thorough
async def test_a_source_that_cannot_tell_its_preference_is_run_anywhere(opened: Opened, home: Home) -> None:
    async with a_worker(opened, home, source=Lost) as one, a_worker(opened, home, source=Lost) as two:
        await know_each_other(one, two)
        await given_queued(one.resources, RUNS)
        await all_done(one.resources, RUNS)
        failed = one.failed + two.failed
        assert {(event.step, event.error) for event in failed} == {("affinity", "OSError: the map is lost")}


@pytest.mark.thorough
async def test_affinity_can_be_switched_off(opened: Opened, home: Home) -> None:
    async with a_worker(opened, home, affinity="0") as one, a_worker(opened, home, affinity="0") as two:
        home.worker = "nobody"
        await given_queued(one.resources, RUNS)
        await all_done(one.resources, RUNS)
        assert one.offered == two.offered == []
