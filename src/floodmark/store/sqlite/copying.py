"""Copies a SQLite database while other processes write to it. The copy is one consistent file."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from floodmark.errors import InvalidInput, Unavailable
from floodmark.process.failpoints import failpoint

# 8 MB of pages at once.
_PAGES = 1000
_BUSY_SECONDS = 10.0

Progress = Callable[[int, int], None]
"""Is called with the number of copied pages and of all pages."""


def copy_database(source: Path, target: Path, progress: Progress) -> None:
    """Copy `source` to `target`, which does not exist yet."""
    try:
        with closing(sqlite3.connect(source, timeout=_BUSY_SECONDS, isolation_level=None)) as reader:
            # A transaction of its own: else the copy would begin again whenever another process has written.
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
            with closing(sqlite3.connect(target, isolation_level=None)) as writer:
                # The file is synchronised once, at the end.
                writer.execute("PRAGMA synchronous=OFF")

                def report(_status: int, remaining: int, total: int) -> None:
                    failpoint("backup.copying")
                    progress(total - remaining, total)

                reader.backup(writer, pages=_PAGES, progress=report)
                # One file, without a write-ahead log next to it.
                writer.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.DatabaseError as error:
        raise _unreadable(source, error) from error


def check_integrity(path: Path) -> None:
    """Raise `InvalidInput` if the file is damaged."""
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            [found, *_] = connection.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        raise _unreadable(path, error) from error
    if found != "ok":
        raise InvalidInput(f"the database is damaged: {str(found)[:200]}", hint="use another backup")


def _unreadable(path: Path, error: sqlite3.DatabaseError) -> InvalidInput | Unavailable:
    if isinstance(error, sqlite3.OperationalError):
        return Unavailable(f"{path} cannot be copied: {error}", hint="check the disk space and the permissions")
    return InvalidInput(
        f"{path} is not a readable database: {error}", hint="name a file made by: floodmark backup FILE"
    )
