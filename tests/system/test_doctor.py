"""The doctor finds nothing wrong with a healthy store, and each broken rule by its name."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from redis.asyncio import Redis
from sqlalchemy import text

from floodmark.coordination.leases.sql import SqlLeases
from floodmark.model.batch import Batch, Item
from floodmark.model.clock import SystemClock
from floodmark.model.fleet import Finding
from floodmark.model.outcome import Dead, Retry, Snooze
from floodmark.observability.events import Events
from floodmark.operations.doctor import Doctor
from floodmark.repositories.fleet import FleetRepository
from floodmark.repositories.jobs import Jobs
from floodmark.settings import Settings
from floodmark.sources.cookies.browser import BrowserMissing
from floodmark.sources.cookies.checkup import check_browser
from floodmark.sources.form import CheckTools
from floodmark.store.database import open_database
from system.stores import AnyDatabase, Crew, a_spec, put_execution

HOUR = timedelta(hours=1)
_ONCE = "uq_job_executions_job_id_scheduled_for"


def a_doctor(database: AnyDatabase, redis: Redis | None = None) -> Doctor:
    return Doctor(database, SystemClock(), leases=SqlLeases(database, SystemClock()), redis=redis)


@pytest.fixture
def doctor(database: AnyDatabase) -> Doctor:
    return a_doctor(database)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(redis_url)
    yield client
    await client.aclose()


@pytest.fixture
async def staffed(database: AnyDatabase) -> None:
    """A leader and a worker."""
    await SqlLeases(database, SystemClock()).acquire("scheduler-leader", holder="host-1", ttl=HOUR)
    fleet = FleetRepository(database, SystemClock())
    await fleet.record_presence("w", role="worker", hostname="h", pid=1, slots=4, busy=0, draining=False, ttl=HOUR)


@pytest.fixture
async def worked(jobs: Jobs, crew: Crew) -> None:
    """Executions in every state, items of several revisions, events sent and unsent."""
    names = ("done", "dead", "retry", "snoozed", "running", "cancelled", "deleted")
    done, dead, retry, snoozed, running, cancelled, deleted = [await jobs.add(a_spec(name)) for name in names]
    for data in (1, 2):
        await crew.collect(jobs, done, Batch([Item("a", data), Item("b", 1)], {"id": data}))
    await crew.relay()
    await crew.collect(jobs, dead, Batch([Item("c", 1)]))
    await crew.run(jobs, dead, Dead(error="x"))
    await crew.run(jobs, retry, Retry(after=HOUR, error="x"))
    await crew.run(jobs, snoozed, Snooze(after=HOUR, reason="wait", key="k"))
    lease = await crew.start(jobs, running)
    await crew.keeping.keep(lease, Batch([Item("d", 1)], {"id": 1}))
    await jobs.force_run(running)
    await jobs.force_run(cancelled)
    await jobs.cancel(cancelled)
    await crew.start(jobs, deleted)
    await jobs.remove(deleted)


async def execute(database: AnyDatabase, *statements: str) -> None:
    async with database.writing() as connection:
        for statement in statements:
            await connection.execute(text(statement))


def bad(findings: list[Finding]) -> list[str]:
    return [finding.code for finding in findings if not finding.ok]


@pytest.mark.spec("G2", "G3")
@pytest.mark.usefixtures("staffed", "worked")
async def test_a_healthy_store_has_nothing_wrong(doctor: Doctor) -> None:
    findings = await doctor.check()
    assert [finding for finding in findings if not finding.ok] == []
    assert {"database", "schema", "clock", "leader", "workers", "I2.events", "I10"} <= {f.code for f in findings}
    assert {finding.code for finding in findings if finding.hint} == {"dead letters"}


@pytest.mark.spec("T8")
async def test_who_is_missing_is_told(doctor: Doctor) -> None:
    findings = {finding.code: finding for finding in await doctor.check()}
    assert bad(list(findings.values())) == ["leader", "workers"]
    assert "floodmark scheduler" in findings["leader"].hint
    assert "floodmark worker" in findings["workers"].hint


async def test_a_database_without_tables_is_not_examined_further(empty_database: AnyDatabase) -> None:
    findings = await a_doctor(empty_database).check()
    assert [(finding.code, finding.ok) for finding in findings] == [("database", True), ("schema", False)]
    assert findings[1].hint == "bring it up to date: floodmark migrate"


async def test_a_database_that_does_not_answer_is_told() -> None:
    database = open_database("postgresql://nobody@127.0.0.1:1/nothing", events=Events())
    [finding] = await a_doctor(database).check()
    assert (finding.code, finding.ok) == ("database", False)
    await database.close()


@pytest.mark.spec("G2", "G3", "G4")
@pytest.mark.usefixtures("staffed", "worked")
@pytest.mark.parametrize(
    ("damage", "code"),
    [
        ("DELETE FROM outbox WHERE key = 'd'", "I2.events"),
        ("UPDATE items SET revision = 9 WHERE key = 'c'", "I2.items"),
        ("UPDATE outbox SET revision = 1 WHERE key = 'a'", "I2.once"),
        ("UPDATE watermarks SET fence = 0 WHERE stream = 'python:done'", "I3"),
        ("UPDATE executions SET fence = 99 WHERE state = 'running'", "I4"),
        ("UPDATE executions SET lease_until = '2020-01-01 00:00:00+00:00' WHERE state = 'running'", "I6.running"),
        ("UPDATE executions SET not_before = '2020-01-01 00:00:00+00:00' WHERE hold IS NULL", "I6.waiting"),
        ("UPDATE outbox SET position = 1000 - position WHERE position IS NOT NULL", "I8.order"),
        ("UPDATE outbox SET position = 1000 + position WHERE position = 3", "I8.gapless"),
        ("UPDATE outbox SET created_at = '2020-01-01 00:00:00+00:00' WHERE position IS NULL", "I8.relayed"),
        ("UPDATE executions SET completed_at = NULL WHERE state = 'done'", "states"),
        ("UPDATE executions SET worker = NULL WHERE state = 'running'", "states"),
    ],
)
async def test_damage_is_found_by_the_rule_it_breaks(
    doctor: Doctor, database: AnyDatabase, damage: str, code: str
) -> None:
    await execute(database, damage)
    findings = await doctor.check()
    assert code in bad(findings)
    assert all(finding.hint for finding in findings if not finding.ok)


@pytest.mark.thorough
async def test_a_queue_that_does_not_move_is_told(doctor: Doctor, jobs: Jobs, database: AnyDatabase) -> None:
    await jobs.force_run(await jobs.add(a_spec()))
    assert "I6.queued" not in bad(await doctor.check())
    await execute(database, "UPDATE executions SET queue_rank = '2020-01-01 00:00:00+00:00'")
    assert "I6.queued" in bad(await doctor.check())
    await put_execution(
        database, job_id="x", state="running", completed_at=None, worker="w", fence=1,
        lease_until=SystemClock().now() + HOUR,
    )  # fmt: skip
    assert "I6.queued" not in bad(await doctor.check())


@asynccontextmanager
async def _firing_twice(database: AnyDatabase) -> AsyncIterator[None]:
    """Without the constraint that prevents it. PostgreSQL gets it back, since other tests use the same tables."""
    changing = "ALTER TABLE executions"
    if database.dialect == "sqlite":
        copying = "CREATE TABLE copied AS SELECT * FROM executions"
        dropping = ("DROP VIEW job_executions", "DROP TABLE executions")
        await execute(database, copying, *dropping, "ALTER TABLE copied RENAME TO executions")
        yield
        return
    await execute(database, f"{changing} DROP CONSTRAINT {_ONCE}")
    try:
        yield
    finally:
        again = f"{changing} ADD CONSTRAINT {_ONCE} UNIQUE (job_id, scheduled_for)"
        await execute(database, "DELETE FROM executions", again)


@pytest.mark.spec("G1")
async def test_an_instant_that_fired_twice_is_found(doctor: Doctor, database: AnyDatabase) -> None:
    now = SystemClock().now()
    async with _firing_twice(database):
        for _ in range(2):
            await put_execution(database, scheduled_for=now)
        assert "I10" in bad(await doctor.check())


@pytest.mark.usefixtures("staffed", "worked")
async def test_pruned_events_are_not_missed(doctor: Doctor, crew: Crew, database: AnyDatabase) -> None:
    old = "'2020-01-01 00:00:00+00:00'"
    await execute(
        database,
        f"UPDATE outbox SET created_at = {old} WHERE seq <= 2",
        f"UPDATE items SET collected_at = {old} WHERE key = 'b'",
    )
    assert await crew.upkeep.prune(history=HOUR, events=HOUR, limit=100) == 2
    assert bad(await doctor.check()) == []


@pytest.mark.spec("E9", "V2")
async def test_redis_is_examined(database: AnyDatabase, redis: Redis) -> None:
    findings = {finding.code: finding for finding in await a_doctor(database, redis).check()}
    for code in ("redis", "redis.version", "redis.eviction", "redis.clock", "I5"):
        assert findings[code].ok, findings[code]


@pytest.mark.spec("G2")
@pytest.mark.thorough
async def test_an_execution_only_redis_knows_is_found(database: AnyDatabase, jobs: Jobs, redis: Redis) -> None:
    forced = await jobs.force_run(await jobs.add(a_spec()))
    await redis.hset("crawler:jobs:known", forced.execution_id, "2:1-1")
    assert "I5" not in bad(await a_doctor(database, redis).check())
    await redis.hset("crawler:jobs:known", "stranger", "2:1-2")
    found = next(finding for finding in await a_doctor(database, redis).check() if finding.code == "I5")
    assert not found.ok
    assert "stranger" in found.text


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_redis_that_forgets_is_told(database: AnyDatabase, redis: Redis, policy: str) -> None:
    await redis.config_set("maxmemory-policy", policy)
    try:
        findings = {finding.code: finding for finding in await a_doctor(database, redis).check()}
    finally:
        await redis.config_set("maxmemory-policy", "noeviction")
    assert not findings["redis.eviction"].ok
    assert "noeviction" in findings["redis.eviction"].hint


async def test_a_redis_that_is_away_does_not_end_the_examination(database: AnyDatabase) -> None:
    away = Redis.from_url("redis://127.0.0.1:1/0")
    findings = {finding.code: finding for finding in await a_doctor(database, away).check()}
    assert not findings["redis"].ok
    assert findings["I10"].ok
    await away.aclose()


@pytest.mark.spec("E8")
async def test_scans_without_a_browser_are_told(database: AnyDatabase, jobs: Jobs, staffed: None) -> None:
    def missing() -> Path:
        raise BrowserMissing("no Chromium was found", hint="install one")

    async def told(hostname: str, find_browser: Callable[[], Path]) -> list[Finding]:
        workers = await FleetRepository(database, SystemClock()).workers()
        tools = CheckTools(database=database, settings=Settings(hostname=hostname), workers=workers)
        return await check_browser(tools, find_browser)

    assert not await told("h", missing)
    await jobs.add(a_spec("shop.test", source="cookies", name="scan"))
    text = "no Chromium was found, as for scan"
    assert await told("h", missing) == [Finding(code="browser", ok=False, text=text, hint="install one")]
    assert [finding.ok for finding in await told("h", lambda: Path("/usr/bin/chromium"))] == [True]
    # The scans run where the workers are.
    assert not await told("elsewhere", missing)
    clock = SystemClock()
    chosen = Settings(hostname="h", floodmark_chromium=Path("/nowhere/chromium"))
    doctor = Doctor(database, clock, leases=SqlLeases(database, clock), settings=chosen)
    assert [finding.ok for finding in await doctor.check() if finding.code == "browser"] == [False]


async def test_a_clock_that_is_off_is_told(database: AnyDatabase) -> None:
    class Late(SystemClock):
        def now(self) -> datetime:
            return super().now() - timedelta(seconds=5)

    doctor = Doctor(database, Late(), leases=SqlLeases(database, Late()))
    findings = {finding.code: finding for finding in await doctor.check()}
    # SQLite has no clock but that of the process.
    assert findings["clock"].ok == (database.dialect == "sqlite")
    if database.dialect == "postgresql":
        assert "differ by 5.0 s" in findings["clock"].text


@pytest.mark.spec("G3", "T7")
async def test_a_stream_is_compared_with_what_it_should_hold(
    doctor: Doctor, jobs: Jobs, crew: Crew, database: AnyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("floodmark.operations.doctor._KEYS_AT_ONCE", 2)
    job = await jobs.add(a_spec(stream="news"))
    await crew.collect(jobs, job, Batch([Item(key, 1) for key in "abcd"]), Batch([Item("a", 2)]))

    assert bad(await doctor.check_stream("news", "abcd")) == []
    missing, unexpected, events = await doctor.check_stream("news", "bcdef")
    assert (missing.ok, missing.text) == (False, "items are missing: e, f")
    assert (unexpected.ok, unexpected.text) == (False, "items are unexpected: a")
    assert events.text == "4 items with 5 revisions, 5 events of which 5 differ"
    await execute(database, "DELETE FROM outbox WHERE key = 'd'")
    assert bad(await doctor.check_stream("news", "abcd")) == ["I2"]
