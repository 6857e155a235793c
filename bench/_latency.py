"""The receiving half of the benchmark of latency, a process of its own: a raw reader, or a worker of ours.

After every so many starts it prints when each of them was, as JSON, by a clock that all processes share.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Literal

import msgspec
from msgspec import Struct
from redis.asyncio import Redis

from floodmark.parts import open_parts
from floodmark.settings import Settings
from floodmark.sinks.sql import SqlSink
from floodmark.sources.python import Collector, PythonSource
from floodmark.worker.executor import Executor
from floodmark.worker.retries import Retries
from floodmark.worker.worker import Worker

from ._measuring import run, tell

Role = Literal["raw", "worker"]


class Place(Struct, kw_only=True):
    """Where to read, and how many executions make a round."""

    count: int
    redis: str
    database: str = ""


class Starts(Struct):
    """When what was put was in hand: seconds by its id."""

    at: dict[str, float]


async def raw(place: Place) -> None:
    """XREADGROUP, again and again."""
    redis, starts = Redis.from_url(place.redis, protocol=2), Starts({})
    tell(starts)
    while True:
        answer: Any = await redis.xreadgroup("g", "c", {"raw": ">"}, count=1, block=1000)
        now = time.perf_counter()
        for _entry, fields in answer[0][1] if answer else ():
            starts.at[fields[b"id"].decode()] = now
        if len(starts.at) == place.count:
            tell(starts)
            starts.at.clear()


async def worker(place: Place) -> None:
    """The collector's function says when it begins."""
    starts = Starts({})

    async def begun(context: Any) -> AsyncIterator[None]:
        starts.at[context.execution_id] = time.perf_counter()
        if len(starts.at) == place.count:
            tell(starts)
            starts.at.clear()
        found: list[None] = []
        for item in found:
            yield item

    settings = Settings(database_url=place.database, redis_url=place.redis)
    async with open_parts(settings) as parts:
        sources = {"python": PythonSource({"nothing": Collector(function=begun)})}
        retries = Retries(base=timedelta(seconds=1), longest=timedelta(seconds=10))
        tell(starts)
        await Worker(
            parts.queue,
            Executor(sources, SqlSink(parts.keeping, parts.events), retries, asyncio.Event()),
            parts.events,
            name="bench",
            slots=settings.scheduler_worker_pool_size,
            batch=settings.scheduler_queue_batch_size,
            ttl=settings.execution_lease,
        ).run()


async def main(role: str, told: str) -> None:
    roles = {"raw": raw, "worker": worker}
    await roles[role](msgspec.json.decode(told, type=Place))


if __name__ == "__main__":
    run(lambda: main(*sys.argv[1:]))
