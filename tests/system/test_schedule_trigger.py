"""SQL typed by hand: a change of when a job runs is noticed by the database itself."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from sqlalchemy import select

from floodmark.model.clock import SystemClock
from floodmark.observability.events import Events
from floodmark.store.database import open_database
from floodmark.store.migrate import migrate
from floodmark.store.tables import WHEN_COLUMNS, jobs
from system.stores import AnyDatabase

pytestmark = pytest.mark.every_database

PLANNED = datetime(2030, 1, 1, tzinfo=UTC)
CHANGES = {
    "schedule_type": "'cron'",
    "cron_expression": "'0 3 * * *'",
    "interval_seconds": "60",
    "frequency": "'daily'",
    "time_config": """'{"hour": 3}'""",
    "timezone": "'Europe/Berlin'",
    "schedule_enabled": "FALSE",
    "paused": "TRUE",
    "scheduler_version": "1",
    "budget": "'news'",
    "max_delay_seconds": "600",
    "weight": "2",
}
OTHERS = {
    "name": "'other'",
    "target": "'other'",
    "params": """'{"a": 1}'""",
    "tags": """'["a"]'""",
    "priority": "1",
    "timeout_seconds": "5",
    "retry_max": "9",
    "overlap": "'queue'",
    "pause_reason": "'why'",
    "last_status": "'done'",
    "last_run": "'2026-01-01 00:00:00+00:00'",
    "next_run": "'2030-01-01 00:00:00+00:00'",
}


async def execute(database: AnyDatabase, *statements: str) -> None:
    async with database.writing() as connection:
        for statement in statements:
            await connection.exec_driver_sql(statement)


async def the_job(database: AnyDatabase) -> dict[str, Any]:
    async with database.reading() as connection:
        return dict((await connection.execute(select(jobs))).mappings().one())


@pytest.fixture
async def planned(database: AnyDatabase) -> None:
    """A job as the scheduler leaves it, with a complaint it had about it."""
    await execute(
        database,
        """INSERT INTO jobs (name, target, interval_seconds, next_run, planned_until, invalid_reason)
           VALUES ('typed', 't', 900, '2030-01-01 00:00:00+00:00', '2020-01-01 00:00:00+00:00', 'bad')""",
    )


def test_every_when_column_is_tried() -> None:
    assert set(CHANGES) == set(WHEN_COLUMNS)


@pytest.mark.spec("E4")
@pytest.mark.usefixtures("planned")
@pytest.mark.parametrize("column", CHANGES)
async def test_a_changed_when_column_makes_the_scheduler_plan_anew(database: AnyDatabase, column: str) -> None:
    await execute(database, f"UPDATE jobs SET {column} = {CHANGES[column]}")

    job = await the_job(database)

    now = SystemClock().now()
    assert (job["next_run"], job["invalid_reason"], job["version"]) == (None, None, 2)
    assert abs(now - job["planned_until"]) < timedelta(minutes=2)
    assert abs(now - job["updated_at"]) < timedelta(minutes=2)


@pytest.mark.spec("E4")
@pytest.mark.usefixtures("planned")
@pytest.mark.parametrize("column", OTHERS)
async def test_other_columns_leave_the_plan_alone(database: AnyDatabase, column: str) -> None:
    await execute(database, f"UPDATE jobs SET {column} = {OTHERS[column]}")

    job = await the_job(database)

    assert (job["next_run"], job["invalid_reason"], job["version"]) == (PLANNED, "bad", 1)
    assert job["planned_until"] == datetime(2020, 1, 1, tzinfo=UTC)


@pytest.mark.usefixtures("planned")
async def test_writing_what_is_already_there_is_no_change(database: AnyDatabase) -> None:
    await execute(database, "UPDATE jobs SET interval_seconds = 900, cron_expression = NULL, paused = FALSE")
    assert (await the_job(database))["next_run"] == PLANNED


@pytest.mark.usefixtures("planned")
async def test_a_change_to_nothing_is_a_change(database: AnyDatabase) -> None:
    await execute(database, "UPDATE jobs SET interval_seconds = NULL")
    assert (await the_job(database))["next_run"] is None


@pytest.mark.spec("E4")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE jobs SET interval_seconds = 60",
        "INSERT INTO jobs (name, target) VALUES ('another', 't')",
        "DELETE FROM jobs",
    ],
)
@pytest.mark.thorough
async def test_postgresql_tells_everyone_at_once(pg_url: str, statement: str) -> None:
    database = open_database(pg_url, events=Events())
    await migrate(database)
    await execute(database, "INSERT INTO jobs (name, target, interval_seconds) VALUES ('typed', 't', 900)")
    heard: asyncio.Queue[object] = asyncio.Queue()
    listener = await asyncpg.connect(pg_url)
    try:
        await listener.add_listener("floodmark", lambda *heard_: heard.put_nowait(heard_[-1]))
        await execute(database, statement)
        assert await asyncio.wait_for(heard.get(), 60) == "jobs"
    finally:
        await listener.close()
        await database.close()


@pytest.mark.thorough
async def test_postgresql_is_silent_about_everything_else(pg_url: str) -> None:
    """The scheduler's own bookkeeping must not wake the scheduler."""
    database = open_database(pg_url, events=Events())
    await migrate(database)
    await execute(database, "INSERT INTO jobs (name, target) VALUES ('typed', 't')")
    heard: asyncio.Queue[object] = asyncio.Queue()
    listener = await asyncpg.connect(pg_url)
    try:
        await listener.add_listener("floodmark", lambda *heard_: heard.put_nowait(heard_[-1]))
        await execute(database, "UPDATE jobs SET next_run = now(), last_run = now()", "NOTIFY floodmark, 'the end'")
        assert await asyncio.wait_for(heard.get(), 60) == "the end"
    finally:
        await listener.close()
        await database.close()
