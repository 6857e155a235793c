"""SQL that was written for other schedulers: their tables, columns and statements work on both databases."""

import json
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from floodmark.errors import InvalidInput
from floodmark.model.job import Frequency, ScheduleType
from floodmark.model.outcome import Dead, Done
from floodmark.model.spec import JobSpec
from floodmark.repositories.jobs import Jobs
from floodmark.settings import Settings
from floodmark.sources.cookies.scan_profiles import ScanProfiles
from floodmark.sources.cookies.source import CookiesSource
from floodmark.sources.port import Target
from floodmark.store.migrate import migrate
from floodmark.testing.contracts.source import a_context
from floodmark.triggers.parsing import when_of
from system.stores import AnyDatabase, Crew, a_spec

pytestmark = pytest.mark.every_database

_SCHEDULE = "0b4f3a52-6a9a-4a0e-9d8f-0d7d0c3f5a11"
_ADD = f"""
INSERT INTO schedules (schedule_id, domain_config_id, domain, frequency, time_config)
VALUES ('{_SCHEDULE}', 'abc-123', 'Shop.example', 'daily', '{{"hour": 2, "minute": 0}}')
"""
_COLUMNS_OF_SCHEDULES = (
    "schedule_id, domain_config_id, domain, profile_id, frequency, time_config, enabled, next_run, last_run,"
    " last_status, created_at, updated_at"
)
_COLUMNS_OF_EXECUTIONS = (
    "execution_id, schedule_id, job_id, domain, domain_config_id, status, started_at, completed_at, duration_seconds,"
    " scan_id, error_message, error_details, metadata, created_at"
)


async def sql(database: AnyDatabase, statement: str) -> list[dict[str, Any]]:
    async with database.writing() as connection:
        done = await connection.exec_driver_sql(statement)
        return [dict(row) for row in done.mappings()] if done.returns_rows else []


def cookies(domain: str) -> JobSpec:
    return a_spec(domain, source="cookies", domain=domain, when=when_of(daily="02:00"))


@pytest.mark.spec("E11", "V13")
async def test_a_job_is_moved_over_by_its_id(database: AnyDatabase, jobs: Jobs) -> None:
    job = await jobs.add(a_spec())
    await sql(database, f"UPDATE jobs SET scheduler_version = 1 WHERE id = '{job.job_id}'")
    assert (await jobs.get(job.name)).scheduler_version == 1
    await sql(database, f"UPDATE jobs SET scheduler_version = 2 WHERE id = '{job.job_id}'")
    moved = await jobs.get(job.name)
    assert (moved.scheduler_version, moved.next_run, moved.version) == (2, None, 3)


@pytest.mark.spec("E2", "E11")
async def test_a_schedule_is_added_read_changed_and_deleted(database: AnyDatabase, jobs: Jobs) -> None:
    await sql(database, _ADD)
    job = await jobs.get(_SCHEDULE)
    assert (job.source, job.target, job.domain, job.name) == (
        "cookies",
        "shop.example",
        "shop.example",
        "cookies-shop-example",
    )
    assert job.when == when_of(daily="02:00")
    [row] = await sql(database, f"SELECT {_COLUMNS_OF_SCHEDULES} FROM schedules WHERE enabled = TRUE")
    assert (row["schedule_id"], row["domain_config_id"], row["frequency"]) == (_SCHEDULE, "abc-123", "daily")

    monthly = """frequency = 'monthly', time_config = '{"day": 1, "hour": 4, "minute": 30}', profile_id = 'p'"""
    await sql(database, f"UPDATE schedules SET {monthly} WHERE domain = 'shop.example'")
    await sql(database, f"UPDATE schedules SET enabled = FALSE WHERE schedule_id = '{_SCHEDULE}'")
    job = await jobs.get(_SCHEDULE)
    assert (job.when.frequency, job.profile_id, job.schedule_enabled) == (Frequency.MONTHLY, "p", False)
    assert job.version == 3
    assert await sql(database, "SELECT * FROM schedules WHERE enabled = TRUE") == []

    # A second one of the same domain has a name of its own; what is no schedule of a domain is not shown.
    await sql(database, _ADD.replace(_SCHEDULE, "second"))
    await jobs.add(a_spec("other"))
    assert len(await sql(database, "SELECT * FROM schedules")) == 2
    await sql(database, "DELETE FROM schedules WHERE schedule_id = 'second'")
    assert {found.target for found in await jobs.find()} == {"shop.example", "other"}


@pytest.mark.spec("E11")
async def test_a_schedule_with_an_interval_keeps_it_until_it_is_given_a_frequency(
    database: AnyDatabase, jobs: Jobs
) -> None:
    job = await jobs.add(a_spec("shop.example", source="cookies", domain="shop.example"))
    await jobs.pause(job, "for a while")
    [row] = await sql(database, "SELECT frequency, enabled FROM schedules")
    assert (row["frequency"], bool(row["enabled"])) == ("interval", False)
    await sql(database, "UPDATE schedules SET enabled = TRUE")
    resumed = await jobs.get(job.name)
    assert (resumed.paused, resumed.when.schedule_type) == (False, ScheduleType.INTERVAL)
    await sql(database, "UPDATE schedules SET frequency = 'hourly'")
    assert (await jobs.get(job.name)).when.schedule_type == ScheduleType.CALENDAR


