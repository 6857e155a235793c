"""Time to recover after `kill -9` of a worker, of a leader and of a whole process.

python run.py bench recovery

Leases last 15 s and leadership 30 s, the defaults. "Another machine" means that the processes share no folder with lock
files, so that only the session lock of PostgreSQL shows that a process died.
"""

import asyncio
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

from sqlalchemy import text

from floodmark import Floodmark
from floodmark.repositories.jobs import Jobs
from floodmark.runtime.scheduler_role import SchedulerRole
from floodmark.settings import Settings
from floodmark.wiring.resources import Resources

from ._measuring import Report, both_servers, floodmark, folder, given_event_jobs, run

EXECUTIONS = 1_000
KILL_AFTER = 300
PATIENCE_SECONDS = 120
TARGET_SECONDS = 3

Role = Literal["up", "scheduler", "worker"]
T = TypeVar("T")


def serve(role: Role, database_url: str, redis_url: str) -> None:
    """Run a process that will be killed. It writes its name when it is up."""
    settings = Settings(database_url=database_url, redis_url=redis_url or None, port=0, worker_port=0)
    app = Floodmark(settings)

    @app.collector(name="nothing", key="id")
    async def ten_milliseconds(context: Any) -> AsyncIterator[dict[str, str]]:
        await asyncio.sleep(0.01)
        yield {"id": context.execution_id}

    @app.collector(name="long", key="id")
    async def an_hour(context: Any) -> AsyncIterator[dict[str, str]]:
        yield {"id": context.execution_id}
        await asyncio.sleep(3600)

    @app.collector(name="tick", every="1s", key="id", overlap="queue")
    async def tick(context: Any) -> AsyncIterator[dict[str, str]]:
        yield {"id": context.execution_id}

    def ready(resources: Resources, _: object) -> None:
        print(resources.name, flush=True)

    asyncio.run(app.serve(scheduler=role != "worker", worker=role != "scheduler", port=0, ready=ready))


class Process:
    """One of these processes; it is up when `started` returns."""

    def __init__(self, process: "subprocess.Popen[str]", name: str) -> None:
        self._process, self.name, self.up_at = process, name, time.monotonic()

    @classmethod
    def started(cls, role: Role, settings: Settings, temporary: Path | None = None) -> "Process":
        command = [sys.executable, "-m", "bench.recovery", role, settings.database_url, settings.redis_url or ""]
        environment = os.environ if temporary is None else {**os.environ, "TMPDIR": str(temporary)}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert process.stdout is not None
        return cls(process, process.stdout.readline().strip())

    def kill(self) -> float:
        """Kill the process and return the time of its death."""
        self._process.kill()
        self._process.wait()
        return time.monotonic()

    def end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(40)
        self._process.kill()
        self._process.wait()


