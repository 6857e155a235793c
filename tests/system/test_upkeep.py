"""The leader's broom and the leader itself, on SQLite and on PostgreSQL with Valkey."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
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
from floodmark.runtime.scheduler_role import SchedulerRole
from floodmark.scheduler.cleanup import Leftovers
from floodmark.scheduler.pruner import Pruner
from floodmark.scheduler.requeuer import Requeuer, Waker
from floodmark.scheduler.rescuer import Rescuer
from floodmark.scheduler.scheduler import Scheduler
from floodmark.sources.cookies.tables import blobs
from floodmark.sources.web.tables import pages as pages_table
from floodmark.store.jobs import Jobs
from floodmark.store.tables import items, job_dependencies, job_executions, jobs, outbox, watermarks, workers
from floodmark.testing.contracts.sink import relayed
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
pytestmark = pytest.mark.spec("G8")

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture(params=["sqlite", "redis_on_postgres"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def parts(opened: Opened) -> AsyncIterator[Resources]:
    async with opened() as parts:
        yield parts


@pytest.fixture
async def other(opened: Opened) -> AsyncIterator[Resources]:
    """Another process."""
    async with opened() as parts:
        yield parts


def a_leader(parts: Resources, *, ttl: timedelta = TTL, name: str = "scheduler-leader") -> Leader:
    return Leader(parts.leases, parts.events, name=name, holder=parts.name, ttl=ttl)


# The rescuer


@pytest.fixture
def rescuer(parts: Resources) -> Rescuer:
    return Rescuer(parts.upkeep, parts.queue, parts.events, rescue_max=2)


@pytest.mark.spec("E1", "G2")
class TestRescuer:
    async def test_what_a_silent_worker_held_goes_back_to_the_queue(self, parts: Resources, rescuer: Rescuer) -> None:
        """That was no failure, so it costs no attempt."""
        told: list[ExecutionsRescued] = []
        parts.events.listen(ExecutionsRescued, told.append)
        silent, alive = await given_lease(parts, worker="dead"), await given_lease(parts)
        await expire(parts, silent)

        assert await rescuer.step() is None

        row = await execution_of(parts, silent)
        assert (row["state"], row["attempt"], row["rescues"]) == ("queued", 0, 1)
        assert row["reason"] == "worker dead went silent"
        assert await state_of(parts, alive) is State.RUNNING
        assert [event.count for event in told] == [1]
        [again] = await take(parts, worker="b")
        assert (again.execution_id, again.attempt) == (silent.execution_id, 1)

    async def test_what_kills_its_worker_every_time_is_given_up(self, parts: Resources, rescuer: Rescuer) -> None:
        """After so many times without any progress; its job goes on."""
        lease = await given_lease(parts)
        for rescues in (1, 2):
            await expire(parts, lease)
            await rescuer.step()
            assert (await execution_of(parts, lease))["rescues"] == rescues
            [lease] = await take(parts)
        await expire(parts, lease)
        await rescuer.step()

        row, job = await execution_of(parts, lease), await job_of(parts, lease)
        assert (row["state"], row["error_message"]) == ("dead", "its worker died 3 times in a row without progress")
        assert row["completed_at"] is not None
        assert (job["last_status"], job["paused"]) == ("dead", False)
        assert await take(parts) == []

    async def test_progress_counts_anew(self, parts: Resources, rescuer: Rescuer) -> None:
        """A long collection on a shaky machine gets there in the end."""
        lease = await given_lease(parts)
        for number in range(6):
            if number % 2:
                await parts.keeping.keep(lease, Batch([Item(str(number), number)], {"id": number}))
            await expire(parts, lease)
            await rescuer.step()
            assert (await execution_of(parts, lease))["rescues"] == (0 if number % 2 else 1)
            [lease] = await take(parts)
        assert lease.watermark == {"id": 5}

    async def test_what_was_to_be_cancelled_is_not_run_again(self, parts: Resources, rescuer: Rescuer) -> None:
        lease = await given_lease(parts)
        await change_executions(parts, [lease.execution_id], cancel_requested="cancelled by operator")
        await expire(parts, lease)
        await rescuer.step()

        row = await execution_of(parts, lease)
        assert (row["state"], row["reason"]) == ("cancelled", "cancelled by operator")
        assert await take(parts) == []

    async def test_two_rescuers_at_once_rescue_once(self, parts: Resources, other: Resources) -> None:
        """Two leaders, for a moment."""
        await given_queued(parts, 10)
        await expire(parts, *await take(parts))

        found = await asyncio.gather(*(p.upkeep.rescue(limit=100, rescue_max=2) for p in (parts, other)))

        assert sum(len(rescued.queued) for rescued in found) == 10
        assert {row["rescues"] for row in await rows_of(parts, job_executions)} == {1}


# The waker


@pytest.fixture
def waker(parts: Resources) -> Waker:
    return Waker(parts.upkeep, parts.queue)


async def step(waker: Waker, parts: Resources, worker: str = "w") -> list[Lease]:
    """One step, and what can be leased then."""
    await waker.step()
    return await take(parts, worker=worker)


async def depends(parts: Resources, job_id: str, *needed: str) -> None:
    async with parts.database.writing() as connection:
        for depends_on in needed:
            await connection.execute(insert(job_dependencies).values(job_id=job_id, depends_on=depends_on))


class TestWaker:
    @pytest.mark.spec("T4", "G5")
    async def test_a_retry_is_woken_when_its_time_has_come(self, parts: Resources, waker: Waker) -> None:
        due, not_due = await given_lease(parts), await given_lease(parts)
        await settle(parts, due, Retry(after=AT_ONCE, error="x"))
        await settle(parts, not_due, Retry(after=HOUR, error="x"))

        [again] = await step(waker, parts)

        assert (again.execution_id, again.attempt) == (due.execution_id, 2)
        assert await state_of(parts, not_due) is State.WAITING

    @pytest.mark.spec("G5")
    async def test_a_limit_holds_until_it_is_over(self, parts: Resources, waker: Waker) -> None:
        """Those under it are woken with it, and not before."""
        told = await given_lease(parts, limit_key="account:1")
        [same] = await given_queued(parts, limit_key="account:1")
        await settle(parts, told, Snooze(after=HOUR, reason="flood wait", key="account:1"))
        assert await take(parts) == []
        assert await step(waker, parts) == []

        await change_executions(parts, [told.execution_id, same], not_before=LONG_AGO)
        # A limit that was made longer meanwhile parks them again.
        assert await step(waker, parts) == []
        assert await state_of(parts, same) is State.WAITING

        await change_executions(parts, [told.execution_id, same], not_before=LONG_AGO)
        async with parts.database.writing() as connection:
            await connection.execute(update(limits).values(until=LONG_AGO))
        assert {lease.execution_id for lease in await step(waker, parts)} == {told.execution_id, same}

    @pytest.mark.spec("E1", "E7")
    async def test_an_overlap_is_woken_when_the_target_is_free(self, parts: Resources, waker: Waker) -> None:
        held = await given_lease(parts, stream="shared")
        [waiting] = await given_queued(parts, stream="shared")
        assert await take(parts) == []
        assert await step(waker, parts) == []

        await settle(parts, held, Done())
        assert [lease.execution_id for lease in await step(waker, parts)] == [waiting]

    @pytest.mark.spec("E7")
    async def test_queued_overlaps_of_a_job_run_one_after_the_other(self, parts: Resources, waker: Waker) -> None:
        """The oldest first; a retry of an earlier one goes before later ones."""
        job_id = await given_job(parts, overlap="queue")
        [first] = await given_executions(parts, [job_id])
        [lease] = await take(parts)
        later = [(await given_executions(parts, [job_id], state=State.WAITING, hold=Hold.OVERLAP))[0] for _ in range(3)]
        assert await step(waker, parts) == []

        await settle(parts, lease, Retry(after=HOUR, error="x"))
        assert await step(waker, parts) == []
        await change_executions(parts, [first], not_before=LONG_AGO)
        order = []
        for _ in range(4):
            [lease] = await step(waker, parts)
            order.append(lease.execution_id)
            assert await step(waker, parts) == []
            await settle(parts, lease, Done())
        assert order == [first, *later]

    @pytest.mark.spec("E7")
    async def test_the_newest_replacement_runs_when_the_replaced_ones_have_ended(
        self, parts: Resources, waker: Waker
    ) -> None:
        """Also if one of the replaced had been waiting for its own turn."""
        job_id = await given_job(parts, overlap="replace")
        await given_executions(parts, [job_id])
        [lease] = await take(parts)
        [second] = await given_executions(parts, [job_id], state=State.WAITING, hold=Hold.OVERLAP)
        await change_executions(parts, [second], state="cancelled", reason="replaced by a newer instant")
        [third] = await given_executions(parts, [job_id], state=State.WAITING, hold=Hold.OVERLAP)
        await settle(parts, lease, Done())

        assert [lease.execution_id for lease in await step(waker, parts)] == [third]

    @pytest.mark.spec("V7")
    async def test_a_dependency_is_woken_when_all_it_needs_have_succeeded(self, parts: Resources, waker: Waker) -> None:
        """Since its own last run: each round waits for a new success."""
        first, second, job_id = [await given_job(parts) for _ in range(3)]
        await depends(parts, job_id, first, second)

        async def succeed(*needed: str) -> None:
            await given_executions(parts, needed)
            for lease in await take(parts):
                await settle(parts, lease, Done(), duration=0)

        for _ in range(2):
            [waiting] = await given_executions(parts, [job_id], state=State.WAITING, hold=Hold.DEPENDENCY)
            assert await step(waker, parts) == []
            await succeed(first)
            assert await step(waker, parts) == []
            await given_executions(parts, [second])
            [failing] = await take(parts)
            await settle(parts, failing, Dead(error="x"), duration=0)
            assert await step(waker, parts) == []
            await succeed(second)
            [lease] = await step(waker, parts)
            assert lease.execution_id == waiting
            await settle(parts, lease, Done(), duration=0)

    @pytest.mark.spec("V7", "E7")
    async def test_what_waits_for_its_turn_also_waits_for_what_it_depends_on(
        self, parts: Resources, waker: Waker
    ) -> None:
        """When the run before it has ended, that one's successes are used up."""
        needed, job_id = await given_job(parts), await given_job(parts, overlap="queue")
        await depends(parts, job_id, needed)
        await given_executions(parts, [needed])
        await settle(parts, (await take(parts))[0], Done(), duration=0)
        await given_executions(parts, [job_id])
        [running] = await take(parts)
        [queued] = await given_executions(parts, [job_id], state=State.WAITING, hold=Hold.OVERLAP)
        await settle(parts, running, Done(), duration=0)

        assert await step(waker, parts) == []
        await given_executions(parts, [needed])
        await settle(parts, (await take(parts))[0], Done(), duration=0)
        assert [lease.execution_id for lease in await step(waker, parts)] == [queued]

    @pytest.mark.spec("V8")
    async def test_a_paused_job_goes_on_when_it_is_resumed(self, parts: Resources, waker: Waker) -> None:
        job_id = await given_job(parts)
        [execution_id] = await given_executions(parts, [job_id])
        await change_jobs(parts, [job_id], paused=True)
        assert await take(parts) == []
        assert await step(waker, parts) == []

        await change_jobs(parts, [job_id], paused=False)
        assert [lease.execution_id for lease in await step(waker, parts)] == [execution_id]

    @pytest.mark.parametrize("hold", list(Hold))
    async def test_what_waits_for_a_deleted_job_is_cancelled(self, parts: Resources, waker: Waker, hold: Hold) -> None:
        job_id = await given_job(parts)
        [execution_id] = await given_executions(parts, [job_id], state=State.WAITING, hold=hold)
        async with parts.database.writing() as connection:
            await connection.execute(delete(jobs).where(jobs.c.job_id == job_id))

        assert await step(waker, parts) == []
        assert await state_of(parts, execution_id) is State.CANCELLED

    async def test_two_wakers_at_once_wake_once(self, parts: Resources, other: Resources) -> None:
        await given_queued(parts, 10)
        for lease in await take(parts):
            await settle(parts, lease, Retry(after=AT_ONCE, error="x"))

        found = await asyncio.gather(*(p.upkeep.wake(limit=100) for p in (parts, other)))
        assert sum(map(len, found)) == 10


