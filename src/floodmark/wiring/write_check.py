"""Checks that the database can be written: no full disk, no server that became a standby, no file of another user.

The check writes to the disk but commits nothing to a table, so it wakes no process:
SQLite      pages of a transaction that is rolled back; a small cache makes SQLite write them to its log at once
PostgreSQL  pages of a temporary table, which the server allocates on its disk and frees at the commit
"""

import asyncio
import errno
import sqlite3
import time
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from floodmark.process.lazy import LazyModule
from floodmark.store.database import Database, SqliteDatabase

if TYPE_CHECKING:
    import asyncpg
else:
    # Only PostgreSQL needs it.
    asyncpg = LazyModule("asyncpg")

_CACHED_FOR = timedelta(seconds=5)
_DEADLINE_SECONDS = 5.0
# Other writers go first. That they can write proves as much as our own write.
_BUSY_SECONDS = 0.5
_BYTES = 256 * 1024

_MAKE = "CREATE TEMPORARY TABLE IF NOT EXISTS floodmark_write_check (content bytea) ON COMMIT DELETE ROWS"
# Not compressed, or it would fit into the free space of a page.
_PLAIN = "ALTER TABLE pg_temp.floodmark_write_check ALTER content SET STORAGE EXTERNAL"
_WRITE = "INSERT INTO pg_temp.floodmark_write_check SELECT decode(repeat('ab', :bytes), 'hex')"
# A temporary table can be written even in a read-only session.
_TOUCH = "DELETE FROM facts WHERE name = 'write check'"


class WriteCheck:
    """Tries to write, at most once every few seconds."""

    def __init__(self, database: Database) -> None:
        self._database, self._turn = database, asyncio.Lock()
        self._found: str | None = None
        self._until = 0.0

    async def problem(self) -> str | None:
        """Return why the database cannot be written, None if it can."""
        async with self._turn:
            if time.monotonic() >= self._until:
                self._found = await self._try()
                self._until = time.monotonic() + _CACHED_FOR.total_seconds()
            return self._found

    async def _try(self) -> str | None:
        try:
            async with asyncio.timeout(_DEADLINE_SECONDS):
                if isinstance(self._database, SqliteDatabase):
                    await asyncio.to_thread(_write_sqlite, self._database)
                else:
                    await _write_postgres(self._database)
        except TimeoutError:
            return f"a write took longer than {_DEADLINE_SECONDS:.0f} s"
        except DBAPIError as error:
            return str(error.orig)
        except (sqlite3.Error, asyncpg.PostgresError, OSError) as error:
            return str(error) or type(error).__name__
        return None


def is_disk_full(error: BaseException) -> bool:
    """Return whether a write failed because the disk is full. SQLite reports some of these cases as an I/O error."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.Error):
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
        return code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    if isinstance(cause, OSError):
        return cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return getattr(cause, "sqlstate", None) == asyncpg.DiskFullError.sqlstate


def _write_sqlite(database: SqliteDatabase) -> None:
    with closing(sqlite3.connect(database.path, isolation_level=None, timeout=_BUSY_SECONDS)) as connection:
        connection.execute("PRAGMA cache_size=8")
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                return
            raise
        # Each value fills one page: the pages of one large value would stay in memory until it is complete.
        connection.execute(
            "INSERT INTO facts (name, value) WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n LIMIT ?)"
            " SELECT 'write check ' || i, zeroblob(?) FROM n",
            (_BYTES // 4096, 4096),
        )
        connection.execute("ROLLBACK")


async def _write_postgres(database: Database) -> None:
    async with database.engine.begin() as connection:
        await connection.execute(text(_TOUCH))
        await connection.execute(text(_MAKE))
        await connection.execute(text(_PLAIN))
        await connection.execute(text(_WRITE), {"bytes": _BYTES})
