"""What people ask of a large installation: history, statistics, lists, search, and every page of the dashboard.

python run.py bench reads [--jobs N] [--executions N] [--items N] [--database sqlite|postgresql] [--keep FOLDER]

It fills a store, measures each read in this process, and prints the median and the longest time. With `--keep` the
store stays in that folder, and the next run with the same folder uses it again. The full size is
`--jobs 1000000 --executions 6000000 --items 5000000`.

CPU time is that of this process and of the server. On a machine that has other work to do, wall-clock times also
contain the time that a read waited for a core, so the CPU time is compared with the target then.
"""

import argparse
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct
from sqlalchemy import text

from floodmark.api.app import create_app
from floodmark.dashboard.routes import PAGES, dashboard_routes
from floodmark.errors import FloodmarkError
from floodmark.model.audit import Actor
from floodmark.model.execution import State
from floodmark.observability import logs
from floodmark.operations.jobs import JobFilter
from floodmark.operations.local import LocalOperations
from floodmark.operations.overview import OverviewReader
from floodmark.repositories.freshness import FreshnessReader
from floodmark.settings import Settings
from floodmark.wiring.resources import Resources, open_resources

from ._delivering import fill_delivery
from ._filling import BUSY, Sizes, fill
from ._measuring import Report, folder, kept_database, migrated, run
from ._posts import make_corpus
from .dashboard import ALSO, PLACES, path_of
from .search import frequencies

ASKED, TARGET, PAGE_TARGET = 7, "<= 100 ms", "<= 300 ms"
# More processes than this that want a core: wall-clock times are not those of the read.
_BUSY_LOAD = 1.5
_TICKS = os.sysconf("SC_CLK_TCK")

Read = Callable[[], Awaitable[object]]


class Times(Struct, frozen=True):
    """How long a read took, in milliseconds."""

    wall: Sequence[float]
    cpu: Sequence[float]

    def figure(self) -> float:
        """Return the time that is compared with the target."""
        return median(self.cpu if is_busy() else self.wall)

    def __str__(self) -> str:
        return f"{median(self.wall):.0f} ms, at most {max(self.wall):.0f} ms; CPU {median(self.cpu):.0f} ms"


def is_busy() -> bool:
    """Return whether the machine has more work than cores."""
    return os.getloadavg()[0] > _BUSY_LOAD * (os.cpu_count() or 1)


class Meter:
    """Measures reads: wall-clock time, and CPU time of this process and of the server."""

    def __init__(self, server: int | None) -> None:
        self._server = server

    async def measure(self, read: Read, times: int = ASKED) -> Times:
        """Make a read once, and then several times."""
        await read()
        wall, cpu = [], []
        for _ in range(times):
            before, began = self._cpu(), time.perf_counter()
            await read()
            wall.append((time.perf_counter() - began) * 1000)
            cpu.append(sum(seconds - before.get(pid, seconds) for pid, seconds in self._cpu().items()) * 1000)
        return Times(wall, cpu)

    def _cpu(self) -> dict[int, float]:
        """Return the CPU seconds of each process."""
        return {0: time.process_time()} | ({} if self._server is None else _cpu_of_children(self._server))


