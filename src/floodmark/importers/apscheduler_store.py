"""The job store of APScheduler in its database, read-only."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from sqlalchemy import URL, LargeBinary, make_url, select, type_coerce
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from floodmark.errors import InvalidInput, Unavailable
from floodmark.store.postgres_connection import LONG_WORK, USUAL_STEP

from .catalogue import find_table

_COLUMNS = ("id", "next_run_time", "job_state")
_MOST = 100_000
_HINT = "for example: floodmark import apscheduler sqlite:///jobs.sqlite, or postgresql://user@host/database"


class StoredApschedulerJob(NamedTuple):
    """A row of the job store. `job_state` must not be unpickled directly."""

    id: str
    next_run_time: float | None
    job_state: bytes


async def stored_jobs(url: str, table: str) -> list[StoredApschedulerJob]:
    """Return the jobs in the store at `url`, by id."""
    async with _open_store(url) as connection:
        there = await find_table(connection, table, _COLUMNS)
        state = type_coerce(there.c.job_state, LargeBinary)
        rows = await connection.execute(
            select(there.c.id, there.c.next_run_time, state).order_by(there.c.id).limit(_MOST)
        )
        return [StoredApschedulerJob(str(row[0]), row[1], bytes(row[2])) for row in rows]


@asynccontextmanager
async def _open_store(url: str) -> AsyncIterator[AsyncConnection]:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise InvalidInput(f"{url[:60]!r} is not the URL of a database", hint=_HINT) from None
    is_server = parsed.get_backend_name() == "postgresql"
    limits = {"timeout": USUAL_STEP.total_seconds(), "command_timeout": LONG_WORK.total_seconds()} if is_server else {}
    engine = create_async_engine(_readable(parsed), poolclass=NullPool, connect_args=limits)
    shown = parsed.render_as_string(hide_password=True)
    try:
        async with engine.connect() as connection:
            yield connection
    except (DBAPIError, OSError) as error:
        raise Unavailable(f"the database {shown} cannot be read: {error}", hint=_HINT) from error
    finally:
        await engine.dispose()


def _readable(url: URL) -> URL:
    """Return the URL for our drivers; a file is opened read-only and never created."""
    kind = url.get_backend_name()
    if kind == "postgresql":
        return url.set(drivername="postgresql+asyncpg")
    if kind != "sqlite" or not url.database:
        raise InvalidInput(f"a job store on {kind} cannot be read: only SQLite and PostgreSQL", hint=_HINT)
    if not Path(url.database).is_file():
        raise InvalidInput(f"there is no file {url.database}", hint=_HINT)
    path = quote(str(Path(url.database).absolute()))
    return URL.create("sqlite+aiosqlite", database=f"file:{path}", query={"mode": "ro", "uri": "true"})