class Recovery:
    """Kills processes on one kind of store, and measures the time until others continue."""

    def __init__(self, resources: Resources, place: Path, *, is_apart: bool) -> None:
        self._resources, self._place, self._is_apart = resources, place, is_apart
        self._jobs, self._processes = Jobs(resources.database, resources.clock), list[Process]()

    async def start(self, role: Role) -> Process:
        temporary = self._place / f"machine-{len(self._processes)}" if self._is_apart else None
        if temporary is not None:
            temporary.mkdir(exist_ok=True)
        process = await asyncio.to_thread(Process.started, role, self._resources.settings, temporary)
        self._processes.append(process)
        if temporary is not None:
            # Its lock file cannot be found, as on another machine.
            shutil.rmtree(temporary)
        return process

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.kill()

    async def restarted(self) -> tuple[float, float]:
        """Kill and restart `up`. Return the seconds from its start until it fires, and runs the execution again."""
        first = await self.start("up")
        await self._given_work(first)
        first.kill()
        fired = await self._ticks()
        second = await self.start("up")
        await _until(lambda: self._more_ticks(fired))
        fires = time.monotonic() - second.up_at
        await _until(lambda: self._works(second))
        works = time.monotonic() - second.up_at
        second.end()
        return fires, works

    async def succeeded(self) -> tuple[float, float]:
        """Kill a worker and a leader. Return the seconds from the kill until others run the execution, and fire."""
        leader, worker = await self.start("scheduler"), await self.start("worker")
        await self._given_work(worker)
        others = await self.start("scheduler"), await self.start("worker")
        killed = worker.kill()
        await _until(lambda: self._works(others[1]))
        works = time.monotonic() - killed
        killed = leader.kill()
        fired = await self._ticks()
        await _until(lambda: self._more_ticks(fired))
        fires = time.monotonic() - killed
        for process in others:
            process.end()
        return works, fires

    async def _given_work(self, process: Process) -> None:
        """Start an execution that takes an hour."""
        job = await self._jobs.get("long")
        # End the executions of an earlier measurement.
        await self._jobs.cancel(job)
        forced = await self._jobs.force_run(job)
        if forced.queued is not None:
            await self._resources.queue.put([forced.queued])
        await _until(lambda: self._works(process))

    async def _works(self, process: Process) -> bool:
        found = await self._value("SELECT worker FROM executions WHERE job_name = 'long' AND state = 'running'")
        return bool(found == process.name)

    async def _ticks(self) -> int:
        return int(await self._value("SELECT count(*) FROM executions WHERE job_name = 'tick'"))

    async def _more_ticks(self, than: int) -> bool:
        return await self._ticks() > than

    async def _value(self, statement: str) -> Any:
        async with self._resources.database.reading() as connection:
            return (await connection.execute(text(statement))).scalar()

    async def all_done(self) -> tuple[float, int, int]:
        """Kill a worker during many executions. Return the seconds from the restart until all are done; lost; twice."""
        for job in await given_event_jobs(self._resources, EXECUTIONS):
            forced = await self._jobs.force_run(job)
            if forced.queued is not None:
                await self._resources.queue.put([forced.queued])
        stop = asyncio.Event()
        scheduler = asyncio.create_task(SchedulerRole(self._resources).run(stop))
        first = await self.start("worker")
        await _until(lambda: self._done(KILL_AFTER))
        first.kill()
        second = await self.start("worker")
        await _until(lambda: self._done(EXECUTIONS))
        took = time.monotonic() - second.up_at
        second.end()
        stop.set()
        await scheduler
        items = int(await self._value("SELECT count(*) FROM items WHERE stream LIKE 'job-%'"))
        events = int(await self._value("SELECT count(*) FROM outbox WHERE stream LIKE 'job-%'"))
        return took, EXECUTIONS - items, events - items

    async def _done(self, count: int) -> bool:
        done = "SELECT count(*) FROM executions WHERE state = 'done' AND job_name LIKE 'job-%'"
        return int(await self._value(done)) >= count


async def _until(check: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not await check():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {PATIENCE_SECONDS} s")
        await asyncio.sleep(0.02)


async def measure(recovery: Recovery, where: str, report: Report) -> None:
    target = f"<= {TARGET_SECONDS} s"
    fires, works = await recovery.restarted()
    report.add(f"{where}: up restarted, fires", f"{fires:.1f} s after it is up", target=target, figure=fires)
    report.add(
        f"{where}: up restarted, its execution runs again", f"{works:.1f} s after it is up", target=target, figure=works
    )
    works, fires = await recovery.succeeded()
    report.add(f"{where}: worker killed beside another", f"{works:.1f} s after the kill", target=target, figure=works)
    report.add(f"{where}: leader killed beside a standby", f"{fires:.1f} s after the kill", target=target, figure=fires)
    took, missing, doubled = await recovery.all_done()
    told = f"{took:.1f} s, {missing} lost / {doubled} twice"
    figure = math.inf if missing or doubled else took
    report.add(f"{where}: {EXECUTIONS:,} executions, worker restarted", told, target=f"{target}, 0 / 0", figure=figure)


async def main() -> None:
    report = Report("kill -9: seconds until another process continues, with leases of 15 s and leadership of 30 s")
    with both_servers() as (postgres, valkey), folder() as place:
        apart = Settings(database_url=postgres.create_database("apart"), redis_url=valkey.url)
        # A separate database in Valkey, because two installations cannot share a prefix.
        second = f"{valkey.url.rpartition('/')[0]}/1"
        together = Settings(database_url=postgres.create_database("together"), redis_url=second)
        embedded = Settings(database_url=f"sqlite:///{place}/recovery.db")
        for where, settings in (
            ("SQLite", embedded),
            ("Redis + PostgreSQL", together),
            ("Redis + PostgreSQL, another machine", apart),
        ):
            async with floodmark(settings) as resources:
                recovery = Recovery(resources, place, is_apart=settings is apart)
                try:
                    await measure(recovery, where, report)
                finally:
                    recovery.close()
    report.print()


if __name__ == "__main__":
    if sys.argv[1:]:
        serve(*sys.argv[1:4])  # type: ignore[arg-type]  # one of the roles
    else:
        run(main)
