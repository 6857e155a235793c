"""kill -9 of a worker inside 1,000 executions of 10 ms, restarted at once: how long until all are done.

python run.py bench recovery
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from sqlalchemy import text

from floodmark import Floodmark
from floodmark.parts import Parts
from floodmark.roles import SchedulerRole
from floodmark.settings import Settings
from floodmark.store.jobs import Jobs

from ._measuring import Report, both_servers, floodmark, folder, given_event_jobs, run

EXECUTIONS = 1_000
KILL_AFTER = 300


def worker(database_url: str, redis_url: str) -> None:
    """What the killed process runs: every execution takes 10 ms and finds one item."""
    settings = Settings(database_url=database_url, redis_url=redis_url or None, port=0, worker_port=0)
    app = Floodmark(settings)

    @app.collector(name="nothing", key="id")
    async def ten_milliseconds(context: Any) -> AsyncIterator[dict[str, str]]:
        await asyncio.sleep(0.01)
        yield {"id": context.execution_id}

    asyncio.run(app.serve(scheduler=False, port=0))


def start(settings: Settings) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "bench.recovery", "worker", settings.database_url, settings.redis_url or ""]
    return subprocess.Popen(command)


async def measure(parts: Parts) -> tuple[float, int, int]:
    """Seconds from the kill until all are done; how many are missing; how many items are recorded twice."""
    jobs = Jobs(parts.database, parts.clock)
    for job in await given_event_jobs(parts, EXECUTIONS):
        forced = await jobs.force_run(job)
        if forced.queued is not None:
            await parts.queue.put([forced.queued])
    stop = asyncio.Event()
    scheduler = asyncio.create_task(SchedulerRole(parts).run(stop))
    first = start(parts.settings)
    await _until(parts, KILL_AFTER)
    os.kill(first.pid, signal.SIGKILL)
    killed = time.monotonic()
    first.wait()
    second = start(parts.settings)
    await _until(parts, EXECUTIONS)
    took = time.monotonic() - killed
    second.terminate()
    second.wait()
    stop.set()
    await scheduler
    async with parts.database.reading() as connection:
        items = (await connection.execute(text("SELECT count(*) FROM items"))).scalar_one()
        events = (await connection.execute(text("SELECT count(*) FROM outbox"))).scalar_one()
    return took, EXECUTIONS - items, events - items


async def _until(parts: Parts, done: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        async with parts.database.reading() as connection:
            found = await connection.execute(text("SELECT count(*) FROM executions WHERE state = 'done'"))
            if int(found.scalar_one()) >= done:
                return
        await asyncio.sleep(0.05)
    raise SystemExit(f"fewer than {done} executions were done after 120 s")


async def main() -> None:
    lease = Settings().execution_lease
    report = Report(f"kill -9 inside {EXECUTIONS:,} executions of 10 ms, lease {lease.total_seconds():.0f} s")
    with both_servers() as (postgres, valkey), folder() as place:
        servers = Settings(database_url=postgres.create_database("recovery"), redis_url=valkey.url)
        embedded = Settings(database_url=f"sqlite:///{place}/recovery.db")
        for where, settings in (("Redis + PostgreSQL", servers), ("SQLite", embedded)):
            async with floodmark(settings) as parts:
                took, missing, doubled = await measure(parts)
            target = f"<= {(lease + timedelta(seconds=5)).total_seconds():.0f} s, 0 / 0"
            report.add(where, f"{took:.1f} s, {missing} lost / {doubled} twice", target=target)
    report.print()


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        worker(*sys.argv[2:4])
    else:
        run(main)
