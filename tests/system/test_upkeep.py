"""The leader's broom and the leader itself, on SQLite and on PostgreSQL with Valkey."""

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import delete, insert, text, update

from floodmark.coordination.leader import Leader
from floodmark.coordination.leases.tables import leases
from floodmark.model.batch import Batch, Blob, Item, Kept, SitePage
from floodmark.model.execution import Hold, Lease, State
from floodmark.model.ids import floor_id, new_id
from floodmark.model.job import Priority
from floodmark.model.outcome import Dead, Done, Retry, Snooze
from floodmark.observability.events import (
    ExecutionsRequeued,
    ExecutionsRescued,
    InvalidJob,
    LeaderChanged,
    LeaderElectionAttempted,
)
from floodmark.outbound.tables import breakers, limits
from floodmark.repositories.jobs import Jobs
from floodmark.runtime.scheduler_role import SchedulerRole
from floodmark.scheduler.cleanup import Cleanup
from floodmark.scheduler.pruner import Pruner
from floodmark.scheduler.requeuer import Requeuer, Waker
from floodmark.scheduler.rescuer import Rescuer
from floodmark.scheduler.scheduler import Scheduler
from floodmark.sources.cookies.tables import blobs
from floodmark.sources.web.tables import pages as pages_table
from floodmark.store.port import FIRST_PLACE
from floodmark.store.tables import items, job_dependencies, job_executions, jobs, outbox, watermarks, workers
from floodmark.testing.contracts.sink import relay_events
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import (
    AT_ONCE,
    LONG_AGO,
    TTL,
    Opened,
    change_executions,
    change_jobs,
    count_of,
    execution_of,
    expire,
    given_executions,
    given_job,
    given_lease,
    given_queued,
    job_of,
    rows_of,
    settle,
    state_of,
    take,
)
from floodmark.wiring.resources import Resources

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("G8"), pytest.mark.every_database]

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture(params=["sqlite", "redis_on_postgres"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def resources(opened: Opened) -> AsyncIterator[Resources]:
    async with opened() as resources:
        yield resources


@pytest.fixture
async def other(opened: Opened) -> AsyncIterator[Resources]:
    """Another process."""
    async with opened() as resources:
        yield resources


def a_leader(resources: Resources, *, ttl: timedelta = TTL, name: str = "scheduler-leader") -> Leader:
    return Leader(resources.leases, resources.events, name=name, holder=resources.name, ttl=ttl)


# The rescuer


@pytest.fixture
def rescuer(resources: Resources) -> Rescuer:
    return Rescuer(resources.upkeep, resources.queue, resources.events, rescue_max=2)


@pytest.mark.spec("E1", "G2")
class TestRescuer:
    async def test_what_a_silent_worker_held_goes_back_to_the_queue(
        self, resources: Resources, rescuer: Rescuer
    ) -> None:
        """That was no failure, so it costs no attempt."""
        told: list[ExecutionsRescued] = []
        resources.events.listen(ExecutionsRescued, told.append)
        silent, alive = await given_lease(resources, worker="dead"), await given_lease(resources)
        await expire(resources, silent)

        assert await rescuer.step() is None

        row = await execution_of(resources, silent)
        assert (row["state"], row["attempt"], row["rescues"]) == ("queued", 0, 1)
        assert row["reason"] == "worker dead went silent"
        assert await state_of(resources, alive) is State.RUNNING
        assert [event.count for event in told] == [1]
        [again] = await take(resources, worker="b")
        assert (again.execution_id, again.attempt) == (silent.execution_id, 1)

    async def test_what_kills_its_worker_every_time_is_given_up(self, resources: Resources, rescuer: Rescuer) -> None:
        """After so many times without any progress; its job goes on."""
        lease = await given_lease(resources)
        for rescues in (1, 2):
            await expire(resources, lease)
            await rescuer.step()
            assert (await execution_of(resources, lease))["rescues"] == rescues
            [lease] = await take(resources)
        await expire(resources, lease)
        await rescuer.step()

        row, job = await execution_of(resources, lease), await job_of(resources, lease)
        assert (row["state"], row["error_message"]) == ("dead", "its worker died 3 times in a row without progress")
        assert row["completed_at"] is not None
        assert (job["last_status"], job["paused"]) == ("dead", False)
        assert await take(resources) == []

    async def test_progress_counts_anew(self, resources: Resources, rescuer: Rescuer) -> None:
        """A long collection on a shaky machine gets there in the end."""
        lease = await given_lease(resources)
        for number in range(6):
            if number % 2:
                await resources.keeping.keep(lease, Batch([Item(str(number), number)], {"id": number}))
            await expire(resources, lease)
            await rescuer.step()
            assert (await execution_of(resources, lease))["rescues"] == (0 if number % 2 else 1)
            [lease] = await take(resources)
        assert lease.watermark == {"id": 5}

    async def test_what_was_to_be_cancelled_is_not_run_again(self, resources: Resources, rescuer: Rescuer) -> None:
        lease = await given_lease(resources)
        await change_executions(resources, [lease.execution_id], cancel_requested="cancelled by operator")
        await expire(resources, lease)
        await rescuer.step()

        row = await execution_of(resources, lease)
        assert (row["state"], row["reason"]) == ("cancelled", "cancelled by operator")
        assert await take(resources) == []

    async def test_two_rescuers_at_once_rescue_once(self, resources: Resources, other: Resources) -> None:
        """Two leaders, for a moment."""
        await given_queued(resources, 10)
        await expire(resources, *await take(resources))

        found = await asyncio.gather(*(p.upkeep.rescue(limit=100, rescue_max=2) for p in (resources, other)))

        assert sum(len(rescued.queued) for rescued in found) == 10
        assert {row["rescues"] for row in await rows_of(resources, job_executions)} == {1}


# The waker


@pytest.fixture
def waker(resources: Resources) -> Waker:
    return Waker(resources.upkeep, resources.queue)


async def step(waker: Waker, resources: Resources, worker: str = "w") -> list[Lease]:
    """One step, and what can be leased then."""
    await waker.step()
    return await take(resources, worker=worker)


async def depends(resources: Resources, job_id: str, *needed: str) -> None:
    async with resources.database.writing() as connection:
        for depends_on in needed:
            await connection.execute(insert(job_dependencies).values(job_id=job_id, depends_on=depends_on))


class TestWaker:
    @pytest.mark.spec("T4", "G5")
    async def test_a_retry_is_woken_when_its_time_has_come(self, resources: Resources, waker: Waker) -> None:
        due, not_due = await given_lease(resources), await given_lease(resources)
        await settle(resources, due, Retry(after=AT_ONCE, error="x"))
        await settle(resources, not_due, Retry(after=HOUR, error="x"))

        [again] = await step(waker, resources)

        assert (again.execution_id, again.attempt) == (due.execution_id, 2)
        assert await state_of(resources, not_due) is State.WAITING

    @pytest.mark.spec("G5")
    async def test_a_limit_holds_until_it_is_over(self, resources: Resources, waker: Waker) -> None:
        """Those under it are woken with it, and not before."""
        told = await given_lease(resources, limit_key="account:1")
        [same] = await given_queued(resources, limit_key="account:1")
        await settle(resources, told, Snooze(after=HOUR, reason="flood wait", key="account:1"))
        assert await take(resources) == []
        assert await step(waker, resources) == []

        await change_executions(resources, [told.execution_id, same], not_before=LONG_AGO)
        # A limit that was made longer meanwhile parks them again.
        assert await step(waker, resources) == []
        assert await state_of(resources, same) is State.WAITING

        await change_executions(resources, [told.execution_id, same], not_before=LONG_AGO)
        async with resources.database.writing() as connection:
            await connection.execute(update(limits).values(until=LONG_AGO))
        assert {lease.execution_id for lease in await step(waker, resources)} == {told.execution_id, same}

    @pytest.mark.spec("E1", "E7")
    async def test_an_overlap_is_woken_when_the_target_is_free(self, resources: Resources, waker: Waker) -> None:
        held = await given_lease(resources, stream="shared")
        [waiting] = await given_queued(resources, stream="shared")
        assert await take(resources) == []
        assert await step(waker, resources) == []

        await settle(resources, held, Done())
        assert [lease.execution_id for lease in await step(waker, resources)] == [waiting]

    @pytest.mark.spec("E7")
    async def test_queued_overlaps_of_a_job_run_one_after_the_other(self, resources: Resources, waker: Waker) -> None:
        """The oldest first; a retry of an earlier one goes before later ones."""
        job_id = await given_job(resources, overlap="queue")
        [first] = await given_executions(resources, [job_id])
        [lease] = await take(resources)
        later = [
            (await given_executions(resources, [job_id], state=State.WAITING, hold=Hold.OVERLAP))[0] for _ in range(3)
        ]
        assert await step(waker, resources) == []

        await settle(resources, lease, Retry(after=HOUR, error="x"))
        assert await step(waker, resources) == []
        await change_executions(resources, [first], not_before=LONG_AGO)
        order = []
        for _ in range(4):
            [lease] = await step(waker, resources)
            order.append(lease.execution_id)
            assert await step(waker, resources) == []
            await settle(resources, lease, Done())
        assert order == [first, *later]

    @pytest.mark.spec("E7")
    async def test_the_newest_replacement_runs_when_the_replaced_ones_have_ended(
        self, resources: Resources, waker: Waker
    ) -> None:
        """Also if one of the replaced had been waiting for its own turn."""
        job_id = await given_job(resources, overlap="replace")
        await given_executions(resources, [job_id])
        [lease] = await take(resources)
        [second] = await given_executions(resources, [job_id], state=State.WAITING, hold=Hold.OVERLAP)
        await change_executions(resources, [second], state="cancelled", reason="replaced by a newer instant")
        [third] = await given_executions(resources, [job_id], state=State.WAITING, hold=Hold.OVERLAP)
        await settle(resources, lease, Done())

        assert [lease.execution_id for lease in await step(waker, resources)] == [third]

    @pytest.mark.spec("V7")
    async def test_a_dependency_is_woken_when_all_it_needs_have_succeeded(
        self, resources: Resources, waker: Waker
    ) -> None:
        """Since its own last run: each round waits for a new success."""
        first, second, job_id = [await given_job(resources) for _ in range(3)]
        await depends(resources, job_id, first, second)

        async def succeed(*needed: str) -> None:
            await given_executions(resources, needed)
            for lease in await take(resources):
                await settle(resources, lease, Done(), duration=0)

        for _ in range(2):
            [waiting] = await given_executions(resources, [job_id], state=State.WAITING, hold=Hold.DEPENDENCY)
            assert await step(waker, resources) == []
            await succeed(first)
            assert await step(waker, resources) == []
            await given_executions(resources, [second])
            [failing] = await take(resources)
            await settle(resources, failing, Dead(error="x"), duration=0)
            assert await step(waker, resources) == []
            await succeed(second)
            [lease] = await step(waker, resources)
            assert lease.execution_id == waiting
            await settle(resources, lease, Done(), duration=0)

    @pytest.mark.spec("V7", "E7")
    async def test_what_waits_for_its_turn_also_waits_for_what_it_depends_on(
        self, resources: Resources, waker: Waker
    ) -> None:
        """When the run before it has ended, that one's successes are used up."""
        needed, job_id = await given_job(resources), await given_job(resources, overlap="queue")
        await depends(resources, job_id, needed)
        await given_executions(resources, [needed])
        await settle(resources, (await take(resources))[0], Done(), duration=0)
        await given_executions(resources, [job_id])
        [running] = await take(resources)
        [queued] = await given_executions(resources, [job_id], state=State.WAITING, hold=Hold.OVERLAP)
        await settle(resources, running, Done(), duration=0)

        assert await step(waker, resources) == []
        await given_executions(resources, [needed])
        await settle(resources, (await take(resources))[0], Done(), duration=0)
        assert [lease.execution_id for lease in await step(waker, resources)] == [queued]

    @pytest.mark.spec("V8")
    async def test_a_paused_job_goes_on_when_it_is_resumed(self, resources: Resources, waker: Waker) -> None:
        job_id = await given_job(resources)
        [execution_id] = await given_executions(resources, [job_id])
        await change_jobs(resources, [job_id], paused=True)
        assert await take(resources) == []
        assert await step(waker, resources) == []

        await change_jobs(resources, [job_id], paused=False)
        assert [lease.execution_id for lease in await step(waker, resources)] == [execution_id]

    @pytest.mark.parametrize("hold", list(Hold))
    async def test_what_waits_for_a_deleted_job_is_cancelled(
        self, resources: Resources, waker: Waker, hold: Hold
    ) -> None:
        job_id = await given_job(resources)
        [execution_id] = await given_executions(resources, [job_id], state=State.WAITING, hold=hold)
        async with resources.database.writing() as connection:
            await connection.execute(delete(jobs).where(jobs.c.job_id == job_id))

        assert await step(waker, resources) == []
        assert await state_of(resources, execution_id) is State.CANCELLED

    async def test_two_wakers_at_once_wake_once(self, resources: Resources, other: Resources) -> None:
        await given_queued(resources, 10)
        for lease in await take(resources):
            await settle(resources, lease, Retry(after=AT_ONCE, error="x"))

        found = await asyncio.gather(*(p.upkeep.wake(limit=100) for p in (resources, other)))
        assert sum(map(len, found)) == 10


# The requeuer


@pytest.mark.spec("G2")
class TestRequeuer:
    async def test_what_the_queue_has_forgotten_is_put_again(self, redis_on_postgres: Opened) -> None:
        """FLUSHALL, and a page at a time the queue is whole again."""
        async with redis_on_postgres() as resources:
            told: list[ExecutionsRequeued] = []
            resources.events.listen(ExecutionsRequeued, told.append)
            ids = await given_queued(resources, 20)
            ids += await given_queued(resources, 3, priority=Priority.HIGH)
            assert resources.redis is not None
            await resources.redis.flushall()
            requeuer = Requeuer(resources.upkeep, resources.queue, resources.events, older_than=-timedelta(seconds=1))

            assert await requeuer.step() is None

            assert {lease.execution_id for lease in await take(resources)} == set(ids)
            assert [event.count for event in told] == [23]

    async def test_what_was_queued_just_now_is_left_alone(self, resources: Resources) -> None:
        """Its put may still be under way. Priority makes no difference to how long it has waited."""
        for priority in Priority:
            await given_queued(resources, priority=priority, put=False)
        assert await resources.upkeep.queued(after=FIRST_PLACE, older_than=HOUR, limit=10) == []
        assert len(await resources.upkeep.queued(after=FIRST_PLACE, older_than=-timedelta(seconds=1), limit=10)) == 3

    async def test_it_goes_round_in_pages(self, resources: Resources, monkeypatch: pytest.MonkeyPatch) -> None:
        """What the queue knew already does not count as lost."""
        monkeypatch.setattr("floodmark.scheduler.requeuer._AT_ONCE", 4)
        told: list[ExecutionsRequeued] = []
        resources.events.listen(ExecutionsRequeued, told.append)
        await given_queued(resources, 10, put=False)
        requeuer = Requeuer(resources.upkeep, resources.queue, resources.events, older_than=-timedelta(seconds=1))

        pauses = [await requeuer.step() for _ in range(4)]

        assert [event.count for event in told] == ([] if resources.redis is None else [4, 4, 2])
        assert [pause is not None for pause in pauses] == [True, True, False, True]
        assert len(await take(resources)) == 10


# The pruner


@pytest.mark.spec("E5", "G6")
class TestPruner:
    @pytest.fixture
    def pruner(self, resources: Resources) -> Pruner:
        return Pruner(resources.upkeep, history=90 * DAY, events=30 * DAY)

    async def aged(self, resources: Resources, execution_id: str, age: timedelta, state: State) -> str:
        """The same execution, as if it had been made that long ago."""
        old = floor_id(datetime.now(UTC) - age) + new_id()[12:]
        await change_executions(resources, [execution_id], execution_id=old, state=state)
        return old

    async def test_what_ended_long_ago_is_forgotten(self, resources: Resources, pruner: Pruner) -> None:
        """Whatever is unfinished stays, however old, and so does what is recent."""
        ended = (State.DONE, State.DEAD, State.CANCELLED, State.SKIPPED)
        ids = iter(await given_queued(resources, 2 * len(State), put=False))
        kept = {await self.aged(resources, next(ids), 89 * DAY, state) for state in State}
        gone = set[str]()
        for state in State:
            old = await self.aged(resources, next(ids), 91 * DAY, state)
            (gone if state in ended else kept).add(old)

        assert await pruner.step() is None

        assert {row["execution_id"] for row in await rows_of(resources, job_executions)} == kept
        assert len(gone) == 4

    async def test_the_history_is_bounded_by_count_as_well(self, resources: Resources) -> None:
        """Of what has ended only the newest stays, in portions; what is unfinished always does."""
        ids = sorted(await given_queued(resources, 12, put=False))
        await change_executions(resources, ids[1:], state=State.DONE)
        for deleted in (3, 3, 2, 0):
            assert await resources.upkeep.prune(history=90 * DAY, events=DAY, limit=3, most=3) == deleted
        assert {row["execution_id"] for row in await rows_of(resources, job_executions)} == {ids[0], *ids[-3:]}

        await Pruner(resources.upkeep, history=90 * DAY, events=DAY, most=1).step()
        assert {row["execution_id"] for row in await rows_of(resources, job_executions)} == {ids[0], ids[-1]}
        await Pruner(resources.upkeep, history=90 * DAY, events=DAY).step()
        assert await count_of(resources, job_executions) == 2

    @pytest.mark.spec("G4")
    async def test_events_are_forgotten_when_they_were_sent_long_ago(
        self, resources: Resources, pruner: Pruner
    ) -> None:
        """Never before they are sent; and the numbering goes on where it was."""
        lease = await given_lease(resources)
        await resources.keeping.keep(lease, Batch([Item(str(n), n) for n in range(5)]))
        assert [event.position for event in await relay_events(resources)] == [1, 2, 3, 4, 5]
        await resources.keeping.keep(lease, Batch([Item(str(n), n) for n in range(5, 8)]))
        async with resources.database.writing() as connection:
            await connection.execute(update(outbox).values(created_at=datetime.now(UTC) - 31 * DAY))

        await pruner.step()

        left = await rows_of(resources, outbox)
        assert [row["key"] for row in left if row["position"] is None] == ["5", "6", "7"]
        assert len([row for row in left if row["position"] is not None]) <= 1
        assert [event.position for event in await relay_events(resources)] == [6, 7, 8]

    async def test_recent_events_stay(self, resources: Resources, pruner: Pruner) -> None:
        lease = await given_lease(resources)
        await resources.keeping.keep(lease, Batch([Item(str(n), n) for n in range(5)]))
        await relay_events(resources)
        await pruner.step()
        assert await count_of(resources, outbox) == 5

    async def test_limits_and_workers_of_the_past_are_forgotten(self, resources: Resources, pruner: Pruner) -> None:
        now = datetime.now(UTC)

        def worker(name: str, seen_until: datetime) -> dict[str, Any]:
            usual = {"role": "worker", "hostname": "h", "pid": 1, "started_at": now}
            return {"worker": name, "seen_until": seen_until, **usual}

        async with resources.database.writing() as connection:
            for key, until in (("old", now - 2 * DAY), ("over", now - HOUR), ("present", now + HOUR)):
                await connection.execute(insert(limits).values(key=key, until=until, reason="x"))
                await connection.execute(insert(workers).values(**worker(key, until)))
        await pruner.step()

        assert {row["key"] for row in await rows_of(resources, limits)} == {"over", "present"}
        assert {row["worker"] for row in await rows_of(resources, workers)} == {"over", "present"}

    async def test_breakers_that_nothing_happened_to_for_a_day_are_forgotten(
        self, resources: Resources, pruner: Pruner
    ) -> None:
        now = datetime.now(UTC)
        async with resources.database.writing() as connection:
            for key, updated_at, open_until in (
                ("old", now - 2 * DAY, None),
                ("probed by nobody", now - 3 * DAY, now - 2 * DAY),
                ("open for long", now - 2 * DAY, now + DAY),
                ("present", now, None),
            ):
                row = {"key": key, "updated_at": updated_at, "open_until": open_until}
                await connection.execute(insert(breakers).values(**row))
        await pruner.step()
        assert {row["key"] for row in await rows_of(resources, breakers)} == {"open for long", "present"}


@pytest.mark.spec("V12", "E8", "G6")
async def test_what_is_left_of_crawls_and_reports_is_forgotten_in_time(resources: Resources) -> None:
    """Pages of a site that nobody crawls, when they are old; a picture stays as long as any report that has it."""
    held = {name: await given_lease(resources, name=name, stream=name) for name in ("wanted", "removed", "recent")}
    old, again = (Blob(hashlib.sha256(content).hexdigest(), "image/png", content) for content in (b"old", b"again"))
    for name, lease in held.items():
        pages = [SitePage(url=f"https://{name}.test/{n}", place=n) for n in range(3)]
        await resources.keeping.keep(lease, Batch([Item("1", name)], {"crawl": 1}, pages=pages, blobs=[old, again]))
    async with resources.database.writing() as connection:
        long_ago = datetime.now(UTC) - 100 * DAY
        await connection.execute(update(blobs).values(kept_at=long_ago))
        await connection.execute(update(watermarks).where(watermarks.c.stream != "recent").values(moved_at=long_ago))
    await resources.keeping.keep(held["recent"], Batch([Item("2", "two")], {"crawl": 2}, blobs=[again]))
    for name in ("removed", "recent"):
        jobs_ = Jobs(resources.database, resources.clock)
        await jobs_.remove(await jobs_.get(name))

    cleanup = Cleanup(resources.database, resources.clock)
    assert await cleanup.delete_unused(pages=90 * DAY, blobs=90 * DAY, limit=2) == 3
    assert await cleanup.delete_unused(pages=90 * DAY, blobs=90 * DAY, limit=2) == 1
    assert await cleanup.delete_unused(pages=90 * DAY, blobs=90 * DAY, limit=2) == 0

    assert {row["stream"] for row in await rows_of(resources, pages_table)} == {"wanted", "recent"}
    assert [row["sha256"] for row in await rows_of(resources, blobs)] == [again.sha256]
    assert await count_of(resources, items) == 4


async def test_a_picture_that_is_being_kept_again_is_not_forgotten(postgres_only: Opened) -> None:
    """Who forgets has seen it as it was before, and waits for whoever keeps it again just then."""
    picture = Blob(hashlib.sha256(b"x").hexdigest(), "image/png", b"x")
    async with postgres_only() as resources, postgres_only() as other:
        await resources.keeping.keep(
            await given_lease(resources, name="shop"), Batch([], {"crawl": 1}, blobs=[picture])
        )
        async with resources.database.writing() as connection:
            await connection.execute(update(blobs).values(kept_at=datetime.now(UTC) - 100 * DAY))

        async with resources.database.writing() as connection:
            await connection.execute(update(blobs).values(kept_at=datetime.now(UTC)))
            cleanup = Cleanup(other.database, other.clock)
            forgetting = asyncio.create_task(cleanup.delete_unused(pages=90 * DAY, blobs=90 * DAY, limit=2))
            await eventually(lambda: _is_waited_for(resources, "blobs"))

        assert await forgetting == 0
        assert await count_of(resources, blobs) == 1


async def _is_waited_for(resources: Resources, table: str) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE :like"
    async with resources.database.engine.connect() as connection:
        return bool((await connection.execute(text(query), {"like": f"%{table}%"})).scalar_one())


# The leader


async def end_lease(resources: Resources) -> None:
    """As if the holder had been silent for the whole of it."""
    async with resources.database.writing() as connection:
        await connection.execute(update(leases).values(lease_until=LONG_AGO))


@pytest.mark.spec("V6", "T6")
class TestLeader:
    async def test_there_is_one(self, resources: Resources, other: Resources) -> None:
        first, second = a_leader(resources), a_leader(other)
        assert not first.is_leader
        assert await first.step() == TTL / 3
        await second.step()

        assert (first.is_leader, second.is_leader) == (True, False)
        await first.step()
        await second.step()
        assert (first.is_leader, second.is_leader) == (True, False)

    async def test_it_is_replaced_when_its_lease_has_ended(self, resources: Resources, other: Resources) -> None:
        """And knows, once it comes back, that it is not the leader any more."""
        changes: list[LeaderChanged] = []
        resources.events.listen(LeaderChanged, changes.append)
        first, second = a_leader(resources), a_leader(other)
        await first.step()
        await end_lease(resources)
        await second.step()
        assert second.is_leader

        await first.step()

        assert not first.is_leader
        assert [(change.is_leader, change.holder) for change in changes] == [
            (True, resources.name),
            (False, other.name),
        ]

    async def test_another_takes_over_at_once_when_it_resigns(self, resources: Resources, other: Resources) -> None:
        first, second = a_leader(resources), a_leader(other)
        await first.step()
        await first.resign()
        await first.resign()
        assert not first.is_leader
        await second.step()
        assert second.is_leader

    async def test_resigning_without_being_the_leader_harms_nobody(
        self, resources: Resources, other: Resources
    ) -> None:
        first, second = a_leader(resources), a_leader(other)
        await first.step()
        await second.step()
        await second.resign()
        assert await resources.leases.holder("scheduler-leader") == resources.name

    async def test_it_falls_silent_before_another_can_begin(
        self, resources: Resources, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One that could not renew its lease acts for two thirds of it, by a clock nobody can turn back."""
        ttl = timedelta(hours=1)
        leader, monotonic = a_leader(resources, ttl=ttl), time.monotonic
        await leader.step()
        assert leader.is_leader

        later = SimpleNamespace(monotonic=lambda: monotonic() + ttl.total_seconds() * 2 / 3)
        monkeypatch.setattr("floodmark.coordination.leader.time", later)

        assert [leader.is_leader] == [False]
        assert await resources.leases.holder("scheduler-leader") == resources.name

    async def test_every_attempt_is_told_but_not_every_renewal(self, resources: Resources, other: Resources) -> None:
        told: list[bool] = []
        for p in (resources, other):
            p.events.listen(LeaderElectionAttempted, lambda event: told.append(event.won))
        first, second = a_leader(resources), a_leader(other)
        for _ in range(2):
            await first.step()
            await second.step()
        assert told == [True, False, False]


# The scheduler


@pytest.mark.spec("G1", "V6")
@pytest.mark.thorough
async def test_a_scheduler_on_standby_changes_nothing_until_it_leads(resources: Resources, other: Resources) -> None:
    """It neither fires, nor wakes, nor rescues, nor prunes; then it does all of that at once."""
    key, stop, elections = other.settings.scheduler_leader_key, asyncio.Event(), list[LeaderElectionAttempted]()
    other.events.listen(LeaderElectionAttempted, elections.append)
    await given_job(resources, schedule_type="interval", interval_seconds=3600, name="due")
    silent, waiting = await given_lease(resources, name="silent"), await given_lease(resources, name="waiting")
    await expire(resources, silent)
    await settle(resources, waiting, Retry(after=AT_ONCE, error="x"))
    [old] = await given_queued(resources)
    long_ago = floor_id(datetime.now(UTC) - 400 * DAY) + new_id()[12:]
    await change_executions(resources, [old], execution_id=long_ago, state="done")
    await resources.leases.acquire(key, holder="another", ttl=HOUR)

    async def states() -> Counter[str]:
        return Counter(row["state"] for row in await rows_of(resources, job_executions))

    before = await states()
    role = asyncio.create_task(SchedulerRole(other).run(stop))
    try:
        await eventually(lambda: len(elections) > 3)
        assert await states() == before == {"running": 1, "waiting": 1, "done": 1}

        await resources.leases.release(key, holder="another")

        async def has_done_all() -> bool:
            assert await states() == {"queued": 3}
            return True

        await eventually(has_done_all)
    finally:
        stop.set()
        await role


@pytest.mark.spec("G1", "V6")
class TestScheduler:
    async def test_a_step_says_when_something_is_due_next(self, resources: Resources) -> None:
        await given_job(resources, schedule_type="interval", interval_seconds=3600)
        pause = await Scheduler(resources.firing, resources.queue, resources.events).step()
        assert await count_of(resources, job_executions) == 1
        assert pause is not None
        assert timedelta(minutes=58) < pause <= timedelta(minutes=60)

    async def test_two_leaders_at_once_schedule_nothing_twice(self, resources: Resources, other: Resources) -> None:
        """Leadership saves work; that each instant is written once does not depend on it."""
        job_ids = [await given_job(resources, schedule_type="interval", interval_seconds=3600) for _ in range(25)]
        schedulers = [Scheduler(p.firing, p.queue, p.events) for p in (resources, other)]

        for _ in range(3):
            await asyncio.gather(*(scheduler.step() for scheduler in schedulers for _ in range(2)))

        rows = await rows_of(resources, job_executions)
        assert Counter(row["job_id"] for row in rows) == Counter(job_ids)
        assert len(await take(resources)) == 25

    async def test_a_scheduler_that_is_behind_fires_everything_once(
        self, resources: Resources, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("floodmark.scheduler.scheduler._AT_ONCE", 10)
        job_ids = [await given_job(resources, schedule_type="interval", interval_seconds=3600) for _ in range(65)]
        scheduler = Scheduler(resources.firing, resources.queue, resources.events)
        put, fails = resources.queue.put, iter([False, False, True])

        async def put_sometimes(*given: Any, **how: Any) -> int:
            if next(fails, False):
                raise ConnectionError("the queue is away")
            return await put(*given, **how)

        monkeypatch.setattr(resources.queue, "put", put_sometimes)
        failed = 0
        while True:
            try:
                if await scheduler.step() != timedelta():
                    break
            except ConnectionError:
                failed += 1

        assert failed == 1, "an error of one portion is raised as it is"
        rows = await rows_of(resources, job_executions)
        assert Counter(row["job_id"] for row in rows) == Counter(job_ids)
        assert {row["state"] for row in rows} == {"queued"}

    async def test_a_job_that_makes_no_sense_does_not_stop_the_others(self, resources: Resources) -> None:
        told: list[InvalidJob] = []
        resources.events.listen(InvalidJob, told.append)
        bad = await given_job(resources, schedule_type="cron", cron_expression="every day", name="bad")
        await given_job(resources, schedule_type="interval", interval_seconds=60)
        scheduler = Scheduler(resources.firing, resources.queue, resources.events)
        await scheduler.step()
        await scheduler.step()

        assert await count_of(resources, job_executions) == 1
        assert [event.job_name for event in told] == ["bad"]
        assert (await job_of(resources, bad))["invalid_reason"]
        await change_jobs(resources, [bad], cron_expression="* * * * *")
        await scheduler.step()
        row = await job_of(resources, bad)
        assert (row["invalid_reason"], row["next_run"] is None) == (None, False)

    @pytest.mark.spec("E7")
    async def test_a_replacement_waits_for_what_it_replaces(self, resources: Resources, waker: Waker) -> None:
        """What runs is asked to end, what waits is cancelled, and then the newest runs."""
        job_id = await given_job(resources, schedule_type="interval", interval_seconds=1, overlap="replace")
        scheduler = Scheduler(resources.firing, resources.queue, resources.events)
        await scheduler.step()
        [lease] = await take(resources)

        async def fired_again(count: int) -> bool:
            await scheduler.step()
            return await count_of(resources, job_executions) >= count

        await eventually(lambda: fired_again(2))
        await eventually(lambda: fired_again(3))

        extended = await resources.queue.extend([lease], ttl=TTL)
        assert extended.cancelled == {lease.execution_id: "replaced by a newer instant"}
        await change_jobs(resources, [job_id], schedule_enabled=False)
        rows = sorted(await rows_of(resources, job_executions), key=lambda row: row["scheduled_for"])
        assert [row["state"] for row in rows] == ["running", *["cancelled"] * (len(rows) - 2), "waiting"]
        await settle(resources, lease, Done(kept=Kept()))
        assert [lease.execution_id for lease in await step(waker, resources)] == [rows[-1]["execution_id"]]
