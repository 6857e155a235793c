"""Jobs, executions and leases for tests: as values, or written into a store the way the scheduler does it.

`a_...` makes a value, `given_...` writes into the store, `..._of` reads back what is there.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from sqlalchemy import Table, func, insert, select, update

from floodmark.model.execution import Hold, Lease, Queued, State
from floodmark.model.ids import new_id
from floodmark.model.job import NEVER, DueJob, Job, Priority, ScheduleType, When
from floodmark.model.outcome import Outcome
from floodmark.store.port import Decision, NewExecution, Settlement
from floodmark.store.tables import job_executions, jobs, watermarks
from floodmark.wiring.resources import Resources

Opened = Callable[..., AbstractAsyncContextManager[Resources]]
"""Opens the parts of one more process on the same stores; takes settings by name, and a `clock`."""

TTL = timedelta(seconds=60)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
AT_ONCE = timedelta()

_numbers = count(1)


def a_job(**fields: Any) -> Job:
    """A job as a value. It has no time of its own unless `when` gives it one."""
    name = fields.get("name", f"job-{next(_numbers)}")
    usual = {
        "job_id": new_id(),
        "name": name,
        "source": "test",
        "target": name,
        "stream": f"test:{name}",
        "when": When(schedule_type=ScheduleType.EVENT),
    }
    return Job(**{**usual, **fields})


def a_lease(job: Job | None = None, **fields: Any) -> Lease:
    """A lease as a value, of an execution that no store knows."""
    usual = {
        "execution_id": new_id(),
        "job": job or a_job(),
        "scheduled_for": datetime(2026, 6, 1, 12, tzinfo=UTC),
        "attempt": 1,
        "worker": "a",
        "fence": 1,
    }
    return Lease(**{**usual, **fields})


async def given_job(parts: Resources, **columns: Any) -> str:
    """Write a job down. It has no time of its own unless `columns` give it one; the result is its id."""
    name = columns.get("name", f"job-{next(_numbers)}")
    job_id = new_id()
    usual = {"job_id": job_id, "name": name, "source": "test", "target": name, "schedule_type": "event"}
    async with parts.database.writing() as connection:
        await connection.execute(insert(jobs).values(**{**usual, **columns}))
    return str(columns.get("job_id", job_id))


async def given_executions(
    parts: Resources,
    job_ids: Sequence[str],
    *,
    priority: Priority = Priority.NORMAL,
    state: State = State.QUEUED,
    trigger: str = "schedule",
    hold: Hold | None = None,
    not_before: datetime | None = None,
    put: bool = True,
) -> list[str]:
    """One more execution of each job, fired as the scheduler would and put on the queue; their ids, in order."""
    await change_jobs(parts, job_ids, next_run=None)
    written: dict[str, str] = {}

    def decide(due: Sequence[DueJob], now: datetime) -> list[Decision]:
        return [decision(job, now) for job in due if job.job_id in job_ids]

    def decision(job: DueJob, now: datetime) -> Decision:
        execution = NewExecution(
            execution_id=new_id(),
            # Never the same instant twice, even when the clock stands still.
            scheduled_for=now + timedelta(microseconds=next(_numbers)),
            state=state,
            priority=priority,
            trigger=trigger,
            hold=hold,
            not_before=not_before,
        )
        written[job.job_id] = execution.execution_id
        return Decision(job=job, executions=(execution,), next_run=NEVER, planned_until=now)

    fired = await parts.firing.fire(decide, limit=100_000)
    if put:
        in_order = {queued.execution_id: queued for queued in fired.queued}
        await parts.queue.put([in_order[written[job_id]] for job_id in job_ids if written[job_id] in in_order])
    return [written[job_id] for job_id in job_ids]


async def given_queued(
    parts: Resources, count: int = 1, *, priority: Priority = Priority.NORMAL, put: bool = True, **columns: Any
) -> list[str]:
    """So many jobs with one queued execution each; the ids of the executions, in order."""
    job_ids = [await given_job(parts, priority=int(priority), **columns) for _ in range(count)]
    return await given_executions(parts, job_ids, priority=priority, put=put)


async def given_lease(parts: Resources, *, worker: str = "a", ttl: timedelta = TTL, **columns: Any) -> Lease:
    """A job with one execution, in the hands of `worker`."""
    [execution_id] = await given_queued(parts, **columns)
    [lease] = await parts.queue.lease(1, worker=worker, ttl=ttl, wait=AT_ONCE)
    assert lease.execution_id == execution_id, "something else was waiting"
    return lease


async def take(parts: Resources, limit: int = 100, *, worker: str = "a", ttl: timedelta = TTL) -> list[Lease]:
    """Lease what is waiting now."""
    return await parts.queue.lease(limit, worker=worker, ttl=ttl, wait=AT_ONCE)


async def settle(parts: Resources, lease: Lease, outcome: Outcome, *, duration: float = 0.5) -> bool:
    """Close one lease; whether it was still ours."""
    [was_mine] = await parts.queue.settle([Settlement(lease=lease, outcome=outcome, duration=duration)])
    return was_mine


async def expire(parts: Resources, *leases: Lease) -> None:
    """Let the leases run out, as if their workers had been silent for long."""
    async with parts.database.writing() as connection:
        await connection.execute(
            update(job_executions)
            .where(job_executions.c.execution_id.in_([lease.execution_id for lease in leases]))
            .values(lease_until=LONG_AGO)
        )
        await connection.execute(
            update(watermarks)
            .where(watermarks.c.stream.in_([lease.job.stream for lease in leases]))
            .values(lease_until=LONG_AGO)
        )


async def rescue(parts: Resources, *, rescue_max: int = 3) -> list[Queued]:
    """What the leader does about silent workers."""
    rescued = await parts.upkeep.rescue(limit=1000, rescue_max=rescue_max)
    await parts.queue.put(rescued.queued, again=True)
    return rescued.queued


async def requeue(parts: Resources) -> list[Queued]:
    """What the leader does about a queue that may have forgotten something."""
    # From a moment ahead: what was queued just now counts, too.
    page = await parts.upkeep.queued(after="", older_than=-timedelta(seconds=1), limit=1000)
    await parts.queue.put(page)
    return page


async def change_jobs(parts: Resources, job_ids: Sequence[str], **columns: Any) -> None:
    """Change columns of jobs as SQL typed by hand would."""
    async with parts.database.writing() as connection:
        await connection.execute(update(jobs).where(jobs.c.job_id.in_(job_ids)).values(**columns))


async def change_executions(parts: Resources, execution_ids: Sequence[str], **columns: Any) -> None:
    """Change columns of executions as SQL typed by hand would."""
    async with parts.database.writing() as connection:
        await connection.execute(
            update(job_executions).where(job_executions.c.execution_id.in_(execution_ids)).values(**columns)
        )


async def rows_of(parts: Resources, table: Table, **where: Any) -> list[dict[str, Any]]:
    """The rows of a table, in the order of its primary key."""
    query = select(table).where(*(table.c[name] == value for name, value in where.items()))
    async with parts.database.reading() as connection:
        found = await connection.execute(query.order_by(*table.primary_key.columns))
        return [dict(row) for row in found.mappings()]


async def count_of(parts: Resources, table: Table) -> int:
    """How many rows a table has."""
    async with parts.database.reading() as connection:
        return int((await connection.execute(select(func.count()).select_from(table))).scalar_one())


async def execution_of(parts: Resources, execution: str | Lease) -> dict[str, Any]:
    """The row of an execution."""
    execution_id = execution if isinstance(execution, str) else execution.execution_id
    [row] = await rows_of(parts, job_executions, execution_id=execution_id)
    return row


async def state_of(parts: Resources, execution: str | Lease) -> State:
    """Where an execution stands."""
    return State((await execution_of(parts, execution))["state"])


async def job_of(parts: Resources, job: str | Lease) -> dict[str, Any]:
    """The row of a job."""
    [row] = await rows_of(parts, jobs, job_id=job if isinstance(job, str) else job.job.job_id)
    return row


async def watermark_of(parts: Resources, lease: Lease) -> dict[str, Any]:
    """The row of the target's watermark."""
    [row] = await rows_of(parts, watermarks, stream=lease.job.stream)
    return row
