"""`floodmark up` under load: how late its jobs start while clients call its API.

`python -m bench._working DATABASE_URL` runs scheduler, worker and API in one process, as `floodmark up` does. It prints
its URL, and runs until its standard input ends.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Self
from urllib.parse import urlsplit

from sqlalchemy import select, text

from floodmark import Floodmark
from floodmark.api.server import HttpServer
from floodmark.model.ids import new_id
from floodmark.observability import logs
from floodmark.process import eventloop
from floodmark.settings import Settings
from floodmark.store.tables import job_executions
from floodmark.wiring.resources import Resources

from ._measuring import percentile

EVERY = timedelta(seconds=10)


@dataclass
class Lateness:
    """How late executions started, in milliseconds, how many did not start, and the load by the clients.

    `fired`: how late the step of the scheduler was that wrote them.
    `disturbed`: executions that are not counted because the machine gave its cores to others at that time.
    """

    late: list[float]
    fired: list[float]
    unstarted: int
    answered: int = 0
    refused: int = 0
    disturbed: int = 0

    @classmethod
    def of_all(cls, found: Sequence["Lateness"]) -> "Lateness":
        """Combine rounds: in one of them the 99th percentile is one of the largest values, which varies too much."""
        return cls(
            late=sorted(late for one in found for late in one.late),
            fired=sorted(late for one in found for late in one.fired),
            unstarted=sum(one.unstarted for one in found),
            answered=sum(one.answered for one in found),
            refused=sum(one.refused for one in found),
            disturbed=sum(one.disturbed for one in found),
        )

    def __str__(self) -> str:
        return f"p50 {median(self.late):.0f} ms, p99 {self.p99:.0f} ms, {self.notes}"

    @property
    def notes(self) -> str:
        """How many executions are not in the figures."""
        left_out = f", {self.disturbed} left out" if self.disturbed else ""
        return f"{self.unstarted} not started{left_out}"

    @property
    def p99(self) -> float:
        """Return the lateness that one execution in a hundred exceeds."""
        return percentile(self.late, 99) if self.late else float("inf")

    @property
    def fired_p99(self) -> float:
        """Return the same until an execution was fired."""
        return percentile(self.fired, 99) if self.fired else float("inf")


async def given_interval_jobs(resources: Resources, count: int) -> None:
    """Create jobs that are due every ten seconds, spread evenly, and collect nothing."""
    at = datetime.now(UTC) + timedelta(seconds=3)
    is_text = resources.database.dialect == "sqlite"
    moment = "{}" if is_text else "CAST({} AS timestamptz)"
    first = [at + number * EVERY / count for number in range(count)]
    rows = [
        {
            "id": new_id(),
            "name": f"job-{number}",
            "at": _column(due, is_text),
            # The anchor of the intervals: it spreads the jobs over the ten seconds.
            "before": _column(due - 360 * EVERY, is_text),
        }
        for number, due in enumerate(first)
    ]
    at_column, before_column = moment.format(":at"), moment.format(":before")
    async with resources.database.writing() as connection:
        await connection.execute(
            text(
                "INSERT INTO jobs (job_id, name, source, target, stream, interval_seconds, next_run, planned_until,"
                " created_at) VALUES (:id, :name, 'python', 'nothing', :name,"
                f" {EVERY.total_seconds()}, {at_column}, {before_column}, {before_column})"
            ),
            rows,
        )


def _column(moment: datetime, is_text: bool) -> datetime | str:
    return moment.isoformat(sep=" ", timespec="microseconds") if is_text else moment


async def lateness(resources: Resources, url: str, *, seconds: float, clients: int) -> Lateness:
    """Let the process work for a while, with a number of clients that list jobs without pauses."""
    since, stop = datetime.now(UTC), asyncio.Event()
    asking = [asyncio.create_task(_ask(url, stop)) for _ in range(clients)]
    async with StolenTime() as stolen:
        await asyncio.sleep(seconds)
        until = datetime.now(UTC)
        stop.set()
        counts = await asyncio.gather(*asking)
        # Executions that were due at the very end may not have started yet.
        await asyncio.sleep(2)
    cell = job_executions.c
    query = select(cell.scheduled_for, cell.created_at, cell.started_at).where(cell.scheduled_for.between(since, until))
    async with resources.database.reading() as connection:
        rows = (await connection.execute(query)).all()
    started = [row for row in rows if row.started_at]
    counted = [row for row in started if not stolen.is_near(row.scheduled_for)]
    return Lateness(
        late=sorted((row.started_at - row.scheduled_for).total_seconds() * 1000 for row in counted),
        fired=sorted((row.created_at - row.scheduled_for).total_seconds() * 1000 for row in counted),
        unstarted=len(rows) - len(started),
        disturbed=len(started) - len(counted),
        answered=sum(answered for answered, _ in counts),
        refused=sum(refused for _, refused in counts),
    )


class StolenTime:
    """The moments at which a virtual machine did not get its cores, during the block; Linux counts them.

    What is late at such a moment says nothing about the program. Time that other programs of this machine take is not
    left out: it may be our own.
    """

    _LOOK_SECONDS, _TICKS = 0.1, 2
    # After a pause of the machine everything that became due meanwhile runs at once.
    _BEFORE, _AFTER = timedelta(seconds=0.4), timedelta(seconds=0.4)

    def __init__(self) -> None:
        self._moments: list[datetime] = []
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._looking = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._looking is not None
        self._looking.cancel()
        await asyncio.wait([self._looking])

    def is_near(self, moment: datetime) -> bool:
        """Return whether cores were taken away about this moment."""
        return any(stolen - self._BEFORE <= moment <= stolen + self._AFTER for stolen in self._moments)

    async def _look(self) -> None:
        before = _stolen_ticks()
        while True:
            await asyncio.sleep(self._LOOK_SECONDS)
            now = _stolen_ticks()
            if now - before >= self._TICKS:
                self._moments.append(datetime.now(UTC))
            before = now


def _stolen_ticks() -> int:
    statistics = Path("/proc/stat")
    return int(statistics.read_text().split()[8]) if statistics.exists() else 0


async def _ask(url: str, stop: asyncio.Event) -> tuple[int, int]:
    where, answered, refused = urlsplit(url), 0, 0
    asked = b"GET /api/v2/jobs?limit=50 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    while not stop.is_set():
        try:
            reader, writer = await asyncio.open_connection(where.hostname, where.port)
            while not stop.is_set():
                writer.write(asked)
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0]))
                if head[9:12] == b"200":
                    answered += 1
                else:
                    refused += 1
                    await asyncio.sleep(1)
            writer.close()
            await writer.wait_closed()
        except (OSError, asyncio.IncompleteReadError):
            refused += 1
            await asyncio.sleep(1)
    return answered, refused


@contextmanager
def working(database_url: str) -> Iterator[str]:
    """Run such a process during the block and yield its URL."""
    command = [sys.executable, "-m", "bench._working", database_url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(30)


async def _nothing() -> AsyncIterator[None]:
    found: list[None] = []
    for item in found:
        yield item


async def _work(database_url: str) -> None:
    app, stop = Floodmark(Settings(database_url=database_url)), asyncio.Event()
    app.collector(name="nothing")(_nothing)

    def ready(_: Resources, server: HttpServer) -> None:
        print(server.url, flush=True)

    async def wait() -> None:
        await asyncio.to_thread(sys.stdin.read)
        stop.set()

    waiting = asyncio.create_task(wait())
    await app.serve(port=0, stop=stop, ready=ready)
    await waiting


if __name__ == "__main__":
    logs.configure("warning", "json")
    eventloop.run(_work(sys.argv[1]))
