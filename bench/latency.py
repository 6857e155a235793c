"""Time from queued to started with an idle worker, compared with a raw pair of XADD and XREADGROUP.

python run.py bench latency [executions of a round] [rounds]

Putting and running are two processes, as with a scheduler and a worker, at 100 executions per second. Floodmark and the
raw pair take turns, round by round, on the same servers; no sample is left out. A ratio is the median of the ratios of
the rounds.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count as numbers

import msgspec
from redis.asyncio import Redis

from floodmark.model.job import Job
from floodmark.settings import Settings
from floodmark.store.jobs import Jobs
from floodmark.wiring.resources import Resources

from ._latency import Place, Role, Starts
from ._measuring import Report, both_servers, floodmark, given_event_jobs, interleaved, percentile, ratio, run

EVERY = 0.01


class Receiver:
    """The receiving process of a pair."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    @asynccontextmanager
    async def started(cls, role: Role, place: Place) -> AsyncIterator["Receiver"]:
        command = [sys.executable, "-m", "bench._latency", role, msgspec.json.encode(place).decode()]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, limit=2**24)
        receiver = cls(process)
        try:
            await receiver.starts()
            yield receiver
        finally:
            process.terminate()
            await process.wait()

    async def starts(self) -> dict[str, float]:
        """Return the start times of a round."""
        assert self._process.stdout is not None
        said = await self._process.stdout.readline()
        if not said:
            raise SystemExit("the other process has ended, see above")
        return msgspec.json.decode(said, type=Starts).at

    async def latencies(self, names: Sequence[str], put: Callable[[str], Awaitable[object]]) -> list[float]:
        """Return the milliseconds from each put to its start, sorted."""
        # The receiver is now connected and waiting.
        await asyncio.sleep(0.5)
        sent: dict[str, float] = {}
        for name in names:
            sent[name] = time.perf_counter()
            await put(name)
            await asyncio.sleep(EVERY)
        starts = await self.starts()
        if starts.keys() != sent.keys():
            raise SystemExit("what began is not what was put")
        return sorted((starts[name] - sent[name]) * 1000 for name in sent)


async def raw_round(redis: Redis, receiver: Receiver, names: Sequence[str]) -> list[float]:
    return await receiver.latencies(names, lambda name: redis.xadd("raw", {"id": name}))


async def our_round(resources: Resources, receiver: Receiver, jobs: Sequence[Job]) -> list[float]:
    store = Jobs(resources.database, resources.clock)
    forced = [await store.force_run(job) for job in jobs]
    queued = {one.queued.execution_id: one.queued for one in forced if one.queued is not None}
    return await receiver.latencies(list(queued), lambda name: resources.queue.put([queued[name]]))


async def main(count: int = 250, rounds: int = 10) -> None:
    with both_servers() as (postgres, valkey):
        settings = Settings(database_url=postgres.create_database("a"), redis_url=valkey.url)
        place = Place(count=count, redis=valkey.url, database=settings.database_url)
        redis, names = Redis.from_url(valkey.url, protocol=2), numbers()
        await redis.xgroup_create("raw", "g", "0", mkstream=True)
        async with (
            floodmark(settings) as resources,
            Receiver.started("raw", place) as reader,
            Receiver.started("worker", place) as worker,
        ):
            jobs = await given_event_jobs(resources, count)
            raw, ours = await interleaved(
                rounds,
                lambda: raw_round(redis, reader, [str(next(names)) for _ in range(count)]),
                lambda: our_round(resources, worker, jobs),
            )
        await redis.aclose()
    report = Report(
        f"from put to start, idle worker, 100 executions a second, Redis + PostgreSQL: median (range) of the ratios"
        f" of {rounds} interleaved rounds of {count}"
    )
    for p, target in ((50, "<= 3x"), (99, "<= 5x")):
        report.add(
            f"p{p}",
            f"{_of_all(ours, p):.2f} ms",
            f"{_of_all(raw, p):.2f} ms raw pair",
            ratio((percentile(one, p) for one in ours), (percentile(one, p) for one in raw)),
            target,
        )
    report.print()


def _of_all(rounds: Sequence[Sequence[float]], p: float) -> float:
    return percentile(sorted(took for one in rounds for took in one), p)


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    run(lambda: main(*arguments))
