"""Memory of scheduler and worker in one process, over many executions of jobs that run every second.

python run.py bench memory [executions]
"""

import asyncio
import sys

from sqlalchemy import text

from floodmark.model.ids import new_id
from floodmark.observability.events import ExecutionSettled
from floodmark.runtime.scheduler_role import SchedulerRole
from floodmark.runtime.worker_role import WorkerRole
from floodmark.settings import Settings
from floodmark.sources.python import Collector, PythonSource
from floodmark.wiring.resources import Resources

from ._measuring import Report, both_servers, floodmark, folder, nothing, resident_megabytes, run

JOBS = 2_000
SAMPLES = 10


async def measure(resources: Resources, executions: int) -> list[float]:
    """Return the megabytes after each tenth of the executions."""
    await _given_jobs(resources)
    samples: list[float] = []
    settled, stop = 0, asyncio.Event()

    def count(_event: ExecutionSettled) -> None:
        nonlocal settled
        settled += 1
        if settled % (executions // SAMPLES) == 0:
            samples.append(resident_megabytes())
        if settled >= executions:
            stop.set()

    resources.events.listen(ExecutionSettled, count)
    sources = {"python": PythonSource({"nothing": Collector(function=nothing)})}
    await asyncio.gather(SchedulerRole(resources).run(stop), WorkerRole(resources, sources).run(stop))
    return samples[:SAMPLES]


async def _given_jobs(resources: Resources) -> None:
    rows = [{"id": new_id(), "name": f"job-{n}"} for n in range(JOBS)]
    async with resources.database.writing() as connection:
        await connection.execute(
            text(
                "INSERT INTO jobs (job_id, name, target, stream, interval_seconds)"
                " VALUES (:id, :name, 'nothing', :name, 1)"
            ),
            rows,
        )


async def main(executions: int = 200_000) -> None:
    report = Report(f"memory of one process that schedules and works, {executions:,} executions of {JOBS:,} jobs")
    with both_servers() as (postgres, valkey), folder() as place:
        servers = Settings(database_url=postgres.create_database("memory"), redis_url=valkey.url)
        embedded = Settings(database_url=f"sqlite:///{place}/memory.db")
        for where, settings in (("Redis + PostgreSQL", servers), ("SQLite", embedded)):
            async with floodmark(settings) as resources:
                samples = await measure(resources, executions)
            shown = " ".join(f"{sample:.0f}" for sample in samples)
            report.add(
                where, f"{shown} MB", f"{samples[0]:.0f} MB after a tenth", f"{samples[-1] - samples[0]:+.0f} MB"
            )
    report.print()


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    run(lambda: main(*arguments))