def _cpu_of_children(parent: int) -> dict[int, float]:
    """Return the CPU seconds of the processes that a server has started for its connections."""
    found: dict[int, float] = {}
    for children in Path(f"/proc/{parent}/task").glob("*/children"):
        for pid in children.read_text().split():
            with suppress(FileNotFoundError, ProcessLookupError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                found[int(pid)] = (int(fields[11]) + int(fields[12])) / _TICKS
    return found


def reads_of(operations: LocalOperations, resources: Resources) -> dict[str, Read]:
    """Return the reads by what a person types or asks."""
    busy, quiet = f"source-{BUSY:07}", "source-0000007"
    words = frequencies(make_corpus())
    overview = OverviewReader(resources.database, resources.clock, resources.repositories)

    def jobs(**which: Any) -> Read:
        return lambda: operations.jobs(JobFilter(**which))

    def found(**query: Any) -> Read:
        return lambda: operations.search(**query)

    async def mistyped(ask: Callable[[str], Awaitable[object]]) -> None:
        with suppress(FloodmarkError):
            await ask("sourec-0000077")

    return {
        "history": operations.executions,
        "history NAME, a long one": lambda: operations.executions(job=busy),
        "history NAME": lambda: operations.executions(job=quiet),
        "history of a mistyped name": lambda: mistyped(lambda name: operations.executions(job=name)),
        "history --state dead": lambda: operations.executions(states=[State.DEAD]),
        "history --state skipped --state cancelled": lambda: operations.executions(
            states=[State.SKIPPED, State.CANCELLED]
        ),
        "history --state queued": lambda: operations.executions(states=[State.QUEUED]),
        "history --state done": lambda: operations.executions(states=[State.DONE]),
        "history NAME --state dead, a long one": lambda: operations.executions(job=busy, states=[State.DEAD]),
        "executions of the last hour": lambda: operations.recent_executions(1),
        "stats NAME, a long history": lambda: operations.statistics(7, busy),
        "stats NAME": lambda: operations.statistics(7, quiet),
        "stats of all jobs, 7 days": lambda: operations.statistics(7),
        "fleet metrics, with the last day": operations.fleet_metrics,
        "ls": operations.jobs,
        "ls --stale": jobs(stale=True),
        "ls --source": jobs(source="web"),
        "ls --source, unknown": jobs(source="cookies"),
        "ls --tag": jobs(tag="news"),
        "ls --tag, unknown": jobs(tag="nothing"),
        "ls --text": jobs(text="00123"),
        "ls --match": jobs(match="source-00077*"),
        "ls, paused": jobs(state="paused"),
        "show a job": lambda: operations.job(quiet),
        "show a mistyped job": lambda: mistyped(operations.job),
        "show a mistyped stream": lambda: mistyped(operations.watermark),
        "explain": lambda: operations.explain(busy),
        "overview": operations.overview,
        "queue depth": resources.queue.depth,
        "charts of 6 hours": operations.minutes,
        "freshness map": overview.freshness_map,
        "dead letters": operations.letters,
        "dead letters of a job": lambda: operations.letters(job=busy),
        "dead letters by error": operations.letter_groups,
        "watermarks": operations.watermarks,
        "streams": operations.streams,
        "days of a stream": lambda: operations.days(busy),
        "latest items": operations.latest_items,
        "newest items of a stream": lambda: operations.newest_items(busy),
        "search, rare word": found(query=words.near(0.0003)),
        "search, word": found(query=words.near(0.006)),
        "search, common word": found(query=words.near(0.3)),
        "search, two words": found(query=f"{words.near(0.1)} {words.near(0.006)}"),
        "search, phrase": found(query=f'"{words.pair()}"'),
        "search, prefix": found(query=f"{words.near(0.001)[:4]}*"),
        "search, Chinese": found(query=words.dense(20)),
        "search, no match": found(query="qqqxqqq"),
        "search, ranked": found(query=words.near(0.006), order="rank"),
        "search, word in a stream": found(query=words.near(0.1), stream=busy),
        "search, word of a source": found(query=words.near(0.006), source="web"),
        "search, word with a tag": found(query=words.near(0.006), tag="news"),
        "newest items of a source": found(source="web"),
        "newest items with a tag": found(tag="news"),
    }


async def measure_leader(resources: Resources, report: Report, where: str) -> None:
    """Do what the leader does now and then, which reads depend on, and show how long it takes."""
    repositories = resources.repositories
    overview = OverviewReader(resources.database, resources.clock, repositories)
    freshness = FreshnessReader(resources.database, resources.clock)

    async def count() -> None:
        while await repositories.minutes.count() or await repositories.days.count():
            pass

    works: Mapping[str, Read] = {
        "the leader counts a day by the minute, once": count,
        "the leader measures freshness and failures": overview.measure,
        "the leader measures adaptive jobs": freshness.measure,
    }
    for what, work in works.items():
        began = time.perf_counter()
        await work()
        report.add(f"{where}: {what}", f"{(time.perf_counter() - began) * 1000:,.0f} ms")


async def measure_reads(resources: Resources, meter: Meter, report: Report, where: str) -> None:
    """Measure each read through the operations."""
    operations = LocalOperations(resources, Actor(who="bench"))
    for what, read in reads_of(operations, resources).items():
        took = await meter.measure(read)
        report.add(f"{where}: {what}", str(took), "", "", TARGET, figure=took.figure())


async def measure_pages(resources: Resources, meter: Meter, report: Report, where: str, sizes: Sizes) -> None:
    """Ask for every page of the dashboard. Each request differs, so that none shares the result of another."""
    query = "SELECT execution_id FROM executions ORDER BY execution_id DESC LIMIT 1"
    async with resources.database.reading() as connection:
        execution = (await connection.execute(text(query))).scalar_one()
    # The first item of the stream.
    places = {
        **PLACES,
        "execution": execution,
        "execution_id": execution,
        "key": f"{6 * sizes.items // sizes.jobs + 1:09}",
    }
    app = create_app(resources, pages=dashboard_routes())
    numbers = iter(range(10**9))
    for path in [*(path_of(page, places) for page in PAGES), *ALSO]:
        if path is None:
            continue
        status = await get(app, path)
        if status != 200:
            report.add(f"{where}: page {path}", f"answers {status}")
            continue
        more = "&" if "?" in path else "?"
        took = await meter.measure(lambda path=path, more=more: get(app, f"{path}{more}_={next(numbers)}"))  # type: ignore[misc]
        report.add(f"{where}: page {path}", str(took), "", "", PAGE_TARGET, figure=took.figure())


async def get(app: Any, path: str) -> int:
    """Ask an application for a page as a server does, and return the status."""
    path, _, query = path.partition("?")
    status: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            status.append(message["status"])

    headers = [(b"host", b"127.0.0.1"), (b"accept", b"text/html")]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
    await app(scope, receive, send)
    return status[0]


async def measure(url: str, sizes: Sizes, server: int | None, report: Report, *, only: str) -> None:
    """Fill a database unless it is filled, and measure everything on it."""
    where, settings = "PostgreSQL" if url.startswith("postgresql") else "SQLite", Settings(database_url=url)
    await migrated(settings)
    async with open_resources(settings) as resources:
        if await is_empty(resources):
            began = time.perf_counter()
            await fill(resources, sizes, is_searchable=True)
            await fill_delivery(resources)
            report.add(f"{where}: fill the store", f"{time.perf_counter() - began:,.0f} s")
        meter = Meter(server)
        if only in ("", "leader"):
            await measure_leader(resources, report, where)
        if only in ("", "reads"):
            await measure_reads(resources, meter, report, where)
        if only in ("", "pages"):
            await measure_pages(resources, meter, report, where, sizes)


async def is_empty(resources: Resources) -> bool:
    async with resources.database.reading() as connection:
        return (await connection.execute(text("SELECT 1 FROM jobs LIMIT 1"))).first() is None


@contextmanager
def databases(chosen: str, kept: Path) -> Iterator[list[tuple[str, int | None]]]:
    """Yield the URLs of the databases, each with the process of its server."""
    with ExitStack() as stack:
        found: list[tuple[str, int | None]] = []
        if chosen in ("", "postgresql"):
            found.append(stack.enter_context(kept_database(kept / "postgresql", "reads")))
        if chosen in ("", "sqlite"):
            found.append((f"sqlite:///{kept}/reads.db", None))
        yield found


async def main(given: argparse.Namespace) -> None:
    sizes = Sizes(given.jobs, given.executions, given.items, queued=min(5000, given.executions // 10))
    title = f"reads of {sizes.jobs:,} jobs, {sizes.executions:,} executions and {sizes.items:,} items"
    report = Report(f"{title}; {'CPU times are compared: the machine is busy' if is_busy() else 'median'}")
    with ExitStack() as stack:
        place = Path(given.keep) if given.keep else stack.enter_context(folder())
        place.mkdir(parents=True, exist_ok=True)
        # The server may run as another user.
        place.chmod(0o755)
        for url, server in stack.enter_context(databases(given.database, place)):
            await measure(url, sizes, server, report, only=given.only)
    report.print()


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(prog="run.py bench reads")
    for name, default in {"jobs": 20_000, "executions": 200_000, "items": 100_000}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="")
    parser.add_argument("--keep", metavar="FOLDER", default="", help="a folder for the store, to be used again")
    parser.add_argument("--only", choices=("leader", "reads", "pages"), default="", help="measure only these")
    return parser.parse_args()


if __name__ == "__main__":
    options = parse()
    logs.configure("warning", "json")
    run(lambda: main(options))