# The requeuer


@pytest.mark.spec("G2")
class TestRequeuer:
    async def test_what_the_queue_has_forgotten_is_put_again(self, redis_on_postgres: Opened) -> None:
        """FLUSHALL, and a page at a time the queue is whole again."""
        async with redis_on_postgres() as parts:
            told: list[ExecutionsRequeued] = []
            parts.events.listen(ExecutionsRequeued, told.append)
            ids = await given_queued(parts, 20)
            ids += await given_queued(parts, 3, priority=Priority.HIGH)
            assert parts.redis is not None
            await parts.redis.flushall()
            requeuer = Requeuer(parts.upkeep, parts.queue, parts.events, older_than=-timedelta(seconds=1))

            assert await requeuer.step() is None

            assert {lease.execution_id for lease in await take(parts)} == set(ids)
            assert [event.count for event in told] == [23]

    async def test_what_was_queued_just_now_is_left_alone(self, parts: Resources) -> None:
        """Its put may still be under way. Priority makes no difference to how long it has waited."""
        for priority in Priority:
            await given_queued(parts, priority=priority, put=False)
        assert await parts.upkeep.queued(after="", older_than=HOUR, limit=10) == []
        assert len(await parts.upkeep.queued(after="", older_than=-timedelta(seconds=1), limit=10)) == 3

    async def test_it_goes_round_in_pages(self, parts: Resources, monkeypatch: pytest.MonkeyPatch) -> None:
        """What the queue knew already does not count as lost."""
        monkeypatch.setattr("floodmark.scheduler.requeuer._AT_ONCE", 4)
        told: list[ExecutionsRequeued] = []
        parts.events.listen(ExecutionsRequeued, told.append)
        await given_queued(parts, 10, put=False)
        requeuer = Requeuer(parts.upkeep, parts.queue, parts.events, older_than=-timedelta(seconds=1))

        pauses = [await requeuer.step() for _ in range(4)]

        assert [event.count for event in told] == ([] if parts.redis is None else [4, 4, 2])
        assert [pause is not None for pause in pauses] == [True, True, False, True]
        assert len(await take(parts)) == 10


