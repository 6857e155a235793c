"""Measurements of the benchmark of executions, each in its own process: raw loops, and a Floodmark worker.

A process gets its task as one JSON argument and prints its result as JSON.
"""

import asyncio
import json
import sqlite3
import sys
from datetime import timedelta
from typing import Any, Literal

import asyncpg
import msgspec
from msgspec import Struct
from redis.asyncio import Redis
from sqlalchemy import text

from floodmark.model.ids import new_id
from floodmark.observability.events import ExecutionSettled
from floodmark.scheduler.scheduler import Scheduler
from floodmark.settings import Settings
from floodmark.wiring.resources import Resources

from ._measuring import Watch, a_worker, floodmark, in_a_process, nothing, run, server_cpu, tell

PAYLOAD = {"id": "x" * 32, "data": "y" * 168}
Role = Literal["batched", "single", "sqlite", "postgres", "worker"]


class Place(Struct, kw_only=True):
    """The servers to use, and the number of executions. `server` is the process id of PostgreSQL."""

    count: int
    database: str = ""
    redis: str = ""
    server: int | None = None


class Round(Struct, frozen=True):
    """One measurement: the rate at which executions were created, and the cost of running them.

    `server`: the CPU seconds of PostgreSQL for both.
    """

    count: int
    made_per_second: float
    drain: Watch
    server: float = 0.0


async def measured(role: Role, place: Place) -> Round:
    """Measure in a fresh process, so that caches and garbage of earlier measurements have no effect."""
    return await in_a_process(__spec__.name, role, place, Round)


async def raw_batched(place: Place) -> Round:
    """Measure the reference: batched XADD, XREADGROUP 100, one task per job, XACK and XDEL. Return adds/s and drain."""
    redis, count = Redis.from_url(place.redis, protocol=2), place.count
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
    await redis.aclose()
    return Round(count, count / enqueue.wall, drain)


async def raw_single(place: Place) -> Round:
    """Measure the second reference: one job at a time."""
    redis, count = Redis.from_url(place.redis, protocol=2), place.count
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
    await redis.aclose()
    return Round(count, 0.0, drain)


async def raw_postgres(place: Place) -> Round:
    """Measure the reference of the server's CPU: rows inserted in bulk, claimed and finished 100 at a time."""
    connection, count = await asyncpg.connect(place.database), place.count
    await connection.execute("CREATE TABLE raw (id text PRIMARY KEY, payload text, state text)")
    await connection.execute("CREATE INDEX waiting ON raw (id) WHERE state = 'queued'")
    ids, before = [new_id() for _ in range(count)], server_cpu(place.server)
    for start in range(0, count, 1000):
        insert = "INSERT INTO raw SELECT unnest($1::text[]), $2, 'queued'"
        await connection.execute(insert, ids[start : start + 1000], json.dumps(PAYLOAD))
    drain = Watch()
    with drain.running():
        while claimed := await connection.fetch(
            "UPDATE raw SET state = 'running' WHERE id = ANY(ARRAY("
            "SELECT id FROM raw WHERE state = 'queued' ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED))"
            " RETURNING id, payload"
        ):
            jobs = [json.loads(payload) for _, payload in claimed]
            await connection.execute("UPDATE raw SET state = 'done' WHERE id = ANY($1)", [row[0] for row in claimed])
            assert len(jobs) == len(claimed)
    used = server_cpu(place.server) - before
    await connection.close()
    return Round(count, 0.0, drain, used)


async def raw_sqlite(place: Place) -> Round:
    """Measure the reference without Redis: claim and finish 100 rows at a time, ids like ours, payloads decoded."""
    connection, count = sqlite3.connect(place.database, isolation_level=None), place.count
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
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
    return Round(count, 0.0, drain)


def _claim_raw(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    connection.execute("BEGIN IMMEDIATE")
    rows = connection.execute(
        "UPDATE raw SET state = 'running' WHERE id IN (SELECT id FROM raw WHERE state = 'queued' LIMIT 100)"
        " RETURNING id, payload"
    ).fetchall()
    connection.execute("COMMIT")
    return rows


async def ours(place: Place) -> Round:
    """Measure Floodmark: the scheduler fires due jobs, and one worker runs them. Return fired/s and drain."""
    settings, count = Settings(database_url=place.database, redis_url=place.redis or None), place.count
    async with floodmark(settings) as resources:
        if resources.redis is not None:
            await resources.redis.flushall()
        await given_jobs(resources, count)
        enqueue, draining = Watch(), Watch()
        scheduler = Scheduler(resources.firing, resources.queue, resources.events)
        before = server_cpu(place.server)
        with enqueue.running():
            while await scheduler.step() == timedelta():
                pass
        await drain(resources, count, draining)
        used = server_cpu(place.server) - before
        await _check(resources, count)
    return Round(count, count / enqueue.wall, draining, used)


async def given_jobs(resources: Resources, count: int) -> None:
    """Create `count` jobs that are due."""
    async with resources.database.writing() as connection:
        for start in range(0, count, 1000):
            rows = [{"id": new_id(), "name": f"job-{n}"} for n in range(start, min(count, start + 1000))]
            await connection.execute(
                text(
                    "INSERT INTO jobs (job_id, name, target, stream, schedule_type)"
                    " VALUES (:id, :name, 'nothing', :name, 'immediate')"
                ),
                rows,
            )
    async with resources.database.reading() as connection:
        if resources.database.dialect == "postgresql":
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await connection.execute(text("VACUUM ANALYZE"))


async def drain(resources: Resources, count: int, watch: Watch) -> None:
    """Run one worker until it has settled `count` executions. The time that it takes to stop is not counted."""
    worker = a_worker(resources, nothing)
    done, over = 0, asyncio.Event()

    def settled(event: ExecutionSettled) -> None:
        nonlocal done
        done += 1
        if done == count:
            over.set()

    resources.events.listen(ExecutionSettled, settled)
    with watch.running():
        running = asyncio.create_task(worker.run())
        await over.wait()
    worker.stop()
    await running


async def _check(resources: Resources, count: int) -> None:
    async with resources.database.reading() as connection:
        found = (await connection.execute(text("SELECT count(*) FROM executions WHERE state = 'done'"))).scalar()
    if found != count:
        raise SystemExit(f"{found} of {count} executions are in the history")


_ROLES = {"batched": raw_batched, "single": raw_single, "sqlite": raw_sqlite, "postgres": raw_postgres, "worker": ours}


async def main(role: str, told: str) -> None:
    tell(await _ROLES[role](msgspec.json.decode(told, type=Place)))


if __name__ == "__main__":
    run(lambda: main(*sys.argv[1:]))
