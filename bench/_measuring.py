"""Shared code of all benchmarks: servers, a stop-watch for wall-clock and CPU time, and a table of verdicts."""

import asyncio
import operator
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Self, TypeVar

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from floodmark.model.job import Job, ScheduleType, When
from floodmark.model.spec import JobSpec
from floodmark.observability.events import Events
from floodmark.process import eventloop
from floodmark.repositories.jobs import Jobs
from floodmark.rules.retries import Retries
from floodmark.settings import Settings
from floodmark.sinks.sql import SqlSink
from floodmark.sources.python import Collector, PythonSource
from floodmark.store.database import open_database
from floodmark.store.migrate import migrate
from floodmark.wiring.resources import Resources, open_resources
from floodmark.worker.executor import Executor
from floodmark.worker.worker import Worker
from servers import Postgres, Valkey

T = TypeVar("T")
# The variable with the path of the file that collects the lines of all reports.
RESULTS = "FLOODMARK_BENCH_RESULTS"
_TARGET = re.compile(r"(?P<compare><=|>=|<|>) \+?(?P<number>[\d.,]+)")
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
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


class Ratio(float):
    """The median of the ratios of several rounds, shown with the smallest and the largest one."""

    low: float
    high: float

    @classmethod
    def of(cls, found: Sequence[float]) -> Self:
        made = cls(median(found))
        made.low, made.high = min(found), max(found)
        return made

    def __str__(self) -> str:
        return f"{float(self):.2f}x ({self.low:.2f}-{self.high:.2f})"

    def __format__(self, specification: str) -> str:
        return str(self)


class Row(Struct, frozen=True):
    """A line of a report. `is_met` is None without a target."""

    what: str
    measured: str
    reference: str = ""
    ratio: str = ""
    target: str = ""
    is_met: bool | None = None

    @property
    def verdict(self) -> str:
        return "" if self.is_met is None else "met" if self.is_met else "missed"


@dataclass
class Report:
    """A table of measured values, references, ratios, targets and verdicts."""

    title: str
    rows: list[Row] = field(default_factory=list)

    def add(
        self,
        what: str,
        value: str,
        reference: str = "",
        ratio: str | Ratio = "",
        target: str = "",
        *,
        figure: float | None = None,
    ) -> None:
        """Add a line. `figure` is what `target` is about, such as `<= 300 ms`; without it, it is the ratio."""
        if figure is None and isinstance(ratio, Ratio):
            figure = float(ratio)
        self.rows.append(Row(what, value, reference, str(ratio), target, meets(figure, target)))

    def print(self) -> None:
        """Print the table, and append its lines to the file that `run.py bench` collects them in."""
        table = Table(title=self.title, title_justify="left")
        for column in ("what", "measured", "reference", "ratio", "target", "verdict"):
            table.add_column(column)
        for row in self.rows:
            table.add_row(row.what, row.measured, row.reference, row.ratio, row.target, row.verdict)
        Console(width=170).print(table)
        if collected := os.environ.get(RESULTS):
            with Path(collected).open("ab") as file:
                file.write(b"".join(msgspec.json.encode(row) + b"\n" for row in self.rows))


def meets(figure: float | None, target: str) -> bool | None:
    """Return whether a figure meets a target such as `<= 4x`; None if there is no target."""
    if not target:
        return None
    found = _TARGET.search(target)
    assert found is not None, f"not a target: {target}"
    assert figure is not None, f"no figure for the target {target}"
    return _COMPARE[found["compare"]](figure, float(found["number"].replace(",", "")))


async def migrated(settings: Settings) -> None:
    """Create the schema of the database."""
    database = open_database(settings.database_url, events=Events())
    await migrate(database)
    await database.close()


@asynccontextmanager
async def floodmark(settings: Settings) -> AsyncIterator[Resources]:
    """Open a migrated database and all resources of a process."""
    await migrated(settings)
    async with open_resources(settings) as resources:
        yield resources


@contextmanager
def both_servers() -> Iterator[tuple[Postgres, Valkey]]:
    """Run both servers as people run them: PostgreSQL with fsync, and Valkey with a journal."""
    with Postgres.start(durable=True) as postgres, Valkey.start(durable=True) as valkey:
        yield postgres, valkey


@contextmanager
def kept_database(place: Path, name: str) -> Iterator[tuple[str, int | None]]:
    """Run a PostgreSQL server whose files stay in a folder; yield the URL of a database, and the server's process."""
    with Postgres.start(kept=place) as postgres:
        yield postgres.find_database(name), postgres.pid


@contextmanager
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="floodmark-bench-") as name:
        yield Path(name)


async def interleaved(rounds: int, *measures: Callable[[], Awaitable[T]]) -> list[list[T]]:
    """Run each measurement once per round, so that noise affects all of them."""
    results: list[list[T]] = [[] for _ in measures]
    for _ in range(rounds):
        for place, measure in enumerate(measures):
            results[place].append(await measure())
    return results


def ratio(ours: Iterable[float], reference: Iterable[float]) -> Ratio:
    """Return the median ratio of the rounds. Each round is compared with itself, so that slow rounds do not matter."""
    return Ratio.of([one / other for one, other in zip(ours, reference, strict=True)])


async def in_a_process(module: str, role: str, told: Struct, answer: type[T]) -> T:
    """Run a module in its own process with a task, and return the result that it sends with `tell`."""
    command = [sys.executable, "-m", module, role, msgspec.json.encode(told).decode()]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    said, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"the {role} process failed, see above")
    return msgspec.json.decode(said, type=answer)


def tell(answer: Struct | Watch) -> None:
    """Send the result to the process that started this one."""
    print(msgspec.json.encode(answer).decode(), flush=True)


def a_worker(resources: Resources, function: Callable[..., AsyncIterator[None]]) -> Worker:
    """Return a worker with default settings for the collector `nothing`."""
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
    """Collect nothing."""
    found: list[None] = []
    for item in found:
        yield item


def percentile(ordered: Sequence[float], p: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * p / 100))]


def server_cpu(pid: int | None) -> float:
    """Return the CPU seconds of the processes that a server has started, such as the backends of PostgreSQL.

    Those of a process that has ended are not included.
    """
    return (
        0.0
        if pid is None
        else sum(_cpu_of(process) for process in Path("/proc").glob("[0-9]*") if _is_of(process, pid))
    )


def _is_of(process: Path, parent: int) -> bool:
    try:
        # The name of the program, in brackets, may contain spaces.
        return int((process / "stat").read_text().rpartition(")")[2].split()[1]) == parent
    except OSError:
        # It has ended meanwhile.
        return False


def _cpu_of(process: Path) -> float:
    try:
        return int((process / "schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return 0.0


def resident_megabytes() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


async def given_event_jobs(resources: Resources, count: int) -> list[Job]:
    """Create jobs that run only on demand."""
    jobs = Jobs(resources.database, resources.clock)
    return [
        await jobs.add(JobSpec(name=f"job-{n}", source="python", target="nothing", stream=f"job-{n}", when=EVENT))
        for n in range(count)
    ]


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    eventloop.run(main())
