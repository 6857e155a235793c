"""Short ways to fill a database, with rows as the hot half of the store leaves them."""

from datetime import timedelta
from typing import Any

from sqlalchemy import insert, select

from floodmark.model.batch import Batch
from floodmark.model.clock import SystemClock
from floodmark.model.execution import Lease, State
from floodmark.model.ids import new_id
from floodmark.model.job import Job, ScheduleType, When
from floodmark.model.outcome import Done, Outcome
from floodmark.model.spec import JobSpec
from floodmark.repositories.jobs import Jobs
from floodmark.store.database import PostgresDatabase, SqliteDatabase
from floodmark.store.port import Event, Settlement
from floodmark.store.postgres.keeping import PostgresKeeping
from floodmark.store.postgres.leasing import PostgresLeasing
from floodmark.store.postgres.upkeep import PostgresUpkeep
from floodmark.store.sqlite.keeping import SqliteKeeping
from floodmark.store.sqlite.leasing import SqliteLeasing
from floodmark.store.sqlite.upkeep import SqliteUpkeep
from floodmark.store.tables import job_executions

AnyDatabase = PostgresDatabase | SqliteDatabase
PATIENCE = timedelta(seconds=30)
TTL = timedelta(seconds=15)


class Crew:
    """The hot half of the store, so that tests meet rows as workers leave them."""

    def __init__(self, database: AnyDatabase) -> None:
        clock = SystemClock()
        self._database = database
        if isinstance(database, PostgresDatabase):
            self.leasing: Any = PostgresLeasing(database, patience=PATIENCE)
            self.keeping: Any = PostgresKeeping(database, clock=clock)
            self.upkeep: Any = PostgresUpkeep(database, patience=PATIENCE)
        else:
            self.leasing = SqliteLeasing(database, patience=PATIENCE, clock=clock)
            self.keeping = SqliteKeeping(database, clock=clock)
            self.upkeep = SqliteUpkeep(database, patience=PATIENCE, clock=clock)

    async def start(self, jobs: Jobs, job: Job) -> Lease:
        """Force a run and take it."""
        await jobs.force_run(job)
        leases: list[Lease] = await self.leasing.claim_next(10, worker="w1", ttl=TTL)
        return next(lease for lease in leases if lease.job.job_id == job.job_id)

    async def end(self, lease: Lease, outcome: Outcome | None = None, duration: float = 2.0) -> None:
        """Write down how it went."""
        settlement = Settlement(lease=lease, outcome=outcome or Done(), duration=duration)
        assert (await self.leasing.settle([settlement])).mine == [True]

    async def run(self, jobs: Jobs, job: Job, outcome: Outcome | None = None, duration: float = 2.0) -> Lease:
        """Force a run, take it and end it."""
        lease = await self.start(jobs, job)
        await self.end(lease, outcome, duration)
        return lease

    async def collect(self, jobs: Jobs, job: Job, *batches: Batch) -> Lease:
        """A whole run that keeps these batches."""
        lease = await self.start(jobs, job)
        for batch in batches:
            await self.keeping.keep(lease, batch)
        await self.end(lease)
        return lease

    async def relay(self) -> list[Event]:
        """Number the events and return what was published."""
        published: list[Event] = []

        async def publish(events: Any) -> None:
            published.extend(events)

        await self.keeping.relay(publish, limit=1000)
        return published


def a_spec(target: str = "one", **changes: Any) -> JobSpec:
    """A job that runs every quarter of an hour."""
    when = When(schedule_type=ScheduleType.INTERVAL, interval_seconds=900)
    return JobSpec(**{"source": "python", "target": target, "when": when, **changes})


async def put_execution(database: AnyDatabase, **columns: Any) -> str:
    """A row of `executions` with these columns, whatever they are."""
    now = SystemClock().now()
    row = {
        "execution_id": new_id(),
        "job_id": "job",
        "job_name": "job",
        "scheduled_for": now,
        "state": State.DONE,
        "priority": 2,
        "completed_at": now,
        **columns,
    }
    async with database.writing() as connection:
        await connection.execute(insert(job_executions).values(**row))
    return str(row["execution_id"])


async def execution_row(database: AnyDatabase, execution_id: str) -> dict[str, Any]:
    """All columns of one execution."""
    async with database.reading() as connection:
        query = select(job_executions).where(job_executions.c.execution_id == execution_id)
        return dict((await connection.execute(query)).mappings().one())
