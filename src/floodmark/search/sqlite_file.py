"""A connection to the file of a search index, on a thread of its own."""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from floodmark.errors import FloodmarkError, Unavailable
from floodmark.store.database import LOCK_TIMEOUT_SECONDS, make_private

from .port import IndexDamaged

T = TypeVar("T")

_PRAGMAS = (
    "PRAGMA page_size=8192",
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=NORMAL",
    f"PRAGMA busy_timeout={LOCK_TIMEOUT_SECONDS * 1000}",
    # Some builds of SQLite overwrite deleted pages with zeros: the merges of FTS5 and a new start then write much more.
    "PRAGMA secure_delete=OFF",
    "PRAGMA wal_autocheckpoint=4000",
    "PRAGMA temp_store=MEMORY",
)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
# A search that takes longer is given up. SQLite asks after this many steps of its virtual machine.
_LONGEST_SECONDS, _STEPS = 5.0, 100_000


class MissingFile(FloodmarkError):
    """There is no file, or no table in it yet."""


class IndexFile:
    """Runs functions on the connection, one at a time. The file may be created, replaced and deleted meanwhile."""

    def __init__(self, path: Path, *, cache_kilobytes: int, only_reads: bool = False) -> None:
        self._path, self._cache, self._only_reads = path, cache_kilobytes, only_reads
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="floodmark-search")
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None

    async def run(self, work: Callable[[sqlite3.Connection], T], *, creates: bool = False) -> T:
        """Return what `work` returns. Raise `MissingFile` if there is no index, unless `work` creates it."""

        def call() -> T:
            with self._translated():
                connection = self._open(creates=creates)
                until = time.monotonic() + _LONGEST_SECONDS
                if self._only_reads:
                    connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
                return work(connection)

        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def delete(self) -> None:
        """Delete the file. Other processes that have it open notice it."""

        def call() -> None:
            self._disconnect()
            for end in ("", "-wal", "-shm"):
                with suppress(FileNotFoundError):
                    Path(f"{self._path}{end}").unlink()

        await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def close(self) -> None:
        """Close the connection."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown()

    def _open(self, *, creates: bool) -> sqlite3.Connection:
        there = _identity(self._path)
        if self._connection is not None and there != self._opened:
            self._disconnect()
        if there is None and not creates:
            raise MissingFile(f"there is no file {self._path}")
        if self._connection is None:
            self._connection = self._connect()
            self._opened = _identity(self._path)
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        make_private(self._path)
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            for pragma in (*_PRAGMAS, f"PRAGMA cache_size=-{self._cache}"):
                connection.execute(pragma)
            connection.execute(f"PRAGMA query_only={int(self._only_reads)}")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _DAMAGED:
                hint = "build it again: floodmark index rebuild"
                raise IndexDamaged(f"the search index {self._path} is damaged: {error}", hint=hint) from error
            if code == sqlite3.SQLITE_INTERRUPT:
                hint = "use longer words, or limit it with --stream or --since"
                raise Unavailable(f"the search took more than {_LONGEST_SECONDS:.0f} s", hint=hint) from error
            if code == sqlite3.SQLITE_ERROR and "no such table" in str(error):
                raise MissingFile(str(error)) from error
            if code == sqlite3.SQLITE_ERROR and "no such module" in str(error):
                hint = "use a Python whose SQLite has FTS5, or PostgreSQL, or set SEARCH_ENABLED=false"
                raise Unavailable("this SQLite cannot search: it was built without FTS5", hint=hint) from error
            raise


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction: committed at the end of the block, rolled back by an exception."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.OperationalError):  # a failed COMMIT may have ended the transaction already
            connection.execute("ROLLBACK")
        raise


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
