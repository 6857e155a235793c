"""Backup and restore of an installation on SQLite.

A backup is one SQLite file with all tables. The secret key is not in it: whoever has both can use the accounts.
"""

import asyncio
import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from floodmark.errors import Conflict, InvalidInput, NotFound
from floodmark.model.audit import Actor
from floodmark.model.clock import SystemClock
from floodmark.observability.events import Events
from floodmark.process.failpoints import failpoint
from floodmark.process.file_errors import explain_errors
from floodmark.process.inner_folders import sync_folder
from floodmark.process.lock_files import is_free, machine
from floodmark.sinks.staging import Staging, remove_abandoned
from floodmark.store.database import open_database
from floodmark.store.migrate import current, migrate
from floodmark.store.sqlite.copying import Progress, check_integrity, copy_database
from floodmark.store.types import to_text
from floodmark.version import __version__

from .restored_database import BACKUP, mark_restored

_PRIVATE = 0o600
_BESIDE = ("-wal", "-shm", "-journal")


class BackupInfo(Struct, frozen=True, kw_only=True):
    """What a backup says about itself; `made_at` is unknown for a copy that was made by other means."""

    path: str
    bytes: int
    schema: str | None
    made_at: datetime | None = None


class RestoreResult(Struct, frozen=True, kw_only=True):
    """The result of a restore."""

    database: str
    schema: str | None
    made_at: datetime | None
    position: int
    """Where positions of events continue."""
    kept: str | None
    """The earlier database, if there was one."""


def back_up(database: Path, target: Path, progress: Progress) -> BackupInfo:
    """Copy the database to `target`, completely or not at all, while other processes use it."""
    if not database.exists():
        raise NotFound(f"there is no database at {database}", hint="check DATABASE_URL with: floodmark settings")
    if target.is_dir():
        raise InvalidInput(f"{target} is a folder", hint=f"name a file: floodmark backup {target}/floodmark.backup")
    if target.exists() and target.samefile(database):
        raise InvalidInput(f"{target} is the database itself", hint="name another file")
    remove_abandoned(target.parent, target.name)
    staging = Staging.create(target.parent, target.name)
    try:
        with explain_errors(target.parent):
            copy = _copy_into(staging, target.name, database, progress)
            failpoint("backup.copied")
            made_at = datetime.now(UTC)
            schema = _sign(copy, database, made_at)
            _make_durable(copy)
        staging.move_into_place()
        return BackupInfo(path=str(target), bytes=target.stat().st_size, schema=schema, made_at=made_at)
    finally:
        staging.remove()


def _copy_into(staging: Staging, name: str, source: Path, progress: Progress) -> Path:
    copy = staging.path_of(name)
    # It holds everything that was collected: only its owner may read it.
    os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _PRIVATE))
    copy_database(source, copy, progress)
    return copy


def _sign(copy: Path, database: Path, made_at: datetime) -> str | None:
    """Write the time and the version into a backup. Return its schema."""
    value = msgspec.json.encode({"made_at": made_at, "version": __version__}).decode()
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        _require_floodmark(connection, database)
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        schema = None if row is None else str(row[0])
        fact = (BACKUP, value, to_text(made_at))
        connection.execute("INSERT OR REPLACE INTO facts (name, value, updated_at) VALUES (?, ?, ?)", fact)
    return schema


