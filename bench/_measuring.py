"""What all benchmarks share: servers, a stop-watch that knows CPU time, and a table of ratios."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from floodmark.model.job import Job, ScheduleType, When
from floodmark.model.spec import JobSpec
from floodmark.observability.events import Events
from floodmark.process import eventloop
from floodmark.rules.retries import Retries
from floodmark.settings import Settings
from floodmark.sinks.sql import SqlSink
from floodmark.sources.python import Collector, PythonSource
from floodmark.store.database import open_database
from floodmark.store.jobs import Jobs
from floodmark.store.migrate import migrate
from floodmark.wiring.resources import Resources, open_resources
from floodmark.worker.executor import Executor
from floodmark.worker.worker import Worker
from servers import Postgres, Valkey

T = TypeVar("T")
EVENT = When(schedule_type=ScheduleType.EVENT)


@dataclass
class Watch:
    """Wall-clock and CPU seconds of this process between start and stop."""

    wall: float = 0.0
    cpu: float = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.wall, self.cpu = time.perf_counter() - wall, time.process_time() - cpu


@dataclass
class Report:
    """A table that says what was measured, what it is compared with, and the target."""

    title: str
    rows: list[tuple[str, str, str, str, str]] = field(default_factory=list)

    def add(self, what: str, value: str, reference: str = "", ratio: str = "", target: str = "") -> None:
        self.rows.append((what, value, reference, ratio, target))

    def print(self) -> None:
        table = Table(title=self.title, title_justify="left")
        for column in ("what", "measured", "reference", "ratio", "target"):
            table.add_column(column)
        for row in self.rows:
            table.add_row(*row)
        Console(width=160).print(table)


async def migrated(settings: Settings) -> None:
    """Make the store as it has to be."""
    database = open_database(settings.database_url, events=Events())
    await migrate(database)
    await database.close()


@asynccontextmanager
async def floodmark(settings: Settings) -> AsyncIterator[Resources]:
    """A migrated store and everything wired to it."""
    await migrated(settings)
    async with open_resources(settings) as resources:
        yield resources


@contextmanager
def both_servers() -> Iterator[tuple[Postgres, Valkey]]:
    with Postgres.start() as postgres, Valkey.start() as valkey:
        yield postgres, valkey


@contextmanager
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="floodmark-bench-") as name:
        yield Path(name)


async def interleaved(rounds: int, *measures: Callable[[], Awaitable[T]]) -> list[list[T]]:
    """Each measure once a round, round after round: noise hits all of them alike."""
    results: list[list[T]] = [[] for _ in measures]
    for _ in range(rounds):
        for place, measure in enumerate(measures):
            results[place].append(await measure())
    return results


def ratio(ours: Iterable[float], reference: Iterable[float]) -> str:
    """Of each round its own, so that what came over a whole round does not count."""
    found = [one / other for one, other in zip(ours, reference, strict=True)]
    return f"{median(found):.2f}x ({min(found):.2f}-{max(found):.2f})"


async def in_a_process(module: str, role: str, told: Struct, answer: type[T]) -> T:
    """Start a module in a process of its own, tell it what to do, and take what it answers by `tell`."""
    command = [sys.executable, "-m", module, role, msgspec.json.encode(told).decode()]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    said, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"the {role} process failed, see above")
    return msgspec.json.decode(said, type=answer)


def tell(answer: Struct) -> None:
    """The answer to whoever started this process."""
    print(msgspec.json.encode(answer).decode(), flush=True)


def a_worker(resources: Resources, function: Callable[..., AsyncIterator[None]]) -> Worker:
    """One with default settings, for the collector `nothing`, which is this function."""
    settings = resources.settings
    sources = {"python": PythonSource({"nothing": Collector(function=function)})}
    retries = Retries(base=timedelta(seconds=1), longest=timedelta(seconds=10))
    return Worker(
        resources.queue,
        Executor(sources, SqlSink(resources.keeping, resources.events), retries, asyncio.Event()),
        resources.events,
        name="bench",
        slots=settings.scheduler_worker_pool_size,
        batch=settings.scheduler_queue_batch_size,
        ttl=settings.execution_lease,
    )


async def nothing() -> AsyncIterator[None]:
    """A collector that finds nothing new."""
    found: list[None] = []
    for item in found:
        yield item


def percentile(ordered: Sequence[float], p: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * p / 100))]


def resident_megabytes() -> float:
    """Memory of this process that is really in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


async def given_event_jobs(resources: Resources, count: int) -> list[Job]:
    """Jobs that run only when told to."""
    jobs = Jobs(resources.database, resources.clock)
    return [
        await jobs.add(JobSpec(name=f"job-{n}", source="python", target="nothing", stream=f"job-{n}", when=EVENT))
        for n in range(count)
    ]


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    eventloop.run(main())
