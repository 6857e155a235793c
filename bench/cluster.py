"""Several worker processes and two schedulers on one PostgreSQL: executions per second, and where the CPU time goes.

python run.py bench cluster [executions] [rounds]

All processes share the cores of this machine with the servers, so the rate shows what these cores carry, and the CPU
time per execution what larger machines would. As root on Linux, workers also run on three hosts: network namespaces
that reach PostgreSQL through a proxy.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count as numbers
from pathlib import Path
from statistics import median
from typing import Any, Literal

from msgspec import Struct
from sqlalchemy import text

from faulty_proxy import FaultyProxy
from floodmark import Floodmark
from floodmark.settings import Settings
from floodmark.wiring.resources import Resources
from hosts import Hosts

from ._executions import given_jobs
from ._measuring import Report, both_servers, floodmark, nothing, ratio, run, server_cpu

WORKERS, SCHEDULERS, HOSTS = (1, 2, 4, 8), 2, 3
PATIENCE_SECONDS = 180
_TICKS = 100

Role = Literal["scheduler", "worker"]


class Load(Struct, frozen=True):
    """One measurement: the rate of executions, and the CPU seconds of each of them."""

    rate: float
    worker: float
    scheduler: float
    server: float


def serve(role: Role, database_url: str, redis_url: str) -> None:
    """Run one process of the cluster. It prints a line when it is up."""
    app = Floodmark(Settings(database_url=database_url, redis_url=redis_url or None, port=0, worker_port=0))
    app.collector(name="nothing")(nothing)

    def ready(resources: Resources, _: object) -> None:
        print(resources.name, flush=True)

    asyncio.run(app.serve(scheduler=role == "scheduler", worker=role == "worker", port=0, ready=ready))


class Cluster:
    """Running processes. `reach`: the database URL of workers. `hosts`: the network namespaces that they run in."""

    def __init__(self, settings: Settings, *, reach: str, hosts: Sequence[str]) -> None:
        self._settings, self._reach, self._hosts = settings, reach, hosts
        self._processes: dict[Role, list[subprocess.Popen[str]]] = {"scheduler": [], "worker": []}

    def start(self, role: Role, count: int) -> None:
        """Start processes, and wait until they are up."""
        database = self._reach if role == "worker" else self._settings.database_url
        command = [sys.executable, "-m", "bench.cluster", role, database, self._settings.redis_url or ""]
        enter = [["ip", "netns", "exec", name] for name in self._hosts] if role == "worker" else []
        commands = [[*enter[number % len(enter)], *command] if enter else command for number in range(count)]
        started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
        self._processes[role] += started
        for process in started:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise SystemExit(f"a {role} did not start")

    def cpu(self, role: Role) -> float:
        """Return the CPU seconds of all processes of a role so far."""
        return sum(_cpu_seconds(process.pid) for process in self._processes[role])

    @contextmanager
    def without_schedulers(self) -> Iterator[None]:
        """Suspend the schedulers during the block."""
        for process in self._processes["scheduler"]:
            process.send_signal(signal.SIGSTOP)
        yield
        for process in self._processes["scheduler"]:
            process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End all processes."""
        processes = [process for some in self._processes.values() for process in some]
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@contextmanager
def _running(settings: Settings, workers: int, hosts: Hosts | None) -> Iterator[Cluster]:
    with ExitStack() as stack:
        reach = settings.database_url
        if hosts is not None:
            reach = stack.enter_context(FaultyProxy(reach, host=hosts.address("sql"))).url
        cluster = Cluster(settings, reach=reach, hosts=() if hosts is None else hosts.names)
        stack.callback(cluster.stop)
        cluster.start("scheduler", SCHEDULERS)
        cluster.start("worker", workers)
        yield cluster


async def measure(
    settings: Settings, workers: int, executions: int, server: int | None, hosts: Hosts | None = None
) -> Load:
    """Let a cluster run jobs that are all due at once."""
    async with floodmark(settings) as resources:
        if resources.redis is not None:
            # Two installations cannot share a prefix.
            await resources.redis.flushall()
        with _running(settings, workers, hosts) as cluster:

            def used() -> tuple[float, float, float]:
                return cluster.cpu("worker"), cluster.cpu("scheduler"), server_cpu(server)

            # The first executions of a process connect to the servers and plan statements.
            for count in (500, executions):
                with cluster.without_schedulers():
                    await _execute(resources, "DELETE FROM executions")
                    await _execute(resources, "DELETE FROM jobs")
                    await given_jobs(resources, count)
                    before = used()
                took = await _wait_until_done(resources, count)
            after = used()
    costs = ((late - early) / executions for early, late in zip(before, after, strict=True))
    return Load(executions / took, *costs)


async def _wait_until_done(resources: Resources, count: int) -> float:
    """Return the seconds until all executions are done."""
    began = time.monotonic()
    done = "SELECT count(*) FROM executions WHERE state = 'done'"
    while (found := await _execute(resources, done)) < count:
        if time.monotonic() > began + PATIENCE_SECONDS:
            raise SystemExit(f"{found} of {count} executions are done after {PATIENCE_SECONDS} s")
        await asyncio.sleep(0.1)
    return time.monotonic() - began


async def _execute(resources: Resources, statement: str) -> Any:
    async with resources.database.writing() as connection:
        answer = await connection.execute(text(statement))
        return answer.scalar() if answer.returns_rows else None


async def main(executions: int = 20_000, rounds: int = 3) -> None:
    names, report = numbers(), Report(f"{executions:,} no-op executions, {SCHEDULERS} schedulers, one PostgreSQL")
    with both_servers() as (postgres, valkey), ExitStack() as stack:

        async def measure_all(where: str, redis: str | None, counts: Sequence[int], hosts: Hosts | None = None) -> None:
            found: dict[int, list[Load]] = {workers: [] for workers in counts}
            for _ in range(rounds):
                for workers in counts:
                    name = f"cluster{next(names)}"
                    settings = Settings(database_url=postgres.create_database(name), redis_url=redis)
                    try:
                        found[workers].append(await measure(settings, workers, executions, postgres.pid, hosts))
                    finally:
                        postgres.drop_database(name)
            for workers in counts:
                _add(report, where, workers, found[workers], found[counts[0]])

        await measure_all("PostgreSQL alone", None, WORKERS)
        await measure_all("Redis + PostgreSQL", valkey.url, WORKERS)
        if sys.platform == "linux" and os.geteuid() == 0 and shutil.which("ip"):
            await measure_all(f"PostgreSQL alone, {HOSTS} hosts", None, (HOSTS,), stack.enter_context(Hosts(HOSTS)))
    report.print()


def _add(report: Report, where: str, workers: int, loads: Sequence[Load], first: Sequence[Load]) -> None:
    used = [median(getattr(load, name) for load in loads) * 1e6 for name in ("worker", "scheduler", "server")]
    report.add(
        f"{where}, {workers} worker{'s' if workers > 1 else ''}",
        f"{median(load.rate for load in loads):,.0f}/s",
        "CPU per execution: workers {:.0f}, schedulers {:.0f}, PostgreSQL {:.0f} us".format(*used),
        ratio([load.rate for load in loads], [load.rate for load in first]),
    )


if __name__ == "__main__":
    if sys.argv[1:2] in (["scheduler"], ["worker"]):
        serve(*sys.argv[1:4])  # type: ignore[arg-type]  # one of the roles
    else:
        arguments = [int(argument) for argument in sys.argv[1:]]
        run(lambda: main(*arguments))
