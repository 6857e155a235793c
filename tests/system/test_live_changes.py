"""SQL typed by hand, while a scheduler runs: seen at once, without a restart."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from floodmark.app import Floodmark
from floodmark.observability.events import Events
from floodmark.settings import Settings
from floodmark.store.database import open_database
from floodmark.store.migrate import migrate
from floodmark.testing.eventually import eventually
from floodmark.testing.serving import served

# Until the scheduler looks by itself: whatever it does before is because it was told of the change.
CHECK = timedelta(hours=1)

Typed = Callable[[str], Awaitable[list[Any]]]

ADD = """
    INSERT INTO jobs (name, target, schedule_type, cron_expression)
    VALUES ('typed', 'nothing', 'cron', '0 6 * * *')
"""


@asynccontextmanager
async def by_hand(url: str) -> AsyncIterator[Typed]:
    """A connection that knows nothing of Floodmark, as a person with a SQL prompt has."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:

            async def type_sqlite(statement: str) -> list[Any]:
                # On a thread, as another process would: waiting for the write lock must not hold up its holder.
                return await asyncio.to_thread(lambda: connection.execute(statement).fetchall())

            yield type_sqlite
        return
    postgres = await asyncpg.connect(url)

    async def type_postgres(statement: str) -> list[Any]:
        return [tuple(row) for row in await postgres.fetch(statement)]

    try:
        yield type_postgres
    finally:
        await postgres.close()


@pytest.fixture(params=["sqlite", "postgresql"])
async def typed(request: pytest.FixtureRequest) -> AsyncIterator[Typed]:
    """A prompt on a database for which a scheduler is running."""
    url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "pg_url")
    database = open_database(url, events=Events())
    await migrate(database)
    await database.close()
    async with (
        served(Floodmark(Settings(database_url=url, schedule_check_interval=CHECK)), worker=False),
        by_hand(url) as prompt,
    ):
        # The first plan shows that the scheduler leads by now.
        await prompt("INSERT INTO jobs (name, target, interval_seconds) VALUES ('first', 'nothing', 3600)")
        await eventually(lambda: _planned(prompt, "first"))
        yield prompt


async def _planned(typed: Typed, name: str) -> bool:
    rows = await typed(f"SELECT 1 FROM jobs WHERE name = '{name}' AND next_run IS NOT NULL")
    return bool(rows)


async def _runs(typed: Typed, name: str) -> int:
    rows = await typed(f"SELECT count(*) FROM executions WHERE job_name = '{name}'")
    return int(rows[0][0])


@pytest.mark.spec("E4", "G1")
async def test_an_added_job_is_planned(typed: Typed) -> None:
    await typed(ADD)

    await eventually(lambda: _planned(typed, "typed"))


@pytest.mark.spec("E4")
@pytest.mark.thorough
async def test_a_changed_job_is_planned_anew(typed: Typed) -> None:
    """From once a day to now: it fires without waiting for the old time."""
    await typed(ADD)
    await eventually(lambda: _planned(typed, "typed"))

    await typed("UPDATE jobs SET schedule_type = 'interval', interval_seconds = 1 WHERE name = 'typed'")

    await eventually(lambda: _is_fired(typed))


async def _is_fired(typed: Typed) -> bool:
    return await _runs(typed, "typed") > 0


@pytest.mark.spec("E4")
@pytest.mark.parametrize(
    "change",
    [
        "schedule_enabled = FALSE",
        # The same column decides, by a trigger of the database: `test_schedule_trigger`.
        pytest.param("paused = TRUE", marks=pytest.mark.release),
        pytest.param("scheduler_version = 1", marks=pytest.mark.release),
    ],
)
@pytest.mark.thorough
async def test_a_disabled_job_fires_no_more(typed: Typed, change: str) -> None:
    await typed("INSERT INTO jobs (name, target, interval_seconds, overlap) VALUES ('typed', 'nothing', 1, 'queue')")
    await eventually(lambda: _is_fired(typed))

    await typed(f"UPDATE jobs SET {change} WHERE name = 'typed'")
    before = await _runs(typed, "typed")
    # Another job goes on firing: had the disabled one been fired too, it would show.
    await typed("INSERT INTO jobs (name, target, interval_seconds, overlap) VALUES ('other', 'nothing', 1, 'queue')")

    async def others() -> bool:
        return await _runs(typed, "other") >= 2

    await eventually(others)
    assert await _runs(typed, "typed") == before


@pytest.mark.spec("E4")
@pytest.mark.thorough
async def test_an_enabled_job_fires_again(typed: Typed) -> None:
    await typed(
        "INSERT INTO jobs (name, target, interval_seconds, schedule_enabled) VALUES ('typed', 'nothing', 1, FALSE)"
    )

    await typed("UPDATE jobs SET schedule_enabled = TRUE WHERE name = 'typed'")

    await eventually(lambda: _is_fired(typed))


@pytest.mark.spec("E4")
@pytest.mark.thorough
async def test_a_deleted_job_fires_no_more_and_leaves_its_history(typed: Typed) -> None:
    await typed("INSERT INTO jobs (name, target, interval_seconds, overlap) VALUES ('typed', 'nothing', 1, 'queue')")
    await eventually(lambda: _is_fired(typed))

    await typed("DELETE FROM jobs WHERE name = 'typed'")

    before = await _runs(typed, "typed")
    await typed("INSERT INTO jobs (name, target, interval_seconds, overlap) VALUES ('other', 'nothing', 1, 'queue')")

    async def others() -> bool:
        return await _runs(typed, "other") >= 2

    await eventually(others)
    assert await _runs(typed, "typed") == before > 0


@pytest.mark.spec("E4", "G9")
@pytest.mark.thorough
async def test_a_job_that_makes_no_sense_says_why_and_harms_no_other(typed: Typed) -> None:
    await typed(
        "INSERT INTO jobs (name, target, schedule_type, cron_expression) VALUES ('typed', 'nothing', 'cron', 'often')"
    )
    await typed("INSERT INTO jobs (name, target, interval_seconds) VALUES ('other', 'nothing', 3600)")

    async def reason() -> str | None:
        rows = await typed("SELECT invalid_reason FROM jobs WHERE name = 'typed'")
        return None if rows[0][0] is None else str(rows[0][0])

    assert "often" in (await eventually(reason) or "")
    await eventually(lambda: _planned(typed, "other"))

    await typed("UPDATE jobs SET cron_expression = '0 6 * * *' WHERE name = 'typed'")

    await eventually(lambda: _planned(typed, "typed"))
    assert await reason() is None