# The pruner


@pytest.mark.spec("E5", "G6")
class TestPruner:
    @pytest.fixture
    def pruner(self, parts: Resources) -> Pruner:
        return Pruner(parts.upkeep, history=90 * DAY, events=30 * DAY)

    async def aged(self, parts: Resources, execution_id: str, age: timedelta, state: State) -> str:
        """The same execution, as if it had been made that long ago."""
        old = floor_id(datetime.now(UTC) - age) + new_id()[12:]
        await change_executions(parts, [execution_id], execution_id=old, state=state)
        return old

    async def test_what_ended_long_ago_is_forgotten(self, parts: Resources, pruner: Pruner) -> None:
        """Whatever is unfinished stays, however old, and so does what is recent."""
        ended = (State.DONE, State.DEAD, State.CANCELLED, State.SKIPPED)
        ids = iter(await given_queued(parts, 2 * len(State), put=False))
        kept = {await self.aged(parts, next(ids), 89 * DAY, state) for state in State}
        gone = set[str]()
        for state in State:
            old = await self.aged(parts, next(ids), 91 * DAY, state)
            (gone if state in ended else kept).add(old)

        assert await pruner.step() is None

        assert {row["execution_id"] for row in await rows_of(parts, job_executions)} == kept
        assert len(gone) == 4

    async def test_the_history_is_bounded_by_count_as_well(self, parts: Resources) -> None:
        """Of what has ended only the newest stays, in portions; what is unfinished always does."""
        ids = sorted(await given_queued(parts, 12, put=False))
        await change_executions(parts, ids[1:], state=State.DONE)
        for deleted in (3, 3, 2, 0):
            assert await parts.upkeep.prune(history=90 * DAY, events=DAY, limit=3, most=3) == deleted
        assert {row["execution_id"] for row in await rows_of(parts, job_executions)} == {ids[0], *ids[-3:]}

        await Pruner(parts.upkeep, history=90 * DAY, events=DAY, most=1).step()
        assert {row["execution_id"] for row in await rows_of(parts, job_executions)} == {ids[0], ids[-1]}
        await Pruner(parts.upkeep, history=90 * DAY, events=DAY).step()
        assert await count_of(parts, job_executions) == 2

    @pytest.mark.spec("G4")
    async def test_events_are_forgotten_when_they_were_sent_long_ago(self, parts: Resources, pruner: Pruner) -> None:
        """Never before they are sent; and the numbering goes on where it was."""
        lease = await given_lease(parts)
        await parts.keeping.keep(lease, Batch([Item(str(n), n) for n in range(5)]))
        assert [event.position for event in await relayed(parts)] == [1, 2, 3, 4, 5]
        await parts.keeping.keep(lease, Batch([Item(str(n), n) for n in range(5, 8)]))
        async with parts.database.writing() as connection:
            await connection.execute(update(outbox).values(created_at=datetime.now(UTC) - 31 * DAY))

        await pruner.step()

        left = await rows_of(parts, outbox)
        assert [row["key"] for row in left if row["position"] is None] == ["5", "6", "7"]
        assert len([row for row in left if row["position"] is not None]) <= 1
        assert [event.position for event in await relayed(parts)] == [6, 7, 8]

    async def test_recent_events_stay(self, parts: Resources, pruner: Pruner) -> None:
        lease = await given_lease(parts)
        await parts.keeping.keep(lease, Batch([Item(str(n), n) for n in range(5)]))
        await relayed(parts)
        await pruner.step()
        assert await count_of(parts, outbox) == 5

    async def test_limits_and_workers_of_the_past_are_forgotten(self, parts: Resources, pruner: Pruner) -> None:
        now = datetime.now(UTC)

        def worker(name: str, seen_until: datetime) -> dict[str, Any]:
            usual = {"role": "worker", "hostname": "h", "pid": 1, "started_at": now}
            return {"worker": name, "seen_until": seen_until, **usual}

        async with parts.database.writing() as connection:
            for key, until in (("old", now - 2 * DAY), ("over", now - HOUR), ("present", now + HOUR)):
                await connection.execute(insert(limits).values(key=key, until=until, reason="x"))
                await connection.execute(insert(workers).values(**worker(key, until)))
        await pruner.step()

        assert {row["key"] for row in await rows_of(parts, limits)} == {"over", "present"}
        assert {row["worker"] for row in await rows_of(parts, workers)} == {"over", "present"}

    async def test_breakers_that_nothing_happened_to_for_a_day_are_forgotten(
        self, parts: Resources, pruner: Pruner
    ) -> None:
        now = datetime.now(UTC)
        async with parts.database.writing() as connection:
            for key, updated_at, open_until in (
                ("old", now - 2 * DAY, None),
                ("probed by nobody", now - 3 * DAY, now - 2 * DAY),
                ("open for long", now - 2 * DAY, now + DAY),
                ("present", now, None),
            ):
                row = {"key": key, "updated_at": updated_at, "open_until": open_until}
                await connection.execute(insert(breakers).values(**row))
        await pruner.step()
        assert {row["key"] for row in await rows_of(parts, breakers)} == {"open for long", "present"}