@pytest.mark.spec("E11", "G9")
@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE schedules SET last_status = 'failed'", "written by Floodmark"),
        ("INSERT INTO schedules (frequency) VALUES ('daily')", "needs a domain"),
        ("UPDATE job_executions SET domain = 'other'", "belong to the schedule"),
    ],
)
async def test_what_makes_no_sense_is_refused(
    database: AnyDatabase, jobs: Jobs, crew: Crew, statement: str, why: str
) -> None:
    await crew.run(jobs, await jobs.add(cookies("shop.example")))
    with pytest.raises(DBAPIError, match=why):
        await sql(database, statement)


@pytest.mark.spec("E5", "E11")
async def test_executions_have_the_columns_of_other_schedulers(database: AnyDatabase, jobs: Jobs, crew: Crew) -> None:
    job = await jobs.add(cookies("shop.example"))
    good = await crew.start(jobs, job)
    await crew.end(good, Done(result={"summary": "3 cookies"}))
    bad = await crew.run(jobs, job, Dead(error="no answer"))
    rows = await sql(
        database, f"SELECT {_COLUMNS_OF_EXECUTIONS} FROM job_executions WHERE schedule_id = '{job.job_id}' ORDER BY 1"
    )
    assert [row["status"] for row in rows] == ["success", "failed"]
    assert [row["scan_id"] for row in rows] == [good.execution_id, None]
    assert {row["domain"] for row in rows} == {"shop.example"}
    assert value(rows[0]["metadata"]) == {"summary": "3 cookies"}
    [row] = await sql(database, "SELECT error_message FROM job_executions WHERE status = 'failed'")
    assert row == {"error_message": "no answer"}

    await sql(
        database, f"""UPDATE job_executions SET metadata = '{{"seen": true}}' WHERE scan_id = '{good.execution_id}'"""
    )
    [row] = await sql(database, f"SELECT result FROM executions WHERE execution_id = '{good.execution_id}'")
    assert value(row["result"]) == {"seen": True}
    await sql(database, f"DELETE FROM job_executions WHERE execution_id = '{bad.execution_id}'")
    assert len(await sql(database, "SELECT * FROM executions")) == 1


@pytest.mark.spec("E10", "E11")
async def test_an_old_scheduler_records_its_runs(database: AnyDatabase, jobs: Jobs) -> None:
    """One that shares the database in a shadow run: a row when it begins, a change when it ends."""
    job = await jobs.add(cookies("shop.example"))
    await sql(
        database,
        "INSERT INTO job_executions (execution_id, schedule_id, job_id, domain, domain_config_id, status, started_at)"
        f" VALUES ('e1', '{job.job_id}', 'their own', 'shop.example', 'abc', 'running', '2026-06-01 02:00:00+00:00')",
    )
    await sql(
        database,
        "UPDATE job_executions SET status = 'completed', completed_at = '2026-06-01 02:00:30+00:00',"
        " duration_seconds = 30 WHERE execution_id = 'e1'",
    )
    [row] = await sql(database, "SELECT * FROM executions")
    assert (row["job_id"], row["job_name"], row["state"], row["duration_seconds"]) == (
        job.job_id,
        job.name,
        "done",
        30,
    )
    assert str(row["scheduled_for"]).startswith("2026-06-01 02:00:00")


@pytest.mark.spec("E2", "G9")
@pytest.mark.thorough
async def test_a_database_that_another_scheduler_uses_is_left_as_it_is(empty_database: AnyDatabase) -> None:
    await sql(empty_database, "CREATE TABLE schedules (schedule_id TEXT)")
    with pytest.raises(InvalidInput, match="another program: schedules") as refused:
        await migrate(empty_database)
    assert "ALTER TABLE schedules RENAME TO old_schedules" in refused.value.hint
    await sql(empty_database, "ALTER TABLE schedules RENAME TO old_schedules")
    await migrate(empty_database)


@pytest.mark.spec("E8", "E11")
async def test_a_scan_has_the_params_of_its_profile(database: AnyDatabase, jobs: Jobs, crew: Crew) -> None:
    await sql(
        database, """INSERT INTO scan_profiles (profile_id, name, params) VALUES ('p1', 'deep', '{"maxPages": 9}')"""
    )
    profiles = ScanProfiles(database)
    job = await jobs.add(cookies("shop.example"))
    assert await profiles.params_for((await crew.run(jobs, job)).execution_id) == {}
    await sql(database, "UPDATE schedules SET profile_id = 'p1'")
    lease = await crew.run(jobs, job)
    assert await profiles.params_for(lease.execution_id) == {"maxPages": 9}

    source = CookiesSource(Settings(), profiles=profiles.params_for)
    target = Target(name="shop.example", stream="s", params={"scanDepth": 1})
    params = (await source._with_profile(target, a_context(execution_id=lease.execution_id))).params
    assert params == {"maxPages": 9, "scanDepth": 1}


def value(cell: Any) -> Any:
    return json.loads(cell) if isinstance(cell, str) else cell
