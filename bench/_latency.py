"""The receiving process of the benchmark of latency: a raw reader, or a Floodmark worker.

After each round it prints the start times as JSON, by a clock that all processes share.
"""

import sys
import time
from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec
from msgspec import Struct
from redis.asyncio import Redis

from floodmark.settings import Settings
from floodmark.wiring.resources import open_resources

from ._measuring import a_worker, nothing, run, tell

Role = Literal["raw", "worker"]


class Place(Struct, kw_only=True):
    """The servers to read from, and the number of executions per round."""

    count: int
    redis: str = ""
    database: str = ""


class Starts(Struct):
    """The start time of each execution by the name of its job, in seconds."""

    at: dict[str, float]


async def raw(place: Place) -> None:
    """Read entries with XREADGROUP in a loop."""
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
    """Run a worker whose collector records its start time."""
    starts = Starts({})

    async def begun(context: Any) -> AsyncIterator[None]:
        starts.at[context.job_name] = time.perf_counter()
        if len(starts.at) == place.count:
            tell(starts)
            starts.at.clear()
        async for found in nothing():
            yield found

    settings = Settings(database_url=place.database, redis_url=place.redis or None)
    async with open_resources(settings) as resources:
        tell(starts)
        await a_worker(resources, begun).run()


async def main(role: str, told: str) -> None:
    roles = {"raw": raw, "worker": worker}
    await roles[role](msgspec.json.decode(told, type=Place))


if __name__ == "__main__":
    run(lambda: main(*sys.argv[1:]))
