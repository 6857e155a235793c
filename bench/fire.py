"""How late jobs fire, from due to queued: 1,000 due in one second, and 200 per second.

python run.py bench fire [jobs]
"""

import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy import text

from floodmark.model.ids import new_id
from floodmark.observability.events import ExecutionsEnqueued
from floodmark.runtime.scheduler_role import SchedulerRole
from floodmark.settings import Settings
from floodmark.wiring.resources import Resources

from ._measuring import Report, both_servers, floodmark, folder, percentile, run


async def lateness(resources: Resources, due: Sequence[datetime], timeout: float = 60) -> list[float]:
    """Return the milliseconds from the due time of each job until its execution is on the queue."""
    await _given_jobs(resources, due)
    late: list[float] = []
    enough, stop = asyncio.Event(), asyncio.Event()
    waiting = sorted(due)

    def enqueued(event: ExecutionsEnqueued) -> None:
        now = datetime.now(UTC)
        for _ in range(sum(event.counts.values())):
            # Jobs are fired in the order of their due times, so the next queued one is the next due one.
            late.append((now - waiting[len(late)]).total_seconds() * 1000)
        if len(late) >= len(due):
            enough.set()

    resources.events.listen(ExecutionsEnqueued, enqueued)
    role = asyncio.create_task(SchedulerRole(resources).run(stop))
    await asyncio.wait_for(enough.wait(), timeout)
    stop.set()
    await role
    return sorted(late)


async def _given_jobs(resources: Resources, due: Sequence[datetime]) -> None:
    """Create interval jobs that are already planned, each with its own first run."""
    rows = [
        {"id": new_id(), "name": f"job-{n}", "at": at, "before": at - timedelta(hours=1)} for n, at in enumerate(due)
    ]
    moment = "CAST(:{} AS timestamptz)" if resources.database.dialect == "postgresql" else ":{}"
    if resources.database.dialect == "sqlite":
        rows = [{**row, "at": _text(row["at"]), "before": _text(row["before"])} for row in rows]
    async with resources.database.writing() as connection:
        await connection.execute(
            text(
                "INSERT INTO jobs (job_id, name, target, stream, interval_seconds, next_run, planned_until, created_at)"
                f" VALUES (:id, :name, 'nothing', :name, 3600, {moment.format('at')}, {moment.format('before')},"
                f" {moment.format('before')})"
            ),
            rows,
        )


def _text(value: object) -> str:
    assert isinstance(value, datetime)
    return value.isoformat(sep=" ", timespec="microseconds")


def burst(jobs: int) -> list[datetime]:
    at = datetime.now(UTC) + timedelta(seconds=5)
    return [at + timedelta(milliseconds=n * 1000 / jobs) for n in range(jobs)]


def at_once(jobs: int) -> list[datetime]:
    at = datetime.now(UTC) + timedelta(seconds=5)
    return [at] * jobs


def spread(jobs: int) -> list[datetime]:
    at = datetime.now(UTC) + timedelta(seconds=5)
    return [at + timedelta(seconds=n / 200) for n in range(jobs)]


async def main(jobs: int = 1000) -> None:
    report = Report("from due to queued, p50 / p99")
    patterns = (("in one second", burst), ("in one instant", at_once), ("spread, 200 a second", spread))
    with both_servers() as (postgres, valkey), folder() as place:
        for number, (name, pattern) in enumerate(patterns):
            servers = Settings(database_url=postgres.create_database(f"fire{number}"), redis_url=valkey.url)
            embedded = Settings(database_url=f"sqlite:///{place}/{number}.db")
            for where, settings in (("Redis + PostgreSQL", servers), ("SQLite", embedded)):
                async with floodmark(settings) as resources:
                    late = await lateness(resources, pattern(jobs))
                shown = f"{percentile(late, 50):.0f} / {percentile(late, 99):.0f} ms"
                target = "p99 <= 100 ms" if pattern is burst else ""
                report.add(f"{jobs:,} jobs due {name}, {where}", shown, target=target, figure=percentile(late, 99))
    report.print()


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    run(lambda: main(*arguments))
