"""Start latency of an idle worker at 100 executions a second, beside XADD to XREADGROUP of a raw pair.

python run.py bench latency [executions of a round] [rounds]

Both take turns, round by round, with the same servers and in the same process; no sample is left out. A ratio is the
median of the ratios of the rounds.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from redis.asyncio import Redis

from floodmark.execution import Queued
from floodmark.parts import Parts
from floodmark.settings import Settings
from floodmark.sinks.sql import SqlSink
from floodmark.sources.python import Collector, PythonSource
from floodmark.store.jobs import Jobs
from floodmark.telemetry.events import ExecutionSettled
from floodmark.worker.executor import Executor
from floodmark.worker.retries import Retries
from floodmark.worker.worker import Worker

from ._measuring import Report, both_servers, floodmark, given_event_jobs, interleaved, percentile, ratio, run

EVERY = 0.01


async def raw_pair(url: str, count: int) -> list[float]:
    """Milliseconds from XADD until XREADGROUP has returned it, on two connections."""
    sender, receiver = Redis.from_url(url, protocol=2), Redis.from_url(url, protocol=2)
    await sender.delete("raw")
    await sender.xgroup_create("raw", "g", "0", mkstream=True)
    sent: dict[bytes, float] = {}
    took: list[float] = []

    async def receive() -> None:
        while len(took) < count:
            answer: Any = await receiver.xreadgroup("g", "c", {"raw": ">"}, count=1, block=1000)
            now = time.perf_counter()
            for _entry, fields in answer[0][1] if answer else ():
                took.append((now - sent[fields[b"id"]]) * 1000)

    receiving = asyncio.create_task(receive())
    # Connected and waiting, as ours is.
    await asyncio.sleep(0.5)
    for n in range(count):
        sent[str(n).encode()] = time.perf_counter()
        await sender.xadd("raw", {"id": n})
        await asyncio.sleep(EVERY)
    await receiving
    await sender.aclose()
    await receiver.aclose()
    return sorted(took)


class Ours:
    """A worker that runs all the time, and so many jobs for it."""

    def __init__(self, parts: Parts, count: int) -> None:
        self._parts, self._count, self._jobs = parts, count, Jobs(parts.database, parts.clock)
        self._put: dict[str, float] = {}
        self._took: list[float] = []
        self._left, self._is_over = 0, asyncio.Event()

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        parts, settings = self._parts, self._parts.settings
        self._made = await given_event_jobs(parts, self._count)
        sources = {"python": PythonSource({"nothing": Collector(function=self._begin)})}
        retries = Retries(base=timedelta(seconds=1), longest=timedelta(seconds=10))
        worker = Worker(
            parts.queue,
            Executor(sources, SqlSink(parts.keeping, parts.events), retries, asyncio.Event()),
            parts.events,
            name="bench",
            slots=settings.scheduler_worker_pool_size,
            batch=settings.scheduler_queue_batch_size,
            ttl=settings.execution_lease,
        )
        parts.events.listen(ExecutionSettled, self._settled)
        running = asyncio.create_task(worker.run())
        yield
        worker.stop()
        await running

    async def round(self) -> list[float]:
        """Milliseconds from the put until the collector's function begins."""
        forced = [await self._jobs.force_run(job) for job in self._made]
        queued: list[Queued] = [one.queued for one in forced if one.queued is not None]
        self._took, self._left = [], len(queued)
        self._is_over.clear()
        await asyncio.sleep(0.5)
        for execution in queued:
            self._put[execution.execution_id] = time.perf_counter()
            await self._parts.queue.put([execution])
            await asyncio.sleep(EVERY)
        await self._is_over.wait()
        if len(self._took) != self._count:
            raise SystemExit(f"{len(self._took)} of {self._count} executions were started")
        return sorted(self._took)

    async def _begin(self, context: Any) -> AsyncIterator[None]:
        self._took.append((time.perf_counter() - self._put.pop(context.execution_id)) * 1000)
        found: list[None] = []
        for item in found:
            yield item

    def _settled(self, _event: ExecutionSettled) -> None:
        self._left -= 1
        if not self._left:
            self._is_over.set()


async def main(count: int = 250, rounds: int = 10) -> None:
    with both_servers() as (postgres, valkey):
        settings = Settings(database_url=postgres.create_database("a"), redis_url=valkey.url)
        async with floodmark(settings) as parts:
            ours = Ours(parts, count)
            async with ours.working():
                raw, started = await interleaved(rounds, lambda: raw_pair(valkey.url, count), ours.round)
    report = Report(
        f"from enqueue to start, idle worker, 100 executions a second, Redis + PostgreSQL: median (range) of the ratios"
        f" of {rounds} interleaved rounds of {count}"
    )
    for p, target in ((50, "<= 3x"), (99, "<= 5x")):
        report.add(
            f"p{p}",
            f"{_of_all(started, p):.2f} ms",
            f"{_of_all(raw, p):.2f} ms raw pair",
            ratio((percentile(one, p) for one in started), (percentile(one, p) for one in raw)),
            target,
        )
    report.print()


def _of_all(rounds: Sequence[Sequence[float]], p: float) -> float:
    return percentile(sorted(took for one in rounds for took in one), p)


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    run(lambda: main(*arguments))
