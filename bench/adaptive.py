"""A scheduler step that fires 100 adaptive jobs, beside one that fires 100 jobs of an interval, with 100,000 of each.

python run.py bench adaptive [jobs]
"""

import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from statistics import median

from sqlalchemy import delete, insert, text, update

from floodmark.rules.budgets import AHEAD
from floodmark.scheduler.scheduler import Scheduler
from floodmark.settings import Settings
from floodmark.store.tables import budget_grants, budgets, job_executions, jobs
from floodmark.wiring.resources import Resources

from ._measuring import Report, both_servers, floodmark, folder, run
from .scale import fill

FIRED, STEPS = 100, 15
# As many requests as one step fires.
INTERVAL = AHEAD.total_seconds() / (FIRED - 0.5)


async def prepare(resources: Resources, size: int) -> None:
    """Store `size` jobs of an interval and as many adaptive ones, all planned."""
    await fill(resources, 1, 2 * size)
    async with resources.database.writing() as connection:
        await connection.execute(
            text("UPDATE jobs SET schedule_type = 'adaptive', budget = 'bench' WHERE job_id > :half"),
            {"half": f"{size:032d}"},
        )
        later = datetime.now(UTC) + timedelta(days=1)
        await connection.execute(update(jobs).where(jobs.c.next_run.is_(None)).values(next_run=later))
        await connection.execute(
            insert(budgets).values(name="bench", requests=60 / INTERVAL, interval_seconds=INTERVAL, sources=size)
        )
    if resources.database.dialect == "postgresql":
        async with resources.database.engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await connection.execute(text("VACUUM ANALYZE jobs"))


async def measure(resources: Resources, size: int) -> dict[str, tuple[float, float]]:
    """Return the milliseconds of wall-clock and of CPU time of a step, by the kind of the jobs it fires."""
    scheduler = Scheduler(resources.firing, resources.queue, resources.events)
    steps: dict[str, list[tuple[float, float]]] = {"interval": [], "adaptive": []}
    ways: dict[str, Callable[[int], Awaitable[None]]] = {
        "interval": lambda number: _make_due(resources, size, number),
        "adaptive": lambda _: _free_requests(resources),
    }
    for number in range(STEPS):
        for kind, make_ready in ways.items():
            await _use_up(resources)
            await make_ready(number)
            wall, cpu = time.perf_counter(), time.process_time()
            await scheduler.step()
            steps[kind].append(((time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000))
            await _check(resources)
    return {kind: (median(wall for wall, _ in found), median(cpu for _, cpu in found)) for kind, found in steps.items()}


async def _make_due(resources: Resources, size: int, number: int) -> None:
    stride = size // FIRED
    names = [f"job-{1 + (n * stride + number) % size}" for n in range(FIRED)]
    now = datetime.now(UTC)
    async with resources.database.writing() as connection:
        await connection.execute(
            update(jobs).where(jobs.c.name.in_(names)).values(next_run=now, planned_until=None, created_at=now)
        )


async def _free_requests(resources: Resources) -> None:
    async with resources.database.writing() as connection:
        await connection.execute(update(budgets).values(next_free=datetime.now(UTC) - timedelta(hours=1)))


async def _use_up(resources: Resources) -> None:
    async with resources.database.writing() as connection:
        await connection.execute(delete(budget_grants))
        await connection.execute(delete(job_executions))
        await connection.execute(update(budgets).values(next_free=datetime.now(UTC) + timedelta(hours=1)))


async def _check(resources: Resources) -> None:
    async with resources.database.reading() as connection:
        found = (await connection.execute(text("SELECT count(*) FROM executions"))).scalar_one()
    assert found == FIRED, f"{found} jobs were fired"


async def main(size: int = 100_000) -> None:
    report = Report(f"a scheduler step that fires {FIRED} of {size:,} jobs, median of {STEPS}")
    with both_servers() as (postgres, valkey), folder() as place:
        servers = Settings(database_url=postgres.create_database("adaptive"), redis_url=valkey.url)
        embedded = Settings(database_url=f"sqlite:///{place}/adaptive.db")
        for where, settings in (("Redis + PostgreSQL", servers), ("SQLite", embedded)):
            async with floodmark(settings) as resources:
                await prepare(resources, size)
                found = await measure(resources, size)
            for number, what in enumerate(("step", "CPU of the scheduler")):
                adaptive, interval = found["adaptive"][number], found["interval"][number]
                ratio = f"{adaptive / interval:.2f}x"
                report.add(
                    f"{what}, {where}",
                    f"{adaptive:.1f} ms",
                    f"{interval:.1f} ms",
                    ratio,
                    "<= 1.3x",
                    figure=adaptive / interval,
                )
    report.print()


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    run(lambda: main(*arguments))
