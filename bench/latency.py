"""Time from the call to the start with an idle worker, for several ways to ask for a run, compared with a raw pair.

python run.py bench latency [executions of a round] [rounds]

The caller, the worker and the server are three processes, at 100 runs per second. The ways are `run_job` in Python, the
force-run of the API, a webhook, and a message on a Redis channel. Each takes turns with a raw pair of XADD and
XREADGROUP, round by round, on the same servers. No sample is left out. A ratio is the median of those of the rounds.
Then follow calls of `run_job` without pauses, the rate of `run_many`, which asks for all runs of a round in one call,
and two processes on one SQLite file.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from statistics import median
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace
from redis.asyncio import Redis

from floodmark.inbound.redis_listeners import CHANNELS, find_hearing
from floodmark.model.audit import Actor
from floodmark.model.spec import JobSpec
from floodmark.operations.local import LocalOperations
from floodmark.repositories.jobs import Jobs
from floodmark.settings import Settings
from floodmark.wiring.resources import Resources

from ._latency import Place, Role, Starts
from ._measuring import EVENT, Report, Watch, both_servers, floodmark, folder, interleaved, percentile, ratio, run
from ._serving import request, serving

EVERY = 0.01
PATIENCE_SECONDS = 60
# Whatever a raw pair takes.
_ABSOLUTE = {50: "<= 3 ms", 99: "<= 6 ms"}
# Calls under way at once, when the rate is measured.
_AT_ONCE = 64


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
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                said = await self._process.stdout.readline()
        except TimeoutError:
            raise SystemExit("not every call has led to a start") from None
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


class Round(NamedTuple):
    """The milliseconds from each call to its start, sorted, and the CPU time of the caller per call."""

    took: list[float]
    cpu: float


class Http:
    """A connection to the API that sends prepared requests."""

    def __init__(self, url: str, token: str) -> None:
        self._where, self._token = urlsplit(url), token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: object = None) -> None:
        # The server closes a connection that was idle during other rounds.
        if self._streams is None or self._streams[0].at_eof():
            self._streams = await asyncio.open_connection(self._where.hostname, self._where.port)
        reader, writer = self._streams
        writer.write(request("POST", f"/api/v2{path}", self._token, body))
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0]))
        if int(head[9:12]) != 202:
            raise SystemExit(f"unexpected answer: {head.decode()}")


async def a_round(receiver: Receiver, names: Sequence[str], put: Callable[[str], Awaitable[object]]) -> Round:
    began = time.process_time()
    took = await receiver.latencies(names, put)
    return Round(took, (time.process_time() - began) / len(names))


async def given_triggered_jobs(resources: Resources, count: int) -> list[str]:
    """Create jobs that run on demand, each with a webhook of its own."""
    jobs = Jobs(resources.database, resources.clock)
    for n in range(count):
        spec = JobSpec(name=str(n), source="python", target="nothing", stream=f"job-{n}", when=EVENT)
        await jobs.add(replace(spec, trigger_webhook=f"/bench/{n}", trigger_channel=f"bench:{n}"))
    return [str(n) for n in range(count)]


async def until_heard(resources: Resources, count: int) -> None:
    """Wait until the leader listens to the channels of all jobs: Redis keeps no message for it."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                hearing = await find_hearing(resources.repositories.fleet, CHANNELS)
                if hearing is not None and len(hearing.patterns) == count:
                    return
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise SystemExit("no leader listens to the channels") from None


class Rate(NamedTuple):
    """Calls of `run_job` without pauses: per second, and the CPU seconds of each."""

    rate: float
    cpu: float


async def rate_of(worker: Receiver, local: LocalOperations, names: Sequence[str], at_once: int) -> Rate:
    """Ask for all runs, with a number of calls under way at once, and wait until they have started."""

    async def ask(some: Sequence[str]) -> None:
        for name in some:
            await local.run_job(name)

    watch = Watch()
    with watch.running():
        await asyncio.gather(*(ask(names[number::at_once]) for number in range(at_once)))
    await worker.starts()
    return Rate(len(names) / watch.wall, watch.cpu / len(names))


class Bulk(NamedTuple):
    """The runs per second of one call of `run_many`, and per second of its CPU time."""

    rate: float
    cpu_rate: float


async def many(worker: Receiver, local: LocalOperations, names: Sequence[str]) -> Bulk:
    """Ask for all runs in one call, and wait until they have started."""
    await asyncio.sleep(0.5)
    watch = Watch()
    with watch.running():
        await local.run_many(names)
    await worker.starts()
    return Bulk(len(names) / watch.wall, len(names) / watch.cpu)


