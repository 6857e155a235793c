"""Jobs, executions and leases for tests: as values, or stored as the scheduler does.

`a_...` returns a value, `given_...` writes to the store, `..._of` reads from it.
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
from floodmark.store.port import FIRST_PLACE, Decision, NewExecution, Settlement
from floodmark.store.tables import job_executions, jobs, watermarks
from floodmark.wiring.resources import Resources

Opened = Callable[..., AbstractAsyncContextManager[Resources]]
"""Opens the resources of one more process on the same stores; takes settings by name, and a `clock`."""

TTL = timedelta(seconds=60)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
AT_ONCE = timedelta()

_numbers = count(1)


def a_job(**fields: Any) -> Job:
    """Return a job. It has no schedule unless `when` is given."""
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
    """Return a lease of an execution that is not in any store."""
    usual = {
        "execution_id": new_id(),
        "job": job or a_job(),
        "scheduled_for": datetime(2026, 6, 1, 12, tzinfo=UTC),
        "attempt": 1,
        "worker": "a",
        "fence": 1,
    }
    return Lease(**{**usual, **fields})


async def given_job(resources: Resources, **columns: Any) -> str:
    """Store a job and return its id. It has no schedule unless `columns` contain one."""
    name = columns.get("name", f"job-{next(_numbers)}")
    job_id = new_id()
    usual = {"job_id": job_id, "name": name, "source": "test", "target": name, "schedule_type": "event"}
    async with resources.database.writing() as connection:
        await connection.execute(insert(jobs).values(**{**usual, **columns}))
    return str(columns.get("job_id", job_id))


async def given_executions(
    resources: Resources,
    job_ids: Sequence[str],
    *,
    priority: Priority = Priority.NORMAL,
    state: State = State.QUEUED,
    trigger: str = "schedule",
    hold: Hold | None = None,
    not_before: datetime | None = None,
    put: bool = True,
) -> list[str]:
    """Fire one execution of each job, put it on the queue, and return the ids in order."""
    await change_jobs(resources, job_ids, next_run=None)
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

    fired = await resources.firing.fire(decide, limit=100_000)
    if put:
        in_order = {queued.execution_id: queued for queued in fired.queued}
        await resources.queue.put([in_order[written[job_id]] for job_id in job_ids if written[job_id] in in_order])
    return [written[job_id] for job_id in job_ids]


async def given_queued(
    resources: Resources, count: int = 1, *, priority: Priority = Priority.NORMAL, put: bool = True, **columns: Any
) -> list[str]:
    """Store this number of jobs with one queued execution each, and return the ids of the executions in order."""
    job_ids = [await given_job(resources, priority=int(priority), **columns) for _ in range(count)]
    return await given_executions(resources, job_ids, priority=priority, put=put)


async def given_lease(resources: Resources, *, worker: str = "a", ttl: timedelta = TTL, **columns: Any) -> Lease:
    """Store a job with one execution, leased by `worker`, and return the lease."""
    [execution_id] = await given_queued(resources, **columns)
    [lease] = await resources.queue.lease(1, worker=worker, ttl=ttl, wait=AT_ONCE)
    assert lease.execution_id == execution_id, "something else was waiting"
    return lease


async def take(resources: Resources, limit: int = 100, *, worker: str = "a", ttl: timedelta = TTL) -> list[Lease]:
    """Lease the queued executions."""
    return await resources.queue.lease(limit, worker=worker, ttl=ttl, wait=AT_ONCE)


async def settle(resources: Resources, lease: Lease, outcome: Outcome, *, duration: float = 0.5) -> bool:
    """Settle one lease; return whether it was still valid."""
    [was_mine] = await resources.queue.settle([Settlement(lease=lease, outcome=outcome, duration=duration)])
    return was_mine


async def expire(resources: Resources, *leases: Lease) -> None:
    """Let the leases expire, as if their workers had not renewed them."""
    async with resources.database.writing() as connection:
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


async def rescue(resources: Resources, *, rescue_max: int = 3) -> list[Queued]:
    """Run the leader's rescue step."""
    rescued = await resources.upkeep.rescue(limit=1000, rescue_max=rescue_max)
    await resources.queue.put(rescued.queued, again=True)
    return rescued.queued


async def requeue(resources: Resources) -> list[Queued]:
    """Run the leader's requeue step."""
    # From a moment ahead: what was queued just now counts, too.
    page = await resources.upkeep.queued(after=FIRST_PLACE, older_than=-timedelta(seconds=1), limit=1000)
    found = [one.queued for one in page]
    await resources.queue.put(found)
    return found


async def change_jobs(resources: Resources, job_ids: Sequence[str], **columns: Any) -> None:
    """Change columns of jobs with plain SQL."""
    async with resources.database.writing() as connection:
        await connection.execute(update(jobs).where(jobs.c.job_id.in_(job_ids)).values(**columns))


async def change_executions(resources: Resources, execution_ids: Sequence[str], **columns: Any) -> None:
    """Change columns of executions with plain SQL."""
    async with resources.database.writing() as connection:
        await connection.execute(
            update(job_executions).where(job_executions.c.execution_id.in_(execution_ids)).values(**columns)
        )


async def rows_of(resources: Resources, table: Table, **where: Any) -> list[dict[str, Any]]:
    """Return the rows of a table in order of its primary key."""
    query = select(table).where(*(table.c[name] == value for name, value in where.items()))
    async with resources.database.reading() as connection:
        found = await connection.execute(query.order_by(*table.primary_key.columns))
        return [dict(row) for row in found.mappings()]


async def count_of(resources: Resources, table: Table) -> int:
    """Return the number of rows of a table."""
    async with resources.database.reading() as connection:
        return int((await connection.execute(select(func.count()).select_from(table))).scalar_one())


async def execution_of(resources: Resources, execution: str | Lease) -> dict[str, Any]:
    """Return the row of an execution."""
    execution_id = execution if isinstance(execution, str) else execution.execution_id
    [row] = await rows_of(resources, job_executions, execution_id=execution_id)
    return row


async def state_of(resources: Resources, execution: str | Lease) -> State:
    """Return the state of an execution."""
    return State((await execution_of(resources, execution))["state"])


async def job_of(resources: Resources, job: str | Lease) -> dict[str, Any]:
    """Return the row of a job."""
    [row] = await rows_of(resources, jobs, job_id=job if isinstance(job, str) else job.job.job_id)
    return row


async def watermark_of(resources: Resources, lease: Lease) -> dict[str, Any]:
    """Return the row of the target's watermark."""
    [row] = await rows_of(resources, watermarks, stream=lease.job.stream)
    return row