@pytest.mark.spec("V12", "E8", "G6")
async def test_what_is_left_of_crawls_and_reports_is_forgotten_in_time(parts: Resources) -> None:
    """Pages of a site that nobody crawls, when they are old; a picture stays as long as any report that has it."""
    held = {name: await given_lease(parts, name=name, stream=name) for name in ("wanted", "removed", "recent")}
    old, again = (Blob(hashlib.sha256(content).hexdigest(), "image/png", content) for content in (b"old", b"again"))
    for name, lease in held.items():
        pages = [SitePage(url=f"https://{name}.test/{n}", place=n) for n in range(3)]
        await parts.keeping.keep(lease, Batch([Item("1", name)], {"crawl": 1}, pages=pages, blobs=[old, again]))
    async with parts.database.writing() as connection:
        long_ago = datetime.now(UTC) - 100 * DAY
        await connection.execute(update(blobs).values(kept_at=long_ago))
        await connection.execute(update(watermarks).where(watermarks.c.stream != "recent").values(moved_at=long_ago))
    await parts.keeping.keep(held["recent"], Batch([Item("2", "two")], {"crawl": 2}, blobs=[again]))
    for name in ("removed", "recent"):
        jobs_ = Jobs(parts.database, parts.clock)
        await jobs_.remove(await jobs_.get(name))

    leftovers = Leftovers(parts.database, parts.clock)
    assert await leftovers.forget(pages=90 * DAY, blobs=90 * DAY, limit=2) == 3
    assert await leftovers.forget(pages=90 * DAY, blobs=90 * DAY, limit=2) == 1
    assert await leftovers.forget(pages=90 * DAY, blobs=90 * DAY, limit=2) == 0

    assert {row["stream"] for row in await rows_of(parts, pages_table)} == {"wanted", "recent"}
    assert [row["sha256"] for row in await rows_of(parts, blobs)] == [again.sha256]
    assert await count_of(parts, items) == 4


