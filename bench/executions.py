"""No-op executions with full durable history, beside raw loops that keep no history at all.

python run.py bench executions [executions] [rounds]
"""

import asyncio
import json
import sqlite3
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct
from redis.asyncio import Redis
from sqlalchemy import text

from floodmark.ids import new_id
from floodmark.parts import Parts
from floodmark.scheduler.scheduler import Scheduler
from floodmark.settings import Settings
from floodmark.sinks.sql import SqlSink
from floodmark.sources.python import Collector, PythonSource
from floodmark.telemetry.events import ExecutionSettled
from floodmark.upkeep.leader import Leader
from floodmark.worker.executor import Executor
from floodmark.worker.retries import Retries
from floodmark.worker.worker import Worker

from ._measuring import Report, Watch, both_servers, floodmark, folder, interleaved, nothing, run

PAYLOAD = {"id": "x" * 32, "data": "y" * 168}


class Round(Struct, frozen=True):
    """One measurement: how fast executions were made, and what running them took."""

    made_per_second: float
    drain: Watch


async def raw_batched(redis: Redis, count: int) -> Round:
    """The reference: batched XADD, XREADGROUP 100, one asyncio task a job, XACK and XDEL. Returns adds/s, drain."""
    await redis.flushall()
    await redis.xgroup_create("raw", "g", "0", mkstream=True)
    enqueue, drain = Watch(), Watch()
    with enqueue.running():
        for _ in range(count // 100):
            async with redis.pipeline(transaction=False) as pipeline:
                for _ in range(100):
                    pipeline.xadd("raw", PAYLOAD)  # type: ignore[arg-type]
                await pipeline.execute()

    async def job() -> None:
        return

    with drain.running():
        done = 0
        while done < count:
            answer: Any = await redis.xreadgroup("g", "c", {"raw": ">"}, count=100)
            entries = answer[0][1]
            await asyncio.gather(*(asyncio.create_task(job()) for _ in entries))
            ids = [entry[0] for entry in entries]
            await redis.xack("raw", "g", *ids)
            await redis.xdel("raw", *ids)
            done += len(ids)
    return Round(count / enqueue.wall, drain)


async def raw_single(redis: Redis, count: int) -> Round:
    """The other reference: one job at a time."""
    await redis.flushall()
    await redis.xgroup_create("raw", "g", "0", mkstream=True)
    for _ in range(count // 100):
        async with redis.pipeline(transaction=False) as pipeline:
            for _ in range(100):
                pipeline.xadd("raw", PAYLOAD)  # type: ignore[arg-type]
            await pipeline.execute()
    drain = Watch()
    with drain.running():
        for _ in range(count):
            answer: Any = await redis.xreadgroup("g", "c", {"raw": ">"}, count=1)
            await redis.xack("raw", "g", answer[0][1][0][0])
    return Round(0.0, drain)


async def raw_sqlite(path: Path, count: int) -> Round:
    """The reference without Redis: claim and finish 100 rows at a time, under ids like ours, payload decoded."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("DROP TABLE IF EXISTS raw")
    connection.execute("CREATE TABLE raw (id TEXT PRIMARY KEY, payload TEXT, state TEXT)")
    connection.execute("CREATE INDEX waiting ON raw (id) WHERE state = 'queued'")
    connection.execute("BEGIN")
    rows = [(new_id(), json.dumps(PAYLOAD)) for _ in range(count)]
    connection.executemany("INSERT INTO raw (id, payload, state) VALUES (?, ?, 'queued')", rows)
    connection.execute("COMMIT")
    drain = Watch()
    with drain.running():
        while claimed := _claim_raw(connection):
            jobs = [json.loads(payload) for _, payload in claimed]
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("UPDATE raw SET state = 'done' WHERE id = ?", [(i,) for i, _ in claimed])
            connection.execute("COMMIT")
            assert len(jobs) == len(claimed)
    connection.close()
    return Round(0.0, drain)


def _claim_raw(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    connection.execute("BEGIN IMMEDIATE")
    rows = connection.execute(
        "UPDATE raw SET state = 'running' WHERE id IN (SELECT id FROM raw WHERE state = 'queued' LIMIT 100)"
        " RETURNING id, payload"
    ).fetchall()
    connection.execute("COMMIT")
    return rows


async def ours(settings: Settings, count: int) -> Round:
    """Jobs that are all due: fired by the scheduler, run by one worker. Returns fired/s, drain."""
    async with floodmark(settings) as parts:
        await _given_jobs(parts, count)
        enqueue, drain = Watch(), Watch()
        leader = Leader(parts.leases, parts.events, name="leader", holder="bench", ttl=timedelta(hours=1))
        await leader.step()
        scheduler = Scheduler(parts.firing, parts.queue, leader, parts.events)
        with enqueue.running():
            while await scheduler.step() == timedelta():
                pass
        with drain.running():
            await _drain(parts, count)
        await _check(parts, count)
    return Round(count / enqueue.wall, drain)


async def _given_jobs(parts: Parts, count: int) -> None:
    async with parts.database.writing() as connection:
        for start in range(0, count, 1000):
            rows = [{"id": new_id(), "name": f"job-{n}"} for n in range(start, min(count, start + 1000))]
            await connection.execute(
                text(
                    "INSERT INTO jobs (job_id, name, target, stream, schedule_type)"
                    " VALUES (:id, :name, 'nothing', :name, 'immediate')"
                ),
                rows,
            )
    async with parts.database.reading() as connection:
        if parts.database.dialect == "postgresql":
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await connection.execute(text("VACUUM ANALYZE"))


async def _drain(parts: Parts, count: int) -> None:
    sources = {"python": PythonSource({"nothing": Collector(function=nothing)})}
    retries = Retries(base=timedelta(seconds=1), longest=timedelta(seconds=10))
    executor = Executor(sources, SqlSink(parts.keeping, parts.events), retries, asyncio.Event())
    settings = parts.settings
    worker = Worker(
        parts.queue,
        executor,
        parts.events,
        name="bench",
        slots=settings.scheduler_worker_pool_size,
        batch=settings.scheduler_queue_batch_size,
        ttl=settings.execution_lease,
    )
    done = 0

    def settled(event: ExecutionSettled) -> None:
        nonlocal done
        done += 1
        if done == count:
            worker.stop()

    parts.events.listen(ExecutionSettled, settled)
    await worker.run()


async def _check(parts: Parts, count: int) -> None:
    async with parts.database.reading() as connection:
        found = (await connection.execute(text("SELECT count(*) FROM job_executions WHERE state = 'done'"))).scalar()
    if found != count:
        raise SystemExit(f"{found} of {count} executions are in the history")


async def main(count: int = 20_000, rounds: int = 3) -> None:
    with both_servers() as (postgres, valkey), folder() as place:
        redis = Redis.from_url(valkey.url, protocol=2)
        names = iter(range(1_000_000))

        async def on_servers() -> Round:
            await redis.flushall()
            name = f"bench{next(names)}"
            try:
                return await ours(Settings(database_url=postgres.create_database(name), redis_url=valkey.url), count)
            finally:
                postgres.drop_database(name)

        async def embedded() -> Round:
            return await ours(Settings(database_url=f"sqlite:///{place}/{next(names)}.db"), count)

        measured = await interleaved(
            rounds,
            lambda: raw_batched(redis, count),
            lambda: raw_single(redis, count // 4),
            lambda: raw_sqlite(place / "raw.db", count),
            on_servers,
            embedded,
        )
        await redis.aclose()
    _report(count, rounds, measured)


def _report(count: int, rounds: int, measured: Sequence[Sequence[Round]]) -> None:
    batched, single, sqlite, servers, alone = measured

    def cpu(of: Sequence[Round]) -> float:
        return median(one.drain.cpu / count * 1e6 for one in of)

    def rate(of: Sequence[Round], number: int = count) -> float:
        return median(number / one.drain.wall for one in of)

    def made(of: Sequence[Round]) -> float:
        return median(one.made_per_second for one in of)

    report = Report(f"{count:,} no-op executions, median of {rounds} interleaved rounds")
    report.add(
        "worker CPU per execution, Redis + PostgreSQL, full history",
        f"{cpu(servers):.0f} us",
        f"{cpu(batched):.0f} us raw batched loop, a task a job",
        f"{cpu(servers) / cpu(batched):.1f}x",
        "<= 9x",
    )
    report.add(
        "worker CPU per execution, embedded on SQLite, full history",
        f"{cpu(alone):.0f} us",
        f"{cpu(sqlite):.0f} us raw SQLite loop",
        f"{cpu(alone) / cpu(sqlite):.1f}x",
        "<= 8x",
    )
    one_by_one = rate(single, count // 4)
    report.add(
        "drain rate, one worker process, Redis + PostgreSQL",
        f"{rate(servers):,.0f}/s",
        f"{one_by_one:,.0f}/s raw loop, one at a time",
        f"{rate(servers) / one_by_one:.2f}x",
        ">= 2.2x",
    )
    report.add("drain rate, embedded on SQLite", f"{rate(alone):,.0f}/s", f"{rate(sqlite):,.0f}/s raw SQLite loop")
    report.add(
        "fired in bulk (row + stream entry), Redis + PostgreSQL",
        f"{made(servers):,.0f}/s",
        f"{made(batched):,.0f}/s raw batched XADD",
        f"{made(servers) / made(batched):.2f}x",
        ">= 0.25x",
    )
    report.add("fired in bulk, embedded on SQLite", f"{made(alone):,.0f}/s")
    report.print()


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    run(lambda: main(*arguments))
