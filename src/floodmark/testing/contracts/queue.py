"""The guarantees of every queue."""

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import delete

from floodmark.model.batch import Batch, Item, Kept
from floodmark.model.execution import Hold, Lease, State
from floodmark.model.job import Priority
from floodmark.model.outcome import Cancelled, Dead, Done, Outcome, Released, Retry, Snooze
from floodmark.outbound.tables import limits
from floodmark.store.port import Offer, Settlement
from floodmark.store.tables import jobs
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import (
    AT_ONCE,
    LONG_AGO,
    TTL,
    Opened,
    change_executions,
    change_jobs,
    execution_of,
    expire,
    given_executions,
    given_job,
    given_lease,
    given_queued,
    job_of,
    requeue,
    rescue,
    rows_of,
    settle,
    state_of,
    take,
    watermark_of,
)
from floodmark.wiring.resources import Resources

from .stores import StoreContract

HIGH, NORMAL, LOW = Priority.HIGH, Priority.NORMAL, Priority.LOW
MINUTE = timedelta(minutes=1)


class QueueContract(StoreContract):
    """The guarantees of every queue. Subclass it and provide `opened`, which opens the resources with your queue."""

    # Leasing

    async def test_nothing_waiting_is_an_empty_list(self, resources: Resources) -> None:
        """An empty queue returns an empty list, not an error or None."""
        assert await take(resources) == []

    async def test_each_execution_is_handed_out_once(self, resources: Resources) -> None:
        """The lease contains everything that is needed to run the execution."""
        ids = await given_queued(resources, 3, params={"depth": 2}, timeout_seconds=5)

        leases = await take(resources, worker="me")

        assert Counter(lease.execution_id for lease in leases) == Counter(ids)
        assert await take(resources) == []
        lease = leases[0]
        assert (lease.worker, lease.attempt, lease.fence, lease.watermark) == ("me", 1, 1, None)
        assert (lease.job.params, lease.job.timeout) == ({"depth": 2}, timedelta(seconds=5))
        row = await execution_of(resources, lease)
        assert (row["state"], row["worker"], row["attempt"]) == ("running", "me", 1)
        assert row["lease_until"] - row["started_at"] == pytest.approx(TTL, abs=timedelta(seconds=1))

    async def test_putting_twice_changes_nothing(self, resources: Resources) -> None:
        """The requeuer puts executions repeatedly."""
        await given_queued(resources, 2)
        await requeue(resources)
        await requeue(resources)

        assert await resources.queue.depth() == {HIGH: 0, NORMAL: 2, LOW: 0}
        assert len(await take(resources)) == 2
        assert await take(resources) == []

    async def test_putting_what_is_running_changes_nothing(self, resources: Resources) -> None:
        """A late put may name an execution that is already leased."""
        await given_queued(resources)
        late = await requeue(resources)
        [lease] = await take(resources)

        await resources.queue.put(late)

        assert await take(resources, worker="b") == []
        assert await settle(resources, lease, Done())
        assert await state_of(resources, lease) is State.DONE

    async def test_putting_nothing_is_fine(self, resources: Resources) -> None:
        """Most steps of most services find nothing to do."""
        await resources.queue.put([])
        assert await take(resources) == []

    async def test_no_more_than_the_limit_is_handed_out(self, resources: Resources) -> None:
        """The worker knows its free slots; several priorities together do not exceed the limit."""
        for priority in Priority:
            await given_queued(resources, 4, priority=priority)

        assert [len(await take(resources, 5)) for _ in range(4)] == [5, 5, 2, 0]

    @pytest.mark.spec("V2")
    async def test_the_most_urgent_goes_first(self, resources: Resources) -> None:
        """The order of puts does not matter."""
        [low] = await given_queued(resources, priority=LOW)
        [normal] = await given_queued(resources, priority=NORMAL)
        [high] = await given_queued(resources, priority=HIGH)

        assert [(await take(resources, 1))[0].execution_id for _ in range(3)] == [high, normal, low]

    @pytest.mark.spec("V2")
    async def test_a_batch_is_in_order_of_urgency(self, resources: Resources) -> None:
        """A worker starts the first lease of a batch first."""
        for priority in (LOW, NORMAL, HIGH):
            await given_queued(resources, priority=priority)

        assert [lease.job.priority for lease in await take(resources)] == [HIGH, NORMAL, LOW]

    @pytest.mark.spec("V2")
    async def test_equally_urgent_ones_go_in_the_order_they_came(self, resources: Resources) -> None:
        """Equal priorities are first come, first served."""
        ids = [(await given_queued(resources))[0] for _ in range(4)]

        assert [(await take(resources, 1))[0].execution_id for _ in range(4)] == ids

    @pytest.mark.spec("V2")
    async def test_low_is_not_starved(self, opened: Opened) -> None:
        """An execution that has waited for two steps of patience goes before a new one with high priority."""
        async with opened(queue_patience=timedelta(milliseconds=20)) as resources:
            [low] = await given_queued(resources, priority=LOW)
            came = time.monotonic()
            await eventually(lambda: time.monotonic() - came > 0.05)
            await given_queued(resources, priority=HIGH)

            [first] = await take(resources, 1)

            assert first.execution_id == low

    @pytest.mark.spec("V2", "G6")
    async def test_depth_counts_what_waits_by_priority(self, resources: Resources) -> None:
        """Leased executions do not count."""
        assert await resources.queue.depth() == {HIGH: 0, NORMAL: 0, LOW: 0}
        await given_queued(resources, 2, priority=HIGH)
        await given_queued(resources, 3, priority=LOW)
        assert await resources.queue.depth() == {HIGH: 2, NORMAL: 0, LOW: 3}

        leases = await take(resources, 5)
        assert await resources.queue.depth() == {HIGH: 0, NORMAL: 0, LOW: 0}

        await resources.queue.settle([Settlement(lease=lease, outcome=Done(), duration=0) for lease in leases])
        assert await resources.queue.depth() == {HIGH: 0, NORMAL: 0, LOW: 0}

    @pytest.mark.spec("E1", "G1")
    async def test_workers_that_ask_at_once_never_share(self, resources: Resources, other: Resources) -> None:
        """Two processes make several requests at once: each execution goes to one of them."""
        ids = await given_queued(resources, 40)
        requests = [take(p, 4, worker=f"w{n}") for n in range(6) for p in (resources, other)]

        leases = [lease for got in await asyncio.gather(*requests) for lease in got]
        leases += await take(resources) + await take(other)

        assert Counter(lease.execution_id for lease in leases) == Counter(ids)

    async def test_waiting_ends_as_soon_as_something_is_put(self, resources: Resources) -> None:
        """The wait does not last until its time-out."""
        waiting = asyncio.create_task(
            resources.queue.lease(5, worker="a", ttl=TTL, wait=timedelta(seconds=60)), name="waiting"
        )
        job_id = await given_job(resources)
        put_at = time.monotonic()
        [execution_id] = await given_executions(resources, [job_id])

        [lease] = await waiting

        assert lease.execution_id == execution_id
        # Far below the time-out, and no matter how busy the machine is.
        assert time.monotonic() - put_at < 40

    async def test_what_another_process_puts_is_handed_out(self, resources: Resources, other: Resources) -> None:
        """The scheduler and the worker may be different processes."""
        waiting = asyncio.create_task(
            resources.queue.lease(5, worker="a", ttl=TTL, wait=timedelta(seconds=3)), name="waiting"
        )
        [execution_id] = await given_queued(other)

        leases = await waiting or await eventually(lambda: take(resources))

        assert [lease.execution_id for lease in leases] == [execution_id]

    async def test_waiting_ends_without_anything(self, resources: Resources) -> None:
        """The wait ends after about the requested time."""
        began = time.monotonic()
        assert await resources.queue.lease(5, worker="a", ttl=TTL, wait=timedelta(milliseconds=30)) == []
        assert time.monotonic() - began < 60

    # Renewing and losing leases

    @pytest.mark.spec("E1", "G3")
    async def test_a_lost_lease_cannot_settle(self, resources: Resources, other: Resources) -> None:
        """A worker that stopped responding may continue, but its outcome no longer counts."""
        first = await given_lease(resources, worker="a")
        await expire(resources, first)
        assert len(await rescue(other)) == 1
        [second] = await take(other, worker="b")

        assert not await settle(resources, first, Done(kept=Kept(new=3)))
        assert await state_of(resources, first) is State.RUNNING
        assert (second.execution_id, second.fence) == (first.execution_id, first.fence + 1)
        assert await settle(other, second, Done(kept=Kept(new=5)))
        assert (await execution_of(resources, first))["items_new"] == 5

    async def test_an_outcome_counts_once(self, resources: Resources) -> None:
        """A second settlement, after a lost response, changes nothing."""
        lease = await given_lease(resources)

        assert await settle(resources, lease, Done(kept=Kept(new=3)))
        assert not await settle(resources, lease, Retry(after=MINUTE, error="late"))
        row = await execution_of(resources, lease)
        assert (row["state"], row["items_new"], row["error_message"]) == ("done", 3, None)

    async def test_many_are_settled_at_once(self, resources: Resources, other: Resources) -> None:
        """Each settlement has its own result, in the given order."""
        await given_queued(resources, 4)
        leases = await take(resources)
        await expire(resources, leases[1])
        await rescue(other)
        outcomes: list[Outcome] = [Done(), Done(), Retry(after=MINUTE, error="x"), Dead(error="y")]

        settled = await resources.queue.settle(
            [Settlement(lease=lease, outcome=o, duration=1) for lease, o in zip(leases, outcomes, strict=True)]
        )

        assert settled == [True, False, True, True]
        assert [await state_of(resources, lease) for lease in leases] == ["done", "queued", "waiting", "dead"]

    @pytest.mark.spec("E1")
    async def test_a_long_run_keeps_its_lease(self, resources: Resources, other: Resources) -> None:
        """The heartbeat renews the lease of a run that takes longer than the lease."""
        lease = await given_lease(resources, ttl=timedelta(microseconds=1))

        extended = await resources.queue.extend([lease], ttl=TTL)

        assert (extended.lost, extended.cancelled) == (frozenset(), {})
        assert await rescue(other) == []
        assert (await watermark_of(resources, lease))["lease_until"] > datetime.now(UTC)
        assert await settle(resources, lease, Done())

    @pytest.mark.spec("E1")
    async def test_a_heartbeat_tells_which_leases_are_lost(self, resources: Resources, other: Resources) -> None:
        """The worker can then stop these executions."""
        await given_queued(resources, 3)
        kept, silent, ended = await take(resources)
        await expire(resources, silent)
        await rescue(other)
        await take(other, worker="b")
        await settle(resources, ended, Done())

        extended = await resources.queue.extend([kept, silent, ended], ttl=TTL)

        assert extended.lost == {silent.execution_id, ended.execution_id}

    @pytest.mark.spec("E1")
    async def test_a_late_heartbeat_does_not_lock_the_target_again(
        self, resources: Resources, other: Resources
    ) -> None:
        """This holds for ended and for rescued executions."""
        ended, silent = await given_lease(resources), await given_lease(resources)
        await settle(resources, ended, Done())
        await expire(resources, silent)
        await rescue(other)

        await resources.queue.extend([ended, silent], ttl=TTL)

        [again] = await given_executions(other, [ended.job.job_id])
        leases = await take(other, worker="b")
        assert {lease.execution_id for lease in leases} == {silent.execution_id, again}

    @pytest.mark.spec("V8")
    async def test_a_heartbeat_tells_what_is_to_be_cancelled(self, resources: Resources) -> None:
        """A person, a replacement or the deletion of the job may cancel an execution."""
        await given_queued(resources, 3)
        kept, unwanted, orphaned = await take(resources)
        await change_executions(resources, [unwanted.execution_id], cancel_requested="cancelled by operator")
        await _delete_job(resources, orphaned.job.job_id)

        extended = await resources.queue.extend([kept, unwanted, orphaned], ttl=TTL)

        assert extended.lost == frozenset()
        assert extended.cancelled == {
            unwanted.execution_id: "cancelled by operator",
            orphaned.execution_id: "the job was deleted",
        }

    async def test_what_was_rescued_can_be_settled_only_by_its_new_holder(
        self, resources: Resources, other: Resources
    ) -> None:
        """This also holds while no worker has leased it again."""
        lease = await given_lease(resources)
        await expire(resources, lease)
        await rescue(other)

        assert not await settle(resources, lease, Done())
        assert await state_of(resources, lease) is State.QUEUED
        assert len(await take(other, worker="b")) == 1

    # Outcomes

    @pytest.mark.spec("E5", "T3")
    async def test_done_ends_it(self, resources: Resources) -> None:
        """The execution has its counts and its duration; the job records the success."""
        lease = await given_lease(resources)

        assert await settle(resources, lease, Done(kept=Kept(3, 2, 1), result={"pages": 4}), duration=2.5)

        row, job, mark = (
            await execution_of(resources, lease),
            await job_of(resources, lease),
            await watermark_of(resources, lease),
        )
        assert (row["state"], row["attempt"], row["result"]) == ("done", 1, {"pages": 4})
        assert (row["items_new"], row["items_changed"], row["items_known"]) == (3, 2, 1)
        assert row["duration_seconds"] == 2.5
        assert row["completed_at"] - row["started_at"] == pytest.approx(
            timedelta(seconds=2.5), abs=timedelta(seconds=0.5)
        )
        assert (job["last_status"], job["last_run"]) == ("done", row["started_at"])
        assert job["last_success"] == pytest.approx(row["completed_at"], abs=timedelta(seconds=1))
        assert mark["last_checked_at"] is not None
        assert mark["last_parsed_at"] is not None
        assert await take(resources) == []

    @pytest.mark.spec("T3")
    async def test_done_without_items_was_a_check_and_no_more(self, resources: Resources) -> None:
        """`last_parsed_at` moves only when items were collected."""
        lease = await given_lease(resources)
        await settle(resources, lease, Done(kept=Kept(known=7)))

        mark = await watermark_of(resources, lease)
        assert mark["last_checked_at"] is not None
        assert mark["last_parsed_at"] is None

    @pytest.mark.spec("T4", "E5")
    async def test_a_retry_waits_and_costs_an_attempt(self, resources: Resources) -> None:
        """The error is shown, and every attempt is recorded."""
        lease = await given_lease(resources)

        assert await settle(resources, lease, Retry(after=MINUTE, error="no route", details={"type": "OSError"}))

        row = await execution_of(resources, lease)
        assert (row["state"], row["attempt"], row["hold"]) == ("waiting", 1, None)
        assert row["not_before"] - datetime.now(UTC) == pytest.approx(MINUTE, abs=timedelta(seconds=10))
        assert (row["error_message"], row["reason"], row["completed_at"]) == ("no route", "no route", None)
        assert await take(resources) == []
        assert await resources.upkeep.wake(limit=10) == []

        again = await self._woken(resources, lease.execution_id)
        assert again.attempt == 2
        assert await settle(resources, again, Dead(error="still no route"))
        row = await execution_of(resources, lease)
        assert [(entry["attempt"], entry["error"]) for entry in row["error_details"]] == [
            (1, "no route"),
            (2, "still no route"),
        ]
        assert row["error_details"][0]["details"] == {"type": "OSError"}

    @pytest.mark.spec("G5", "T4")
    async def test_a_snooze_waits_and_costs_none(self, resources: Resources) -> None:
        """A rate limit is not a failure."""
        lease = await given_lease(resources)

        assert await settle(resources, lease, Snooze(after=MINUTE, reason="flood wait", kept=Kept(new=2)))

        row = await execution_of(resources, lease)
        assert (row["state"], row["attempt"], row["reason"]) == ("waiting", 0, "flood wait")
        assert (row["error_message"], row["items_new"]) == (None, 2)
        assert row["not_before"] > datetime.now(UTC)
        assert await rows_of(resources, limits) == []
        again = await self._woken(resources, lease.execution_id)
        assert again.attempt == 1

    async def test_counts_of_all_attempts_add_up(self, resources: Resources) -> None:
        """Counts, notes and durations of an interrupted run are the sum of its parts."""
        lease = await given_lease(resources)
        result = {"notes": ["half of it"]}
        await settle(
            resources, lease, Snooze(after=AT_ONCE, reason="wait", kept=Kept(2, 1, 0), result=result), duration=1.5
        )
        assert (await execution_of(resources, lease))["result"] == result
        again = await self._woken(resources, lease.execution_id)
        assert again.result == result
        await settle(resources, again, Done(kept=Kept(3, 0, 4)), duration=2.0)

        row = await execution_of(resources, lease)
        assert (row["result"], row["duration_seconds"]) == (result, 3.5)
        assert (row["items_new"], row["items_changed"], row["items_known"]) == (5, 1, 4)

    @pytest.mark.spec("G5")
    async def test_a_limit_holds_for_everything_under_its_key(self, resources: Resources, other: Resources) -> None:
        """Other executions with the same limit key are put off before they start."""
        lease = await given_lease(resources, limit_key="account:1")
        [same] = await given_queued(resources, limit_key="account:1")
        [free] = await given_queued(resources, limit_key="account:2")

        await settle(resources, lease, Snooze(after=MINUTE, reason="flood wait", key="account:1"))

        [limit] = await rows_of(resources, limits)
        assert (limit["key"], limit["reason"], limit["hits"]) == ("account:1", "flood wait", 1)
        assert [got.execution_id for got in await take(other, worker="b")] == [free]
        row = await execution_of(resources, same)
        assert (row["state"], row["reason"], row["hold"], row["attempt"]) == ("waiting", "flood wait", None, 0)
        assert row["not_before"] == limit["until"]
        assert await resources.upkeep.wake(limit=10) == []

    @pytest.mark.spec("G5")
    async def test_a_limit_is_only_ever_made_longer(self, resources: Resources) -> None:
        """A later, shorter limit does not replace the first."""
        for after in (MINUTE * 10, MINUTE):
            lease = await given_lease(resources)
            await settle(resources, lease, Snooze(after=after, reason=f"{after}", key="k"))

        [limit] = await rows_of(resources, limits)
        assert limit["until"] - datetime.now(UTC) > MINUTE * 9
        assert limit["hits"] == 2

    @pytest.mark.spec("G5")
    async def test_a_limit_counts_even_if_the_lease_was_lost(self, resources: Resources, other: Resources) -> None:
        """A rate limit applies even if its worker was replaced."""
        lease = await given_lease(resources)
        await expire(resources, lease)
        await rescue(other)

        assert not await settle(resources, lease, Snooze(after=MINUTE, reason="wait", key="k"))
        assert len(await rows_of(resources, limits)) == 1

    @pytest.mark.spec("T13")
    async def test_dead_is_for_good(self, resources: Resources) -> None:
        """The execution stays in the history with its error; the job continues."""
        lease = await given_lease(resources)

        assert await settle(resources, lease, Dead(error="no such page", kept=Kept(new=1)))

        row, job = await execution_of(resources, lease), await job_of(resources, lease)
        assert (row["state"], row["error_message"], row["items_new"]) == ("dead", "no such page", 1)
        assert row["completed_at"] is not None
        assert (job["last_status"], job["last_success"], job["paused"]) == ("dead", None, False)
        assert await take(resources) == []

    @pytest.mark.spec("T13")
    async def test_dead_can_pause_its_job(self, resources: Resources) -> None:
        """A target that no longer exists is not requested again until a person has resumed the job."""
        lease = await given_lease(resources)
        await settle(resources, lease, Dead(error="channel deleted", pause=True))

        job = await job_of(resources, lease)
        assert (job["paused"], job["pause_reason"]) == (True, "channel deleted")

    @pytest.mark.spec("T13")
    async def test_dead_can_pause_its_job_after_some_in_a_row(self, resources: Resources) -> None:
        """A successful run in between resets the count."""
        job_id = await given_job(resources)
        refused, paused = Dead(error="refused", pause=True, in_a_row=3), []
        for outcome in (refused, refused, Done(), refused, refused, refused):
            await given_executions(resources, [job_id])
            [lease] = await take(resources)
            await settle(resources, lease, outcome)
            paused.append((await job_of(resources, lease))["paused"])
        assert paused == [False, False, False, False, False, True]

    async def test_a_lost_lease_pauses_nothing(self, resources: Resources, other: Resources) -> None:
        """The outcome of a replaced worker does not count here either."""
        lease = await given_lease(resources)
        await expire(resources, lease)
        await rescue(other)
        await settle(resources, lease, Dead(error="channel deleted", pause=True))

        assert (await job_of(resources, lease))["paused"] is False

    @pytest.mark.spec("V8")
    async def test_cancelled_ends_it(self, resources: Resources) -> None:
        """Items that were stored before count."""
        lease = await given_lease(resources)
        assert await settle(resources, lease, Cancelled(reason="cancelled by operator", kept=Kept(new=4)))

        row = await execution_of(resources, lease)
        assert (row["state"], row["reason"], row["items_new"]) == ("cancelled", "cancelled by operator", 4)
        assert row["completed_at"] is not None
        assert (await job_of(resources, lease))["last_success"] is None

    @pytest.mark.spec("G7")
    async def test_released_can_be_taken_by_another_at_once(self, resources: Resources, other: Resources) -> None:
        """A release costs no attempt."""
        lease = await given_lease(resources, worker="a")

        assert await settle(resources, lease, Released(kept=Kept(new=1)))
        [again] = await take(other, worker="b")

        assert (again.execution_id, again.attempt, again.worker) == (lease.execution_id, 1, "b")
        assert (await execution_of(resources, lease))["items_new"] == 1

    async def test_an_error_text_of_any_kind_can_be_written(self, resources: Resources) -> None:
        """Errors may contain NUL bytes and lone surrogates of the source. They must not block other settlements."""
        nasty = "bad \x00 byte \ud800 and \U0001f4a5 \u202e"
        await given_queued(resources, 3)
        first, second, third = await take(resources)
        outcomes: list[Outcome] = [
            Retry(after=MINUTE, error=nasty, details={nasty: nasty}),
            Dead(error=nasty, pause=True),
            Snooze(after=MINUTE, reason=nasty, key=nasty),
        ]

        settled = await resources.queue.settle(
            [
                Settlement(lease=lease, outcome=outcome, duration=0)
                for lease, outcome in zip((first, second, third), outcomes, strict=True)
            ]
        )

        assert settled == [True, True, True]
        error = (await execution_of(resources, first))["error_message"]
        assert error.startswith("bad ")
        assert "\U0001f4a5" in error

    # One execution per stream

    @pytest.mark.spec("E1", "G3")
    async def test_settling_frees_the_target(self, resources: Resources) -> None:
        """The next execution of the same stream can start, with a newer fence."""
        job_id = await given_job(resources)
        await given_executions(resources, [job_id])
        outcomes: list[Outcome] = [
            Done(),
            Dead(error="x"),
            Cancelled(reason="x"),
            Retry(after=MINUTE, error="x"),
            Done(),
        ]
        for fence, outcome in enumerate(outcomes, start=1):
            [lease] = await take(resources)
            assert lease.fence == fence
            assert await settle(resources, lease, outcome)
            assert (await watermark_of(resources, lease))["lease_until"] is None
            await given_executions(resources, [job_id])

    @pytest.mark.spec("E1", "G3")
    async def test_two_executions_of_one_stream_are_never_leased_at_once(self, resources: Resources) -> None:
        """The second waits until the first has ended, for executions of one job or of two."""
        ids = await given_queued(resources, 2, stream="shared")

        [lease] = await take(resources)

        [waiting] = [i for i in ids if i != lease.execution_id]
        row = await execution_of(resources, waiting)
        assert (row["state"], row["hold"], row["attempt"]) == ("waiting", Hold.OVERLAP, 0)
        assert row["reason"] == "another execution is collecting shared"
        assert await resources.upkeep.wake(limit=10) == []
        await settle(resources, lease, Done())
        [after] = await take(resources)
        assert (after.execution_id, after.fence) == (waiting, lease.fence + 1)

    @pytest.mark.spec("E1", "G3")
    async def test_a_stream_has_one_holder_among_all_processes(self, resources: Resources, other: Resources) -> None:
        """Several processes ask at once for several executions of the same target."""
        await given_queued(resources, 12, stream="shared")
        requests = [take(p, 1, worker=f"w{n}") for n in range(6) for p in (resources, other)]

        leases = [lease for got in await asyncio.gather(*requests) for lease in got]

        assert len(leases) == 1

    async def test_a_lease_carries_the_watermark(self, resources: Resources) -> None:
        """The watermark is the one that the previous execution stored."""
        job_id = await given_job(resources)
        await given_executions(resources, [job_id])
        [first] = await take(resources)
        await resources.keeping.keep(first, Batch([Item("1", {})], {"value": 41}))
        await settle(resources, first, Done(kept=Kept(new=1)))
        await given_executions(resources, [job_id])

        [second] = await take(resources)

        assert second.watermark == {"value": 41}

    # Executions that must not start

    @pytest.mark.spec("V8")
    async def test_the_execution_of_a_paused_job_is_parked(self, resources: Resources) -> None:
        """It continues when the job is resumed; a manual run starts in spite of the pause."""
        job_id, forced = await given_job(resources), await given_job(resources)
        [parked] = await given_executions(resources, [job_id])
        [manual] = await given_executions(resources, [forced], trigger="manual")
        await change_jobs(resources, [job_id, forced], paused=True)

        assert [lease.execution_id for lease in await take(resources)] == [manual]

        row = await execution_of(resources, parked)
        assert (row["state"], row["hold"], row["reason"]) == ("waiting", Hold.PAUSED, "the job is paused")
        assert await resources.upkeep.wake(limit=10) == []
        await change_jobs(resources, [job_id], paused=False)
        assert (await self._woken(resources, parked)).attempt == 1

    @pytest.mark.spec("V8")
    async def test_the_execution_of_a_deleted_job_is_cancelled(self, resources: Resources) -> None:
        """There is no job to run."""
        job_id = await given_job(resources)
        [execution_id] = await given_executions(resources, [job_id])
        await _delete_job(resources, job_id)

        assert await take(resources) == []
        row = await execution_of(resources, execution_id)
        assert (row["state"], row["reason"]) == ("cancelled", "the job was deleted")
        assert row["completed_at"] is not None

    async def test_what_cannot_start_does_not_hold_up_the_rest(self, resources: Resources) -> None:
        """It is parked, so the next request does not see it."""
        for _ in range(3):
            await given_queued(resources, 2, stream="shared", priority=HIGH)
        [free] = await given_queued(resources, priority=LOW)

        got = [lease.execution_id for _ in range(7) for lease in await take(resources, 2)]

        assert free in got
        assert len(got) == 2

    # Offers to the preferred worker

    @pytest.mark.spec("T15")
    async def test_only_the_preferred_worker_gets_an_offer(self, resources: Resources, other: Resources) -> None:
        """An offer costs no attempt, and the execution is leased as if it came from the queue."""
        lease = await given_lease(resources, worker="a", params={"depth": 2})

        assert await resources.queue.offer([Offer(lease=lease, worker="b")], within=MINUTE) == [True]

        row = await execution_of(resources, lease)
        assert (row["state"], row["worker"], row["attempt"], row["lease_until"]) == ("waiting", "b", 0, None)
        assert row["reason"] == "offered to worker b, which is preferred for it"
        assert await take(other, worker="b") == []
        assert await _take_offers(other, "c") == []
        [taken] = await _take_offers(other, "b")
        assert (taken.execution_id, taken.job, taken.worker) == (lease.execution_id, lease.job, "b")
        assert (taken.attempt, taken.fence, taken.was_offered) == (1, lease.fence + 1, True)
        assert await _take_offers(other, "b") == []
        assert await settle(other, taken, Done())
        assert await state_of(resources, lease) is State.DONE
        assert await resources.queue.depth() == {HIGH: 0, NORMAL: 0, LOW: 0}

    @pytest.mark.spec("T15", "G7")
    async def test_an_offer_that_is_not_taken_goes_to_any_worker(self, resources: Resources, other: Resources) -> None:
        """The preferred worker may be dead or busy. The lease shows that it need not be offered again."""
        lease = await given_lease(resources, worker="a")
        assert not lease.was_offered
        await resources.queue.offer([Offer(lease=lease, worker="dead")], within=MINUTE)
        assert await other.upkeep.wake(limit=10) == []

        again = await self._woken(other, lease.execution_id)

        assert (again.attempt, again.was_offered) == (1, True)
        assert await _take_offers(other, "dead") == []
        assert await settle(other, again, Snooze(after=timedelta(), reason="later"))
        assert not (await self._woken(resources, lease.execution_id)).was_offered

    @pytest.mark.spec("T15", "G3")
    async def test_a_lease_that_was_offered_cannot_settle(self, resources: Resources, other: Resources) -> None:
        """Of two workers only the one that took the offer may end the execution."""
        lease = await given_lease(resources, worker="a")
        await resources.queue.offer([Offer(lease=lease, worker="b")], within=MINUTE)
        assert not await settle(resources, lease, Done())
        [taken] = await _take_offers(other, "b")

        assert not await settle(resources, lease, Done())
        assert await resources.queue.offer([Offer(lease=lease, worker="c")], within=MINUTE) == [False]
        assert await settle(other, taken, Done())

    @pytest.mark.spec("T15")
    async def test_what_is_to_be_cancelled_is_not_offered(self, resources: Resources) -> None:
        """Its worker ends it with the next heartbeat."""
        lease, free = await given_lease(resources), await given_lease(resources)
        await change_executions(resources, [lease.execution_id], cancel_requested="no longer needed")
        offers = [Offer(lease=lease, worker="b"), Offer(lease=free, worker="b")]

        assert await resources.queue.offer(offers, within=MINUTE) == [False, True]

        assert await state_of(resources, lease) is State.RUNNING
        assert (await resources.queue.extend([lease], ttl=TTL)).cancelled == {lease.execution_id: "no longer needed"}

    @pytest.mark.spec("T15", "G4")
    async def test_an_offer_waits_for_its_stream(self, resources: Resources, other: Resources) -> None:
        """Another execution of the stream may have started meanwhile."""
        lease = await given_lease(resources, worker="a", stream="shared")
        await resources.queue.offer([Offer(lease=lease, worker="b")], within=MINUTE)
        running = await given_lease(other, worker="c", stream="shared")

        assert await _take_offers(resources, "b") == []
        assert await settle(other, running, Done())
        assert [taken.execution_id for taken in await _take_offers(resources, "b")] == [lease.execution_id]

    # Lost and late puts

    @pytest.mark.spec("G2")
    async def test_a_put_that_never_happened_is_made_up_for(self, resources: Resources) -> None:
        """The scheduler may die between storing an execution and putting it on the queue."""
        ids = await given_queued(resources, 3, put=False)

        assert {queued.execution_id for queued in await requeue(resources)} == set(ids)
        assert {lease.execution_id for lease in await take(resources)} == set(ids)

    async def test_what_is_settled_stays_settled(self, resources: Resources) -> None:
        """A late put of the requeuer does not make a settled execution available again."""
        await given_queued(resources)
        late = await requeue(resources)
        [lease] = await take(resources)
        await settle(resources, lease, Done())

        await resources.queue.put(late)

        assert await take(resources) == []
        assert await state_of(resources, lease) is State.DONE
        assert await resources.queue.depth() == {HIGH: 0, NORMAL: 0, LOW: 0}

    @pytest.mark.spec("G7")
    async def test_a_worker_can_leave(self, resources: Resources, other: Resources) -> None:
        """Its remaining executions are rescued when their leases end."""
        lease = await given_lease(resources, worker="a")
        await resources.queue.leave("a")
        await resources.queue.leave("never came")

        await expire(resources, lease)
        await rescue(other)
        [again] = await take(other, worker="b")

        assert again.execution_id == lease.execution_id

    async def _woken(self, resources: Resources, execution_id: str) -> Lease:
        """Make a waiting execution due, wake it, and lease it."""
        if (await execution_of(resources, execution_id))["hold"] is None:
            await change_executions(resources, [execution_id], not_before=LONG_AGO)
        woken = await resources.upkeep.wake(limit=10)
        assert [queued.execution_id for queued in woken] == [execution_id]
        await resources.queue.put(woken)
        [lease] = await take(resources)
        assert lease.execution_id == execution_id
        return lease


async def _take_offers(resources: Resources, worker: str) -> list[Lease]:
    return await resources.queue.lease_offers(10, worker=worker, ttl=TTL, within=MINUTE)


async def _delete_job(resources: Resources, job_id: str) -> None:
    async with resources.database.writing() as connection:
        await connection.execute(delete(jobs).where(jobs.c.job_id == job_id))
