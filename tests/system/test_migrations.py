"""Migrations prove themselves: they and the models give one schema, on both databases, in both directions."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData, bindparam, inspect, text
from sqlalchemy.exc import DBAPIError

from floodmark.errors import Unavailable
from floodmark.model.clock import SystemClock
from floodmark.sinks.repository import SinkRepository
from floodmark.store import migrations
from floodmark.store.migrate import current, migrate, newest, require_newest
from floodmark.store.new_schema import read_new_schema
from floodmark.store.schema import load_metadata, postgres_metadata
from floodmark.store.types import Json
from new_schemas import make_statements
from system.stores import AnyDatabase

pytestmark = pytest.mark.every_database

_SQLITE_DUMP = """
SELECT type, name, tbl_name, sql FROM sqlite_master
 WHERE name NOT LIKE 'sqlite_%' AND name <> 'alembic_version' AND type NOT IN ('trigger', 'view') ORDER BY type, name
"""

# Columns by name and not by place: a column that a migration adds later comes last.
_POSTGRES_DUMPS = (
    """
    SELECT table_name, column_name, data_type, character_maximum_length, is_nullable, column_default, is_identity
      FROM information_schema.columns WHERE table_schema = 'public'
       AND table_name NOT IN ('alembic_version', 'posts', 'schedules', 'job_executions')
     ORDER BY table_name, column_name
    """,
    """
    SELECT indexname, indexdef FROM pg_indexes
     WHERE schemaname = 'public' AND tablename <> 'alembic_version' ORDER BY 1
    """,
    """
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
     WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text <> 'alembic_version'
       AND contype <> 'n' -- NOT NULL: of the columns above; newer servers name it, by what the table was called first
     ORDER BY 1, 2
    """,
)

_LEFT_POSTGRES = """
SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relname NOT LIKE 'alembic_version%'
UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace
UNION ALL SELECT tgname FROM pg_trigger WHERE NOT tgisinternal
"""
_LEFT_SQLITE = "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' AND name NOT LIKE 'alembic_version%'"


async def dump(database: AnyDatabase) -> list[Any]:
    """The schema as the database tells it, without Alembic's own table."""
    statements = _POSTGRES_DUMPS if database.dialect == "postgresql" else (_SQLITE_DUMP,)
    async with database.reading() as connection:
        return [
            tuple(_tidied(cell) for cell in row)
            for statement in statements
            for row in (await connection.execute(text(statement))).all()
        ]


def _tidied(cell: Any) -> Any:
    """White space apart, and of SQLite's CREATE TABLE the parts in any order: an added column comes last."""
    if not isinstance(cell, str) or not cell.startswith("CREATE"):
        return cell
    cell = cell.replace('"', "")
    if not cell.startswith("CREATE TABLE"):
        return cell
    head, _, rest = cell.partition("(")
    body, _, tail = rest.rpartition(")")
    return [head.strip(), *sorted(" ".join(part.split()) for part in re.split(r",(?![^(]*\))", body)), tail.strip()]


async def left_over(database: AnyDatabase) -> list[str]:
    """Everything of ours that is still there."""
    statement = _LEFT_POSTGRES if database.dialect == "postgresql" else _LEFT_SQLITE
    async with database.reading() as connection:
        return list((await connection.execute(text(statement))).scalars())


def differences(connection: Connection) -> list[Any]:
    options = {"compare_type": True, "compare_server_default": False, "include_object": _is_of(connection)}
    context = MigrationContext.configure(connection, opts=options)
    # Alembic takes several, as its environment does.
    schemas: Any = schemas_of(connection)
    return list(compare_metadata(context, schemas))


def _is_of(connection: Connection) -> Callable[..., bool]:
    """Alembic compares the indexes of other databases, too."""

    def is_included(thing: Any, *_: Any) -> bool:
        made_if = getattr(thing, "_ddl_if", None)
        return made_if is None or made_if.dialect == connection.dialect.name

    return is_included


def schemas_of(connection: Connection) -> list[MetaData]:
    return [load_metadata(), *([postgres_metadata] if connection.dialect.name == "postgresql" else [])]


def create_all(connection: Connection) -> None:
    for schema in schemas_of(connection):
        schema.create_all(connection)


@pytest.mark.spec("E2")
async def test_alembic_sees_no_difference_between_models_and_migrations(database: AnyDatabase) -> None:
    async with database.reading() as connection:
        assert await connection.run_sync(differences) == []