async def test_a_picture_that_is_being_kept_again_is_not_forgotten(postgres_only: Opened) -> None:
    """Who forgets has seen it as it was before, and waits for whoever keeps it again just then."""
    picture = Blob(hashlib.sha256(b"x").hexdigest(), "image/png", b"x")
    async with postgres_only() as parts, postgres_only() as other:
        await parts.keeping.keep(await given_lease(parts, name="shop"), Batch([], {"crawl": 1}, blobs=[picture]))
        async with parts.database.writing() as connection:
            await connection.execute(update(blobs).values(kept_at=datetime.now(UTC) - 100 * DAY))

        async with parts.database.writing() as connection:
            await connection.execute(update(blobs).values(kept_at=datetime.now(UTC)))
            leftovers = Leftovers(other.database, other.clock)
            forgetting = asyncio.create_task(leftovers.forget(pages=90 * DAY, blobs=90 * DAY, limit=2))
            await eventually(lambda: _is_waited_for(parts, "blobs"))

        assert await forgetting == 0
        assert await count_of(parts, blobs) == 1


async def _is_waited_for(parts: Resources, table: str) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE :like"
    async with parts.database.engine.connect() as connection:
        return bool((await connection.execute(text(query), {"like": f"%{table}%"})).scalar_one())


# The leader


