"""Duration and memory of a scheduler step with 100 due jobs, with 1,000 to 1,000,000 jobs in the table.

python run.py bench scale [largest]
"""

import sys
import time
from datetime import UTC, datetime, timedelta
from statistics import median

from sqlalchemy import text

from floodmark.scheduler.scheduler import Scheduler
from floodmark.settings import Settings
from floodmark.wiring.resources import Resources

from ._measuring import Report, both_servers, floodmark, folder, resident_megabytes, run

DUE, STEPS = 100, 31
_AT_ONCE = 50_000

FILL = {
    "postgresql": """
        INSERT INTO jobs (job_id, name, target, stream, interval_seconds, next_run, planned_until, created_at)
        SELECT lpad(n::text, 32, '0'), 'job-' || n, 'nothing', 'job-' || n, 86400,
               now() + interval '1 day' + n * interval '1 second', now(), now()
          FROM generate_series(CAST(:first AS int), CAST(:last AS int)) AS n
    """,
    "sqlite": """
        WITH RECURSIVE series(n) AS (SELECT :first UNION ALL SELECT n + 1 FROM series WHERE n < :last)
        INSERT INTO jobs (job_id, name, target, stream, interval_seconds, next_run, planned_until, created_at)
        SELECT printf('%032d', n), 'job-' || n, 'nothing', 'job-' || n, 86400,
               strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now', '+1 day', '+' || n || ' seconds'),
               strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now'), strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')
          FROM series
    """,
}


async def measure(resources: Resources, sizes: list[int]) -> list[tuple[int, float, float]]:
    """Return for each number of jobs the milliseconds of a step, and the memory of this process in MB."""
    scheduler = Scheduler(resources.firing, resources.queue, resources.events)
    filled, results = 0, []
    for size in sizes:
        await fill(resources, filled + 1, size)
        filled = size
        steps = [await _step(resources, scheduler, size, n) for n in range(STEPS)]
        results.append((size, median(steps), resident_megabytes()))
    return results


async def fill(resources: Resources, first: int, last: int) -> None:
    # A statement may not take longer than a few seconds.
    for start in range(first, last + 1, _AT_ONCE):
        some = {"first": start, "last": min(last, start + _AT_ONCE - 1)}
        async with resources.database.writing() as connection:
            await connection.execute(text(FILL[resources.database.dialect]), some)
    if resources.database.dialect == "postgresql":
        async with resources.database.engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await connection.execute(text("VACUUM ANALYZE jobs"))


async def _step(resources: Resources, scheduler: Scheduler, size: int, number: int) -> float:
    """Make `DUE` jobs due, spread over the table, and fire them."""
    stride = size // DUE
    names = [f"job-{1 + (n * stride + number) % size}" for n in range(DUE)]
    at = datetime.now(UTC) - timedelta(seconds=1)
    value: object = at
    if resources.database.dialect == "sqlite":
        value = at.isoformat(sep=" ", timespec="microseconds")
    async with resources.database.writing() as connection:
        await connection.execute(
            text("UPDATE jobs SET next_run = :at, planned_until = NULL, created_at = :at WHERE name = :name"),
            [{"name": name, "at": value} for name in names],
        )
    began = time.perf_counter()
    await scheduler.step()
    return (time.perf_counter() - began) * 1000


async def main(largest: int = 1_000_000) -> None:
    sizes = [size for size in (1_000, 100_000, 1_000_000) if size <= largest]
    report = Report(f"a scheduler step, {DUE} jobs due, median of {STEPS}")
    with both_servers() as (postgres, valkey), folder() as place:
        servers = Settings(database_url=postgres.create_database("scale"), redis_url=valkey.url)
        embedded = Settings(database_url=f"sqlite:///{place}/scale.db")
        for where, settings in (("Redis + PostgreSQL", servers), ("SQLite", embedded)):
            async with floodmark(settings) as resources:
                results = await measure(resources, sizes)
            _, small, memory = results[0]
            for size, step, resident in results[1:]:
                name = f"{size:,} jobs, {where}"
                report.add(
                    f"step, {name}",
                    f"{step:.1f} ms",
                    f"{small:.1f} ms at 1,000",
                    f"{step / small:.2f}x",
                    "<= 1.2x",
                    figure=step / small,
                )
                grown = f"{resident - memory:+.0f} MB"
                report.add(
                    f"memory, {name}",
                    f"{resident:.0f} MB",
                    f"{memory:.0f} MB at 1,000",
                    grown,
                    "<= +20 MB",
                    figure=resident - memory,
                )
    report.print()


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    run(lambda: main(*arguments))