@pytest.mark.spec("E2")
def test_the_names_of_the_files_tell_what_alembic_reads_in_them() -> None:
    """So that a start need not ask Alembic."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    scripts = list(ScriptDirectory.from_config(config).walk_revisions())
    assert {Path(script.path).name.partition("_")[0] for script in scripts} == {script.revision for script in scripts}
    assert newest() == scripts[0].revision == max(script.revision for script in scripts)


@pytest.mark.spec("E2")
@pytest.mark.thorough
async def test_a_new_database_gets_what_the_migrations_make(empty_database: AnyDatabase) -> None:
    """Write the files again after a new migration: python tests/new_schemas.py"""
    made = await make_statements(empty_database)
    assert read_new_schema(empty_database.dialect, newest()) == [statement.strip() for statement in made]
    async with empty_database.reading() as connection:
        tables = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
        rows = [(await connection.execute(text(f"SELECT count(*) FROM {name}"))).scalar() for name in tables]
    # The version of the schema is the only row, so statements about rows need not be repeated.
    assert sum(filter(None, rows)) == 1


@pytest.mark.spec("E2", "G8")
async def test_a_new_schema_is_made_whole_or_not_at_all(
    empty_database: AnyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = read_new_schema(empty_database.dialect, newest())
    assert statements is not None
    broken = [*statements[: len(statements) // 2], "CREATE nothing"]
    with monkeypatch.context() as patched:
        patched.setattr("floodmark.store.migrate.read_new_schema", lambda *_: broken)
        with pytest.raises(DBAPIError):
            await migrate(empty_database)
    assert await left_over(empty_database) == []
    assert await migrate(empty_database) == (None, newest())


@pytest.mark.spec("E2", "G8")
@pytest.mark.thorough
async def test_the_database_sees_no_difference_either(empty_database: AnyDatabase) -> None:
    await migrate(empty_database, to=newest())
    migrated = await dump(empty_database)
    await migrate(empty_database, to="base")
    async with empty_database.writing() as connection:
        await connection.run_sync(create_all)

    assert await dump(empty_database) == migrated


@pytest.mark.spec("E2")
async def test_up_down_to_nothing_and_up_again(empty_database: AnyDatabase) -> None:
    assert await current(empty_database) is None
    assert await migrate(empty_database) == (None, newest())
    first = await dump(empty_database)
    assert await migrate(empty_database) == (newest(), newest())
    assert await migrate(empty_database, to="base") == (newest(), None)
    assert await left_over(empty_database) == []
    assert await migrate(empty_database) == (None, newest())
    assert await dump(empty_database) == first


@pytest.mark.spec("E2", "B7")
@pytest.mark.thorough
async def test_positions_of_sinks_move_from_facts_to_consumers(empty_database: AnyDatabase) -> None:
    """A sink goes on where it was, also one that was being filled; other facts stay."""
    await migrate(empty_database, to="0012")
    facts = {
        "files.position": {"folder": "/data/posts", "position": 4812, "filling": None},
        "ndjson.position": {"folder": "https://collector.example", "position": 7},
        "copy.position": {"folder": "/copy", "position": 9, "filling": {"stream": "telegram:7", "day": "2026-06-01"}},
        "freshness": {"at": "2026-06-01T12:00:00Z", "sources": []},
    }
    insertion = text("INSERT INTO facts (name, value) VALUES (:name, :value)").bindparams(
        bindparam("value", type_=Json)
    )
    async with empty_database.writing() as connection:
        await connection.execute(insertion, [{"name": name, "value": value} for name, value in facts.items()])
    await migrate(empty_database)

    repository = SinkRepository(empty_database, SystemClock())
    stored = {name: await repository.load(name) for name in ("copy", "files", "ndjson")}
    assert {name: one and (one.place, one.position, one.state, one.paused) for name, one in stored.items()} == {
        "copy": ("/copy", 9, {"stream": "telegram:7", "day": "2026-06-01"}, False),
        "files": ("/data/posts", 4812, None, False),
        "ndjson": ("https://collector.example", 7, None, False),
    }
    assert [row.state for row in await repository.rows()] == ["removed"] * 3, "until a leader has them configured"
    async with empty_database.reading() as connection:
        assert list((await connection.execute(text("SELECT name FROM facts"))).scalars()) == ["freshness"]


@pytest.mark.spec("E2", "G9")
@pytest.mark.thorough
async def test_an_old_or_unknown_schema_is_refused(empty_database: AnyDatabase) -> None:
    with pytest.raises(Unavailable, match="the database schema is empty") as refused:
        await require_newest(empty_database)
    assert "floodmark migrate" in refused.value.hint
    await migrate(empty_database)
    await require_newest(empty_database)
    async with empty_database.writing() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = 'later'"))
    for step in (migrate, require_newest):
        with pytest.raises(Unavailable, match="newer than this version") as refused:
            await step(empty_database)
        assert "Upgrade Floodmark" in refused.value.hint
