"""Start latency of an idle worker at 100 executions a second, beside XADD to XREADGROUP of a raw pair.

python run.py bench latency [executions]
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
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

from ._measuring import Report, both_servers, floodmark, given_event_jobs, percentile, run

EVERY = 0.01


async def raw_pair(url: str, count: int) -> list[float]:
    """Milliseconds from XADD until XREADGROUP has returned it, on two connections."""
    sender, receiver = Redis.from_url(url, protocol=2), Redis.from_url(url, protocol=2)
    await sender.flushall()
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
    for n in range(count):
        sent[str(n).encode()] = time.perf_counter()
        await sender.xadd("raw", {"id": n})
        await asyncio.sleep(EVERY)
    await receiving
    await sender.aclose()
    await receiver.aclose()
    return sorted(took)


async def ours(parts: Parts, count: int) -> list[float]:
    """Milliseconds from the put until the collector's function begins."""
    put: dict[str, float] = {}
    took: list[float] = []

    async def nothing(context: Any) -> AsyncIterator[None]:
        took.append((time.perf_counter() - put[context.execution_id]) * 1000)
        found: list[None] = []
        for item in found:
            yield item

    sources = {"python": PythonSource({"nothing": Collector(function=nothing)})}
    retries = Retries(base=timedelta(seconds=1), longest=timedelta(seconds=10))
    executor = Executor(sources, SqlSink(parts.keeping, parts.events), retries, asyncio.Event())
    worker = Worker(parts.queue, executor, parts.events, name="bench", slots=10, batch=50, ttl=timedelta(seconds=15))
    settled = 0

    def ended(_event: ExecutionSettled) -> None:
        nonlocal settled
        settled += 1
        if settled == count:
            worker.stop()

    parts.events.listen(ExecutionSettled, ended)
    jobs = Jobs(parts.database, parts.clock)
    made = await given_event_jobs(parts, count)
    forced = [await jobs.force_run(job) for job in made]
    queued: list[Queued] = [one.queued for one in forced if one.queued is not None]
    working = asyncio.create_task(worker.run())
    await asyncio.sleep(1)
    for execution in queued:
        put[execution.execution_id] = time.perf_counter()
        await parts.queue.put([execution])
        await asyncio.sleep(EVERY)
    await working
    return sorted(took)


async def main(count: int = 500) -> None:
    report = Report(f"from enqueue to start, idle worker, {count} executions at 100 a second, p50 / p99")
    with both_servers() as (postgres, valkey):
        raw = await raw_pair(valkey.url, count)
        results = []
        async with floodmark(Settings(database_url=postgres.create_database("a"), redis_url=valkey.url)) as parts:
            results.append(("Redis + PostgreSQL", await ours(parts, count), "<= 3x / <= 5x"))
    reference = f"{percentile(raw, 50):.2f} / {percentile(raw, 99):.2f} ms raw pair"
    for where, took, target in results:
        halves = [(percentile(took, p), percentile(took, p) / percentile(raw, p)) for p in (50, 99)]
        shown = " / ".join(f"{value:.2f}" for value, _ in halves) + " ms"
        report.add(where, shown, reference, " / ".join(f"{ratio:.1f}x" for _, ratio in halves), target)
    report.print()


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    run(lambda: main(*arguments))
