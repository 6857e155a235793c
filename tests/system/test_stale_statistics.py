"""PostgreSQL plans by what it counted last. A table that it takes for empty must not make a delivery quadratic."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from floodmark.inbound.intake import Arrival, build_intake
from floodmark.store.database import PostgresDatabase
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import Opened
from floodmark.wiring.resources import Resources

pytest_plugins = ("backends",)

JOBS = 600
_JOBS = f"""
INSERT INTO jobs (job_id, name, target, schedule_type, trigger_webhook)
SELECT 'j' || n, 'n' || n, 't', 'event', '/everything' FROM generate_series(1, {JOBS}) n
"""
_CHAIN = f"INSERT INTO job_dependencies SELECT 'j' || n, 'j' || n + 1 FROM generate_series(1, {JOBS - 1}) n"
_READ = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'jobs'"


@pytest.fixture
async def resources(postgres_only: Opened) -> AsyncIterator[Resources]:
    async with postgres_only() as resources:
        yield resources


@pytest.fixture
async def typed(resources: Resources) -> AsyncIterator[asyncpg.Connection]:
    """SQL by hand."""
    assert isinstance(resources.database, PostgresDatabase)
    url = resources.database.engine.url.set(drivername="postgresql")
    connection = await asyncpg.connect(url.render_as_string(hide_password=False))
    yield connection
    await connection.close()


@pytest.mark.spec("V4")
async def test_a_delivery_reads_each_job_a_few_times(resources: Resources, typed: asyncpg.Connection) -> None:
    """Jobs came and went, and the server looked while there were none."""
    for statement in (_JOBS, _CHAIN, "DELETE FROM job_dependencies", "DELETE FROM jobs", "ANALYZE jobs", _JOBS):
        await typed.execute(statement)
    await typed.execute("SELECT pg_stat_force_next_flush()")
    before = await typed.fetchval(_READ)
    intake = build_intake(resources)
    arrival = Arrival(kind="webhook", subject="/everything", path=("everything",))

    taken = await intake.take(arrival, await intake.matching(arrival))

    assert len(taken.executions) == JOBS

    async def is_counted() -> bool:
        await typed.execute("SELECT pg_stat_clear_snapshot()")
        return bool(await typed.fetchval(_READ) - before >= JOBS)

    # An idle session reports what it has read after ten seconds at the latest.
    await eventually(is_counted)
    assert await typed.fetchval(_READ) - before < 20 * JOBS
