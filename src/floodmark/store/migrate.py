"""Bring a database to the schema that this version of Floodmark needs.

Nearly every start finds the newest schema, which is checked without Alembic because its import is slow: the current
revision is in Alembic's table, and the known revisions are names of files. A new database gets the newest schema in one
go (`new_schema.py`); with an explicit revision, the migrations run one after the other.
"""

from functools import cache
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from floodmark.errors import InvalidInput, Unavailable

from .database import Database
from .new_schema import create_new_schema, read_new_schema
from .schema import load_metadata, postgres_metadata

_FOLDER = Path(__file__).parent / "migrations"
_TABLE = "alembic_version"
_VIEWS = ("posts", "schedules", "job_executions")
# An arbitrary number of our own: two processes that start at once migrate one after the other.
_MIGRATION_LOCK = 7_205_759_403


@cache
def _list_revisions() -> tuple[str, ...]:
    """Return all revisions, oldest first: the numbers at the beginning of the file names."""
    return tuple(sorted(path.name.partition("_")[0] for path in (_FOLDER / "versions").glob("[0-9]*.py")))


def newest() -> str:
    """Return the revision that this version of Floodmark needs."""
    return _list_revisions()[-1]


def _current(connection: Connection) -> str | None:
    if not inspect(connection).has_table(_TABLE):
        return None
    return connection.execute(text(f"SELECT version_num FROM {_TABLE}")).scalar()


def _require_free_names(connection: Connection) -> None:
    """Refuse a database in which another program uses the names of our tables."""
    inspector = inspect(connection)
    there = {*inspector.get_table_names(), *inspector.get_view_names()}
    if not there:
        # Nearly always; to load all tables takes a while.
        return
    ours = {*load_metadata().tables, *_VIEWS}
    if connection.dialect.name == "postgresql":
        ours |= postgres_metadata.tables.keys()
    taken = sorted(there & ours)
    if taken:
        rename = "; ".join(f"ALTER TABLE {name} RENAME TO old_{name}" for name in taken)
        raise InvalidInput(
            f"the database has tables of another program: {', '.join(taken)}",
            hint=f"Use a database of its own for Floodmark, or rename those tables first: {rename}",
        )


async def migrate(database: Database, *, to: str = "head") -> tuple[str | None, str | None]:
    """Upgrade, or downgrade to an older revision. Returns the revisions before and after."""

    def work(connection: Connection) -> tuple[str | None, str | None]:
        before = _current(connection)
        if before is not None and before not in _list_revisions():
            raise _too_new(before)
        if to == "head" and before == newest():
            return before, before
        if before is None:
            _require_free_names(connection)
            statements = read_new_schema(connection.dialect.name, newest()) if to == "head" else None
            if statements is not None:
                create_new_schema(connection, statements, newest())
                return before, newest()
        _change(
            connection, to, is_older=to == "base" or (to in _list_revisions() and before is not None and to < before)
        )
        return before, _current(connection)

    async with database.working_long() as connection:
        if database.dialect == "postgresql":
            await connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})"))
        return await connection.run_sync(work)


def _too_new(revision: str) -> Unavailable:
    return Unavailable(
        f"the database has schema {revision}, which is newer than this version of Floodmark knows",
        hint="Upgrade Floodmark on this machine: pip install --upgrade floodmark",
    )


def _change(connection: Connection, to: str, *, is_older: bool) -> None:
    from alembic import command  # noqa: PLC0415 - see above
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(_FOLDER))
    config.attributes["connection"] = connection
    (command.downgrade if is_older else command.upgrade)(config, to)


async def current(database: Database) -> str | None:
    """Return the schema revision of the database, None for an empty one."""
    async with database.reading() as connection:
        return await connection.run_sync(_current)


async def require_newest(database: Database) -> None:
    """Raise `Unavailable` unless the database has the schema that this version needs."""
    found, wanted = await current(database), newest()
    if found is not None and found not in _list_revisions():
        raise _too_new(found)
    if found != wanted:
        raise Unavailable(
            f"the database schema is {found or 'empty'}, this version of Floodmark needs {wanted}",
            hint="Bring it up to date with: floodmark migrate",
        )
