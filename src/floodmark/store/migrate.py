"""Bring a database to the schema this version of Floodmark needs."""

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from floodmark.errors import Unavailable

from .database import Database

_FOLDER = Path(__file__).parent / "migrations"
# Any number will do, so long as it is ours: two processes that start at once migrate one after the other.
_MIGRATION_LOCK = 7_205_759_403


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_FOLDER))
    config.attributes["connection"] = connection
    return config


def _current(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


@cache
def newest() -> str:
    """The revision this version of Floodmark is written for."""
    config = Config()
    config.set_main_option("script_location", str(_FOLDER))
    head = ScriptDirectory.from_config(config).get_current_head()
    assert head is not None
    return head


async def migrate(database: Database, *, to: str = "head") -> tuple[str | None, str | None]:
    """Upgrade (or, given an older revision, downgrade); the revision before and after."""

    def work(connection: Connection) -> tuple[str | None, str | None]:
        before = _current(connection)
        known = {script.revision for script in ScriptDirectory.from_config(_config(connection)).walk_revisions()}
        if before is not None and before not in known:
            raise Unavailable(
                f"the database has schema {before}, which is newer than this version of Floodmark knows",
                hint="Upgrade Floodmark on this machine: pip install --upgrade floodmark",
            )
        if to == "head" and before == newest():
            # Nearly every start. Alembic's environment is global to the process: best left alone when not needed.
            return before, before
        is_older = to in known and before is not None and to < before
        (command.downgrade if is_older or to == "base" else command.upgrade)(_config(connection), to)
        return before, _current(connection)

    async with database.writing() as connection:
        if database.dialect == "postgresql":
            await connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})"))
        return await connection.run_sync(work)


async def current(database: Database) -> str | None:
    """The schema revision the database is at, None for an empty one."""
    async with database.reading() as connection:
        return await connection.run_sync(_current)


async def require_newest(database: Database) -> None:
    """Raise `Unavailable` unless the schema is the one this version is written for."""
    found, wanted = await current(database), newest()
    if found != wanted:
        raise Unavailable(
            f"the database schema is {found or 'empty'}, this version of Floodmark needs {wanted}",
            hint="Bring it up to date with: floodmark migrate",
        )