def _make_durable(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Restore:
    """Replaces the database of an installation with a backup."""

    def __init__(self, backup: Path, database: Path) -> None:
        self._backup, self._database = backup, database

    @property
    def is_replacing(self) -> bool:
        """Whether there is a database that would be replaced."""
        return self._database.exists() and self._database.stat().st_size > 0

    def check(self) -> None:
        """Raise an error if the file is missing or a process uses the database."""
        if not self._backup.is_file():
            raise NotFound(f"there is no file {self._backup}", hint="name a file made by: floodmark backup FILE")
        if self.is_replacing and self._backup.samefile(self._database):
            raise InvalidInput(f"{self._backup} is the database itself", hint="name a backup")
        require_stopped(self._database)

    async def run(self, actor: Actor, progress: Progress) -> RestoreResult:
        """Copy, check and migrate the backup; then replace the database in one step."""
        parent, name = self._database.parent, self._database.name
        with explain_errors(parent):
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_abandoned(parent, name)
        staging = await asyncio.to_thread(Staging.create, parent, name)
        try:
            with explain_errors(parent):
                copy = await asyncio.to_thread(_copy_into, staging, name, self._backup, progress)
            await asyncio.to_thread(check_integrity, copy)
            made_at = await asyncio.to_thread(_made_at, copy, self._backup)
            schema, position = await self._prepare(copy, made_at, actor)
            failpoint("restore.prepared")
            kept = await asyncio.to_thread(self._replace, staging, copy)
            return RestoreResult(
                database=str(self._database), schema=schema, made_at=made_at, position=position, kept=kept
            )
        finally:
            await asyncio.to_thread(staging.remove)

    async def _prepare(self, copy: Path, made_at: datetime | None, actor: Actor) -> tuple[str | None, int]:
        database = open_database(f"sqlite:///{copy}", events=Events())
        try:
            await migrate(database)
            schema = await current(database)
            position = await mark_restored(database, SystemClock(), actor, backup=str(self._backup), made_at=made_at)
        finally:
            await database.close()
        return schema, position

    def _replace(self, staging: Staging, copy: Path) -> str | None:
        require_stopped(self._database)
        _finish_log(copy)
        _make_durable(copy)
        with explain_errors(self._database.parent):
            kept = self._keep_earlier() if self.is_replacing else None
            _remove_beside(self._database)
            staging.move_into_place()
            failpoint("restore.replaced")
            # The index of an earlier state: the search builds a new one.
            index = self._database.with_name(f"{self._database.stem}-search.db")
            index.unlink(missing_ok=True)
            _remove_beside(index)
            sync_folder(self._database.parent)
        return kept

    def _keep_earlier(self) -> str:
        """Give the database a second name. It keeps its first one until it is replaced."""
        try:
            _finish_log(self._database)
        except sqlite3.OperationalError as error:
            hint = "end the other program, then repeat the command"
            raise Conflict(f"another program uses the database: {error}", hint=hint) from error
        except sqlite3.DatabaseError:
            # It is damaged, which may be the reason for the restore: its files are kept as they are.
            pass
        base, number = f"{self._database.name}.before-restore-{datetime.now(UTC):%Y%m%d-%H%M%S}", 1
        kept = self._database.with_name(base)
        while kept.exists():
            number += 1
            kept = self._database.with_name(f"{base}-{number}")
        for end in ("", *_BESIDE):
            source = self._database.with_name(f"{self._database.name}{end}")
            if source.exists():
                os.link(source, kept.with_name(f"{kept.name}{end}"))
        return str(kept)


def _made_at(copy: Path, backup: Path) -> datetime | None:
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        _require_floodmark(connection, backup)
        row = connection.execute("SELECT value FROM facts WHERE name = ?", (BACKUP,)).fetchone()
    return None if row is None else msgspec.json.decode(row[0], type=_BackupFact).made_at


def _require_floodmark(connection: sqlite3.Connection, path: Path) -> None:
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not {"alembic_version", "facts", "items"} <= tables:
        raise InvalidInput(f"{path} is not a database of Floodmark", hint="name a file made by: floodmark backup FILE")


class _BackupFact(Struct):
    made_at: datetime


def _finish_log(path: Path) -> None:
    """Move the write-ahead log into the database file. `OperationalError` if another program has it open."""
    with closing(sqlite3.connect(path, timeout=1.0, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")


def _remove_beside(path: Path) -> None:
    for end in _BESIDE:
        path.with_name(f"{path.name}{end}").unlink(missing_ok=True)


def require_stopped(database: Path) -> None:
    """Raise `Conflict` if a process of the installation is alive: it holds the lock of its file."""
    locks = database.with_name(f"{database.name}-locks").absolute()
    alive = [path.stem for path in sorted(locks.glob("*.lock")) if is_free(f"{machine()} {path}") is False]
    if alive:
        raise Conflict(
            f"these processes use the database: {', '.join(alive[:5])}", hint="stop them first, then repeat the command"
        )