async def end_lease(parts: Resources) -> None:
    """As if the holder had been silent for the whole of it."""
    async with parts.database.writing() as connection:
        await connection.execute(update(leases).values(lease_until=LONG_AGO))


@pytest.mark.spec("V6", "T6")
class TestLeader:
    async def test_there_is_one(self, parts: Resources, other: Resources) -> None:
        first, second = a_leader(parts), a_leader(other)
        assert not first.is_leader
        assert await first.step() == TTL / 3
        await second.step()

        assert (first.is_leader, second.is_leader) == (True, False)
        await first.step()
        await second.step()
        assert (first.is_leader, second.is_leader) == (True, False)

    async def test_it_is_replaced_when_its_lease_has_ended(self, parts: Resources, other: Resources) -> None:
        """And knows, once it comes back, that it is not the leader any more."""
        changes: list[LeaderChanged] = []
        parts.events.listen(LeaderChanged, changes.append)
        first, second = a_leader(parts), a_leader(other)
        await first.step()
        await end_lease(parts)
        await second.step()
        assert second.is_leader

        await first.step()

        assert not first.is_leader
        assert [(change.is_leader, change.holder) for change in changes] == [(True, parts.name), (False, other.name)]

    async def test_another_takes_over_at_once_when_it_resigns(self, parts: Resources, other: Resources) -> None:
        first, second = a_leader(parts), a_leader(other)
        await first.step()
        await first.resign()
        await first.resign()
        assert not first.is_leader
        await second.step()
        assert second.is_leader

    async def test_resigning_without_being_the_leader_harms_nobody(self, parts: Resources, other: Resources) -> None:
        first, second = a_leader(parts), a_leader(other)
        await first.step()
        await second.step()
        await second.resign()
        assert await parts.leases.holder("scheduler-leader") == parts.name

    async def test_it_falls_silent_before_another_can_begin(self, parts: Resources) -> None:
        """One that could not renew its lease acts for two thirds of it, by a clock nobody can turn back."""
        leader = a_leader(parts, ttl=timedelta(seconds=2))
        await leader.step()
        assert leader.is_leader

        await eventually(lambda: not leader.is_leader)

        assert await parts.leases.holder("scheduler-leader") == parts.name

    async def test_every_attempt_is_told_but_not_every_renewal(self, parts: Resources, other: Resources) -> None:
        told: list[bool] = []
        for p in (parts, other):
            p.events.listen(LeaderElectionAttempted, lambda event: told.append(event.won))
        first, second = a_leader(parts), a_leader(other)
        for _ in range(2):
            await first.step()
            await second.step()
        assert told == [True, False, False]


# The scheduler


