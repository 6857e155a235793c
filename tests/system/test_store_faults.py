"""Databases in trouble: rolled back, locked, too new, on a network disk, restored from a backup, or very full."""

import asyncio
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import text

from floodmark.errors import Fenced, Unavailable
from floodmark.model.batch import Batch, Item, Kept
from floodmark.model.outcome import Done
from floodmark.observability.events import Events, StoreRetried
from floodmark.process import local_disk
from floodmark.sinks.sql import SqlSink
from floodmark.store.database import PostgresDatabase, SqliteDatabase, open_database
from floodmark.store.postgres import firing, leasing
from floodmark.store.postgres_connection import Connection
from floodmark.store.tables import items, jobs
from floodmark.testing.clock import SetClock
from floodmark.testing.contracts.sink import relay_events
from floodmark.testing.factories import (
    Opened,
    count_of,
    given_executions,
    given_job,
    given_lease,
    given_queued,
    job_of,
    rescue,
    rows_of,
    settle,
    take,
)
from floodmark.wiring.resources import Resources

pytest_plugins = ("backends",)

HOUR = timedelta(hours=1)


@pytest.fixture(params=["sqlite", "postgres_only"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.mark.spec("G3")
async def test_a_step_that_the_server_rolled_back_is_done_again(postgres_only: Opened) -> None:
    """Two transactions that wait for each other, a conflict of transactions, and a lock that is not free in time."""
    events = Events()
    retried: list[str] = []
    events.listen(StoreRetried, lambda event: retried.append(event.reason))
    async with postgres_only(events=events) as resources:
        database = resources.database
        assert isinstance(database, PostgresDatabase)
        first, second = [await given_job(resources) for _ in range(2)]
        both_have_one, arrived = asyncio.Event(), list[str]()

        async def crossing(one: str, other: str) -> None:
            async def work(connection: Connection) -> None:
                async with connection.transaction():
                    await connection.execute("UPDATE jobs SET version = version + 1 WHERE job_id = $1", one)
                    arrived.append(one)
                    if len(arrived) == 2:
                        both_have_one.set()
                    await both_have_one.wait()
                    await connection.execute("UPDATE jobs SET version = version + 1 WHERE job_id = $1", other)

            await database.hot("crossing", work)

        await asyncio.gather(crossing(first, second), crossing(second, first))
        assert [(await job_of(resources, job_id))["version"] for job_id in (first, second)] == [3, 3]
        assert retried == ["DeadlockDetectedError"]

        for code, name in (("40001", "SerializationError"), ("55P03", "LockNotAvailableError")):
            tries = iter([True, False])

            async def refused_once(connection: Connection, code: str = code, tries: object = tries) -> int:
                if next(tries):  # type: ignore[call-overload]
                    await connection.execute(f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END $$")
                return int(await connection.fetchval("SELECT 1"))

            assert await database.hot("refused", refused_once) == 1
            assert retried[-1] == name


@pytest.mark.spec("G9")
async def test_a_locked_sqlite_is_waited_for_and_then_an_error(sqlite: Opened) -> None:
    """Another program holds it: for a moment, then for longer than anybody waits. Afterwards all is well."""
    async with sqlite() as resources:
        database = resources.database
        assert isinstance(database, SqliteDatabase)
        with closing(sqlite3.connect(database.path, isolation_level=None, check_same_thread=False)) as other:
            await wait_for_locks(database, milliseconds=60_000)
            other.execute("BEGIN EXCLUSIVE")
            waiting = asyncio.create_task(write_something(database))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            other.execute("COMMIT")
            assert await waiting == 1

            await wait_for_locks(database, milliseconds=500)
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                await write_something(database)
            other.execute("COMMIT")
        assert await write_something(database) == 1


async def wait_for_locks(database: SqliteDatabase, *, milliseconds: int) -> None:
    pragma = f"PRAGMA busy_timeout={milliseconds}"
    await database.hot("patience", lambda connection: connection.execute(pragma).fetchall())


async def write_something(database: SqliteDatabase) -> int:
    """A step that writes; how many rows it changed."""
    statement = "INSERT INTO limits (key, until, reason) VALUES ('k', '2000', 'r') ON CONFLICT DO UPDATE SET hits = 0"
    return await database.hot("write", lambda connection: connection.execute(statement).rowcount)


@pytest.mark.spec("G9")
def test_sqlite_is_refused_on_a_network_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel lists its mounts: the nearest one above the folder counts, and the last one on the same place."""
    shared, local = tmp_path / "on a share", tmp_path / "on a share" / "local"
    local.mkdir(parents=True)
    mounts = tmp_path / "mountinfo"
    spelled = str(shared).replace(" ", "\\040")
    line = "{n} 1 0:5 / {point} rw,relatime shared:9 - {kind} server:/export rw"
    points = [("/", "ext4"), (spelled, "ext4"), (spelled, "nfs4"), (f"{spelled}/local", "xfs")]
    mounts.write_text("\n".join(line.format(n=n, point=point, kind=kind) for n, (point, kind) in enumerate(points)))
    monkeypatch.setattr(local_disk, "MOUNTS", mounts)
    (tmp_path / "link").symlink_to(shared)

    for folder in (shared, tmp_path / "link"):
        with pytest.raises(Unavailable, match=r"network file system \(nfs4\)") as refused:
            open_database(f"sqlite:///{folder}/floodmark.db", events=Events())
        assert "local disk" in refused.value.hint
        assert not (folder / "floodmark.db").exists()
    for folder in (local, tmp_path):
        asyncio.run(open_database(f"sqlite:///{folder}/floodmark.db", events=Events()).close())
    monkeypatch.setattr(local_disk, "MOUNTS", tmp_path / "not Linux")
    asyncio.run(open_database(f"sqlite:///{shared}/floodmark.db", events=Events()).close())


@pytest.mark.spec("E2", "G9")
async def test_a_process_refuses_a_schema_that_is_newer_than_itself(opened: Opened) -> None:
    """Before it takes any work."""
    async with opened() as resources:
        await given_queued(resources)
        [[revision]] = await _typed(resources, "SELECT version_num FROM alembic_version")
        await _typed(resources, "UPDATE alembic_version SET version_num = '9999'")
        try:
            with pytest.raises(Unavailable, match="schema 9999, which is newer than this version"):
                async with opened():
                    pass
        finally:
            await _typed(resources, f"UPDATE alembic_version SET version_num = '{revision}'")
        assert len(await take(resources)) == 1


async def _typed(resources: Resources, statement: str) -> list[tuple[str, ...]]:
    async with resources.database.writing() as connection:
        found = await connection.execute(text(statement))
        return [tuple(row) for row in found] if found.returns_rows else []


@pytest.mark.spec("G2", "G3")
async def test_a_restored_backup_collects_again_and_doubles_nothing(
    redis_on_sqlite: Opened, sqlite_copy: str, tmp_path: Path
) -> None:
    """The watermark is behind, events are unsent that were sent, and Redis knows executions that the store does not."""
    path, backup = Path(sqlite_copy.removeprefix("sqlite:///")), tmp_path / "backup.db"
    async with redis_on_sqlite() as resources:
        lease = await given_lease(resources)
        await SqlSink(resources.keeping, resources.events).keep(lease, Batch([Item("1", {})], {"id": 1}))
        await settle(resources, lease, Done())
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(backup)) as target:
            source.backup(target)
        sent = await _collect_rest(resources, lease.job.job_id)
        await given_queued(resources, 2)
    for file in path.parent.glob(f"{path.name}-*"):
        file.unlink()
    shutil.copy(backup, path)

    async with redis_on_sqlite() as resources:
        assert await take(resources) == [], "only Redis knows them"
        assert await _collect_rest(resources, lease.job.job_id) == sent
        assert [row["key"] for row in await rows_of(resources, items)] == ["1", "2", "3"]


async def _collect_rest(resources: Resources, job_id: str) -> list[tuple[str, str]]:
    """Another run of the job, from where its watermark is; the keys and ids of all events that are sent then."""
    await given_executions(resources, [job_id])
    [lease] = await take(resources)
    assert lease.watermark == {"id": 1}
    batch = Batch([Item("1", {}), Item("2", {}), Item("3", {})], {"id": 3})
    assert await SqlSink(resources.keeping, resources.events).keep(lease, batch) == Kept(new=2, known=1)
    await settle(resources, lease, Done())
    return [(event.key, event.event_id) for event in await relay_events(resources)]


@pytest.mark.spec("G3", "V6")
async def test_clocks_of_processes_that_are_wrong_change_no_lease(postgres_only: Opened) -> None:
    """One is an hour ahead, one an hour behind: the clock of the database decides."""
    now = datetime.now(UTC)
    async with postgres_only(clock=SetClock(now - HOUR)) as behind, postgres_only(clock=SetClock(now + HOUR)) as ahead:
        lease = await given_lease(behind)
        assert await rescue(ahead) == []
        assert not (await ahead.queue.extend([lease], ttl=timedelta(seconds=60))).lost
        assert await settle(behind, lease, Done())


SKEWED = """
CREATE SCHEMA skewed;
CREATE TABLE skewed.skew AS SELECT interval '0' AS by;
CREATE FUNCTION skewed.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql
    AS 'SELECT pg_catalog.clock_timestamp() + by FROM skewed.skew';
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = skewed, public, pg_catalog', current_database()); END $$
"""
RIGHT_AGAIN = """
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET search_path', current_database()); END $$;
DROP SCHEMA IF EXISTS skewed CASCADE
"""


async def run_sql(resources: Resources, statements: str) -> None:
    """Run statements on a PostgreSQL."""
    assert isinstance(resources.database, PostgresDatabase)
    await resources.database.hot("sql", lambda connection: connection.execute(statements))


@pytest.mark.spec("G3", "V6")
async def test_a_database_whose_clock_jumps_ends_leases_early_and_nothing_else(postgres_only: Opened) -> None:
    """Two hours ahead and four back: a worker that is replaced too early changes nothing, and all is kept once.

    The function that tells the time is replaced by one that adds the jump.
    """
    async with postgres_only() as setting_up:
        await run_sql(setting_up, RIGHT_AGAIN)
        await run_sql(setting_up, SKEWED)
        try:
            async with postgres_only() as resources:
                sink = SqlSink(resources.keeping, resources.events)
                first = await given_lease(resources)
                await sink.keep(first, Batch([Item("1", {})], {"id": 1}))

                await run_sql(setting_up, "UPDATE skewed.skew SET by = interval '2 hours'")
                assert [queued.execution_id for queued in await rescue(resources)] == [first.execution_id]
                [second] = await take(resources, worker="b")
                assert second.watermark == {"id": 1}
                with pytest.raises(Fenced):
                    await sink.keep(first, Batch([Item("2", {})], {"id": 2}))
                assert not await settle(resources, first, Done())

                await run_sql(setting_up, "UPDATE skewed.skew SET by = interval '-2 hours'")
                assert await rescue(resources) == []
                assert not (await resources.queue.extend([second], ttl=timedelta(seconds=60))).lost
                await sink.keep(second, Batch([Item("2", {})], {"id": 2}))
                assert await settle(resources, second, Done())
                assert [event.key for event in await relay_events(resources)] == ["1", "2"]
                assert await take(resources) == []
        finally:
            await run_sql(setting_up, RIGHT_AGAIN)


@pytest.mark.spec("G8")
@pytest.mark.parametrize("count", [20_000, pytest.param(300_000, marks=pytest.mark.release)])
@pytest.mark.thorough
async def test_due_and_queued_rows_are_read_by_index_however_many_there_are(
    postgres_only: Opened, pg_clean: str, count: int
) -> None:
    """Many jobs of which five are due, as many queued executions of which three are wanted."""
    # On a connection without a time limit.
    typed = await asyncpg.connect(pg_clean)
    await typed.execute(
        f"""INSERT INTO jobs (job_id, name, target, schedule_type, interval_seconds, next_run)
            SELECT 'j' || n, 'j' || n, 't' || n, 'interval', 60,
                   now() + CASE WHEN n > 5 THEN 1 ELSE -1 END * interval '1 hour' FROM generate_series(1, {count}) n;
            INSERT INTO executions (execution_id, job_id, job_name, scheduled_for, state, priority, queue_rank)
            SELECT 'x' || n, 'j' || n, 'j' || n, now(), 'queued', 2, now() + n * interval '1 ms'
              FROM generate_series(1, {count}) n;
            ANALYZE"""
    )
    await typed.close()
    async with postgres_only() as resources:
        database = resources.database
        assert isinstance(database, PostgresDatabase)

        async def planned(connection: Connection) -> list[str]:
            due = await (await connection.prepare(firing._DUE)).explain(10, datetime.now(UTC))
            claim = await (await connection.prepare(leasing._CLAIM_NEXT)).explain(HOUR, "w", 3)
            return [str(due), str(claim)]

        due, claim = await database.hot("explain", planned)
        assert "ix_jobs_next_run" in due
        assert "Seq Scan" not in due
        assert "ix_job_executions_queued" in claim
        assert "Seq Scan" not in claim
        assert len(await take(resources, 3)) == 3
        assert await count_of(resources, jobs) == count