async def main(count: int = 250, rounds: int = 10) -> None:
    report = Report(
        f"from the call to the start, idle worker, 100 calls a second, Redis + PostgreSQL: median (range) of the ratios"
        f" of {rounds} interleaved rounds of {count}"
    )
    with both_servers() as (postgres, valkey):
        settings = Settings(database_url=postgres.create_database("a"), redis_url=valkey.url)
        place = Place(count=count, redis=valkey.url, database=settings.database_url)
        redis = Redis.from_url(valkey.url, protocol=2)
        await redis.xgroup_create("raw", "g", "0", mkstream=True)
        async with floodmark(settings) as resources:
            names = await given_triggered_jobs(resources, count)
            local = LocalOperations(resources, Actor(who="bench", via="python"))
            token = (await local.add_token("bench", "operate")).text
            with serving(settings.database_url, valkey.url) as url:
                http = Http(url, token)
                ways: dict[str, Callable[[str], Awaitable[object]]] = {
                    "run_job": local.run_job,
                    "force-run over HTTP": lambda name: http.post(f"/jobs/{name}/force-run", {}),
                    "webhook": lambda name: http.post(f"/triggers/webhook/bench/{name}", {}),
                    "Redis message": lambda name: redis.publish(f"bench:{name}", b"{}"),
                }
                await until_heard(resources, count)
                async with Receiver.started("raw", place) as reader, Receiver.started("worker", place) as worker:
                    raw, *ours = await interleaved(
                        rounds,
                        lambda: a_round(reader, names, lambda name: redis.xadd("raw", {"id": name})),
                        *(partial(a_round, worker, names, way) for way in ways.values()),
                    )
                    bulk = [await many(worker, local, names) for _ in range(rounds)]
                    alone, together = await interleaved(
                        rounds, *(partial(rate_of, worker, local, names, at_once) for at_once in (1, _AT_ONCE))
                    )
        await redis.aclose()
    for way, found in zip(ways, ours, strict=True):
        add_rows(report, way, found, raw)
    for what, rates, target in (("one after the other", alone, ""), (f"{_AT_ONCE} at once", together, ">= 2,000/s")):
        rate, cpu = median(one.rate for one in rates), median(one.cpu for one in rates) * 1e3
        report.add(f"run_job without pauses, {what}", f"{rate:,.0f}/s", target=target, figure=rate if target else None)
        shown = f"{cpu:.2f} ms"
        report.add(f"run_job without pauses, {what}, CPU of the caller", shown, target="<= 0.5 ms", figure=cpu)
    rate = median(one.rate for one in bulk)
    per_cpu = f"{median(one.cpu_rate for one in bulk):,.0f} per CPU s"
    report.add(f"run_many, {count} runs in one call", f"{rate:,.0f}/s", per_cpu, target=">= 10,000/s", figure=rate)
    embedded = await on_one_file(count, rounds)
    for p, target in ((50, "<= 50 ms"), (99, "")):
        took = _of_all(embedded, p)
        what = f"run_job, SQLite, to the start in a second process, p{p}"
        report.add(what, f"{took:.2f} ms", target=target, figure=took)
    report.print()


async def on_one_file(count: int, rounds: int) -> list[Round]:
    """Ask for runs in this process that a worker in another one starts. Both have the same SQLite file."""
    with folder() as place:
        settings = Settings(database_url=f"sqlite:///{place}/latency.db")
        async with floodmark(settings) as resources:
            names = await given_triggered_jobs(resources, count)
            local = LocalOperations(resources, Actor(who="bench", via="python"))
            there = Place(count=count, database=settings.database_url)
            async with Receiver.started("worker", there) as worker:
                return [await a_round(worker, names, local.run_job) for _ in range(rounds)]


def add_rows(report: Report, way: str, ours: Sequence[Round], raw: Sequence[Round]) -> None:
    for p, target in ((50, "<= 3.5x"), (99, "<= 5x")):
        took = _of_all(ours, p)
        compared = ratio((percentile(one.took, p) for one in ours), (percentile(one.took, p) for one in raw))
        report.add(f"{way}, p{p}", f"{took:.2f} ms", f"{_of_all(raw, p):.2f} ms raw pair", compared, target)
        report.add(f"{way}, p{p}, in milliseconds", f"{took:.2f} ms", target=_ABSOLUTE[p], figure=took)
    mean = sum(one.cpu for one in ours) / len(ours), sum(one.cpu for one in raw) / len(raw)
    report.add(
        f"{way}, CPU of the caller",
        f"{mean[0] * 1e3:.2f} ms",
        f"{mean[1] * 1e3:.2f} ms one XADD",
        ratio((one.cpu for one in ours), (one.cpu for one in raw)),
        "<= 2.5x",
    )


def _of_all(rounds: Sequence[Round], p: float) -> float:
    return percentile(sorted(took for one in rounds for took in one.took), p)


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    run(lambda: main(*arguments))