@pytest.mark.spec("G1", "V6")
async def test_a_scheduler_on_standby_changes_nothing_until_it_leads(parts: Resources, other: Resources) -> None:
    """It neither fires, nor wakes, nor rescues, nor prunes; then it does all of that at once."""
    key, stop, elections = other.settings.scheduler_leader_key, asyncio.Event(), list[LeaderElectionAttempted]()
    other.events.listen(LeaderElectionAttempted, elections.append)
    await given_job(parts, schedule_type="interval", interval_seconds=3600, name="due")
    silent, waiting = await given_lease(parts, name="silent"), await given_lease(parts, name="waiting")
    await expire(parts, silent)
    await settle(parts, waiting, Retry(after=AT_ONCE, error="x"))
    [old] = await given_queued(parts)
    long_ago = floor_id(datetime.now(UTC) - 400 * DAY) + new_id()[12:]
    await change_executions(parts, [old], execution_id=long_ago, state="done")
    await parts.leases.acquire(key, holder="another", ttl=HOUR)

    async def states() -> Counter[str]:
        return Counter(row["state"] for row in await rows_of(parts, job_executions))

    before = await states()
    role = asyncio.create_task(SchedulerRole(other).run(stop))
    try:
        await eventually(lambda: len(elections) > 3)
        assert await states() == before == {"running": 1, "waiting": 1, "done": 1}

        await parts.leases.release(key, holder="another")

        async def has_done_all() -> bool:
            assert await states() == {"queued": 3}
            return True

        await eventually(has_done_all)
    finally:
        stop.set()
        await role


@pytest.mark.spec("G1", "V6")
class TestScheduler:
    async def test_a_step_says_when_something_is_due_next(self, parts: Resources) -> None:
        await given_job(parts, schedule_type="interval", interval_seconds=60)
        pause = await Scheduler(parts.firing, parts.queue, parts.events).step()
        assert await count_of(parts, job_executions) == 1
        assert pause is not None
        assert timedelta(seconds=50) < pause <= timedelta(seconds=60)

    async def test_two_leaders_at_once_schedule_nothing_twice(self, parts: Resources, other: Resources) -> None:
        """Leadership saves work; that each instant is written once does not depend on it."""
        job_ids = [await given_job(parts, schedule_type="interval", interval_seconds=3600) for _ in range(25)]
        schedulers = [Scheduler(p.firing, p.queue, p.events) for p in (parts, other)]

        for _ in range(3):
            await asyncio.gather(*(scheduler.step() for scheduler in schedulers for _ in range(2)))

        rows = await rows_of(parts, job_executions)
        assert Counter(row["job_id"] for row in rows) == Counter(job_ids)
        assert len(await take(parts)) == 25

    async def test_a_job_that_makes_no_sense_does_not_stop_the_others(self, parts: Resources) -> None:
        told: list[InvalidJob] = []
        parts.events.listen(InvalidJob, told.append)
        bad = await given_job(parts, schedule_type="cron", cron_expression="every day", name="bad")
        await given_job(parts, schedule_type="interval", interval_seconds=60)
        scheduler = Scheduler(parts.firing, parts.queue, parts.events)
        await scheduler.step()
        await scheduler.step()

        assert await count_of(parts, job_executions) == 1
        assert [event.job_name for event in told] == ["bad"]
        assert (await job_of(parts, bad))["invalid_reason"]
        await change_jobs(parts, [bad], cron_expression="* * * * *")
        await scheduler.step()
        row = await job_of(parts, bad)
        assert (row["invalid_reason"], row["next_run"] is None) == (None, False)

    @pytest.mark.spec("E7")
    async def test_a_replacement_waits_for_what_it_replaces(self, parts: Resources, waker: Waker) -> None:
        """What runs is asked to end, what waits is cancelled, and then the newest runs."""
        job_id = await given_job(parts, schedule_type="interval", interval_seconds=1, overlap="replace")
        scheduler = Scheduler(parts.firing, parts.queue, parts.events)
        await scheduler.step()
        [lease] = await take(parts)

        async def fired_again(count: int) -> bool:
            await scheduler.step()
            return await count_of(parts, job_executions) >= count

        await eventually(lambda: fired_again(2))
        await eventually(lambda: fired_again(3))

        extended = await parts.queue.extend([lease], ttl=TTL)
        assert extended.cancelled == {lease.execution_id: "replaced by a newer instant"}
        await change_jobs(parts, [job_id], schedule_enabled=False)
        rows = sorted(await rows_of(parts, job_executions), key=lambda row: row["scheduled_for"])
        assert [row["state"] for row in rows] == ["running", *["cancelled"] * (len(rows) - 2), "waiting"]
        await settle(parts, lease, Done(kept=Kept()))
        assert [lease.execution_id for lease in await step(waker, parts)] == [rows[-1]["execution_id"]]
