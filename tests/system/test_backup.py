"""Backup and restore: a copy of the database while it is in use, and what a restored one does."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from backends import opening
from command_line import CommandLine, eventually
from doomed import KILLED, Doomed, doomed_commands
from floodmark import Floodmark
from floodmark.errors import Conflict
from floodmark.model.audit import Actor
from floodmark.model.batch import Batch, Item
from floodmark.model.outcome import Done
from floodmark.operations.backups import Restore, back_up
from floodmark.operations.local import LocalOperations
from floodmark.operations.restored_database import gap_after
from floodmark.settings import Settings, keys
from floodmark.store.migrate import newest
from floodmark.store.sqlite import copying
from floodmark.testing.eventually import eventually as soon
from floodmark.testing.factories import given_lease, settle
from floodmark.testing.serving import served
from floodmark.wiring.resources import Resources, open_resources
from servers import Postgres, find_postgres
from system.test_exports import all_lines, export

pytest_plugins = ("backends",)

ACTOR = Actor(who="ada", via="cli")


def unseen(_done: int, _total: int) -> None:
    """A progress bar that nobody sees."""


async def keep(resources: Resources, numbers: Sequence[int]) -> None:
    lease = await given_lease(resources)
    items = [Item(f"k{n}", {"n": n, "text": "x" * 500}) for n in numbers]
    await resources.keeping.keep(lease, Batch(items, {"n": numbers[-1]}, stream="news"))
    await settle(resources, lease, Done())


def rows(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if ".floodmark-" in path.name]


async def test_a_backup_is_consistent_while_others_write(
    sqlite_copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every batch is in it completely or not at all; writers do not delay it for ever, nor it them."""
    monkeypatch.setattr(copying, "_PAGES", 5)
    target, steps, stop = tmp_path / "copy.db", 0, asyncio.Event()

    def count(_done: int, _total: int) -> None:
        nonlocal steps
        steps += 1

    async with open_resources(Settings(database_url=sqlite_copy)) as resources:
        for start in range(0, 2000, 100):
            await keep(resources, range(start, start + 100))

        async def write() -> int:
            number = 2000
            while not stop.is_set():
                await keep(resources, range(number, number + 10))
                number += 10
            return number

        writing = asyncio.create_task(write())
        made = await asyncio.to_thread(back_up, path_of(sqlite_copy), target, count)
        stop.set()
        last = await writing

    [[items]], [[events]] = (rows(target, f"SELECT count(*) FROM {table}") for table in ("items", "outbox"))
    assert rows(target, "PRAGMA integrity_check") == [("ok",)]
    assert items == events
    assert items % 10 == 0
    assert 2000 <= items <= last
    assert rows(target, "SELECT max(json_extract(value, '$.n')) + 1 FROM watermarks") == [(items,)]
    assert steps > 20
    assert (made.schema, made.bytes) == (newest(), target.stat().st_size)
    assert target.stat().st_mode & 0o777 == 0o600
    assert not hidden(tmp_path)


async def test_a_restored_database_keeps_the_earlier_one(sqlite_copy: str, tmp_path: Path) -> None:
    path, copy = path_of(sqlite_copy), tmp_path / "copies" / "monday"
    async with open_resources(Settings(database_url=sqlite_copy)) as resources:
        await keep(resources, range(3))
        for name, position in (("reader:done", 3), ("reader:behind", 1), ("sink:files", 3)):
            await resources.repositories.consumers.start(name, position)
        back_up(path, copy, unseen)
        await keep(resources, range(3, 5))
    (path.with_name("floodmark-search.db")).write_text("an index of a later state")

    restore = Restore(copy, path)
    restore.check()
    done = await restore.run(ACTOR, unseen)

    assert rows(path, "SELECT count(*) FROM items") == [(3,)]
    assert done.kept is not None
    assert rows(Path(done.kept), "SELECT count(*) FROM items") == [(5,)]
    assert not path.with_name("floodmark-search.db").exists()
    assert rows(path, "SELECT who, action FROM audit") == [("ada", "database.restored")]
    assert done.position >= gap_after(timedelta())
    assert rows(path, "SELECT name, position FROM consumers ORDER BY name") == [
        ("reader:behind", 1),
        ("reader:done", done.position),
        ("sink:files", 3),
    ]
    assert not hidden(path.parent)
    async with open_resources(Settings(database_url=sqlite_copy)) as resources:
        await keep(resources, range(3, 5))
    assert rows(path, "SELECT seq FROM outbox ORDER BY seq DESC LIMIT 2") == [
        (done.position + 2,),
        (done.position + 1,),
    ]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path) -> CommandLine:
    for key in keys():
        monkeypatch.delenv(key, raising=False)
    monkeypatch.chdir(tmp_path)
    return CommandLine.installed(tmp_path, migrated_sqlite)


def fill(cli: CommandLine, numbers: Sequence[int]) -> Path:
    path = cli.folder / ".floodmark" / "floodmark.db"
    path.parent.mkdir(exist_ok=True)

    async def work() -> None:
        async with open_resources(Settings(database_url=f"sqlite:///{path}")) as resources:
            await keep(resources, numbers)

    asyncio.run(work())
    return path


def test_the_commands_say_what_they_did(cli: CommandLine) -> None:
    path = fill(cli, range(3))
    (path.parent / "secret.key").write_text("secret")

    made = cli.good("backup", "copy.db")
    assert "Done: copy.db, " in made.out
    assert "The secret key is not in it. Keep a copy elsewhere: .floodmark/secret.key" in made.out
    cli.refused("backup", "copy.db", says="this would replace the file copy.db")
    assert cli.good("backup", "copy.db", "--yes", "--json").json["path"] == "copy.db"
    cli.refused("restore", "copy.db", says="this would replace the database")
    done = cli.good("restore", "copy.db", "--yes").out
    assert "is now copy.db, made " in done
    assert "The earlier database is kept as .floodmark/floodmark.db.before-restore-" in done
    shutil.rmtree(path.parent)
    assert cli.good("restore", "copy.db", "--json").json["kept"] is None, "nothing to replace, nothing to confirm"
    assert [finding["ok"] for finding in cli("doctor", "--json").json if finding["code"] == "I8.gapless"] == [True]


def test_wrong_files_are_refused_and_change_nothing(cli: CommandLine) -> None:
    path = fill(cli, range(3))
    cli.good("backup", "good.db")
    before = path.read_bytes()
    (cli.folder / "text").write_text("no database" * 100)
    with closing(sqlite3.connect(cli.folder / "other.db")) as other:
        other.execute("CREATE TABLE t (x)")
    (cli.folder / "short.db").write_bytes((cli.folder / "good.db").read_bytes()[: 8192 * 5])
    shutil.copy(cli.folder / "good.db", cli.folder / "newer.db")
    with closing(sqlite3.connect(cli.folder / "newer.db", isolation_level=None)) as newer:
        newer.execute("UPDATE alembic_version SET version_num = '9999'")

    for name, says, code in (
        ("missing", "there is no file missing", 2),
        ("text", "text is not a readable database", 2),
        ("other.db", "other.db is not a database of Floodmark", 2),
        ("short.db", "database", 2),
        ("newer.db", "which is newer than this version of Floodmark knows", 1),
        (str(path), "is the database itself", 2),
    ):
        cli.refused("restore", name, "--yes", says=says, code=code)
    cli.refused("backup", str(path), "--yes", says="is the database itself")
    cli.refused("backup", ".", says=". is a folder")
    cli.refused("restore", says="no backup is named")
    cli.refused("backup", "x/y/z.db", "--url", "http://127.0.0.1:1", says="works on this machine only")
    assert path.read_bytes() == before
    assert not hidden(path.parent)


@pytest.mark.release
def test_a_database_in_use_is_not_replaced(cli: CommandLine) -> None:
    path = fill(cli, range(3))
    cli.good("backup", "copy.db")
    with cli.running("up", "--port", "0"):
        eventually(lambda: "alive" in cli("workers").out or "leader" in cli("workers").out)
        cli.refused("restore", "copy.db", "--yes", says="these processes use the database: ")
        assert cli.good("backup", "while-it-runs.db").code == 0
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM items").fetchone()
        cli.refused("restore", "copy.db", "--yes", says="another program uses the database")
    cli.good("restore", "copy.db", "--yes")


@pytest.fixture(scope="module")
def doomed() -> Iterator[Doomed]:
    with doomed_commands() as commands:
        yield commands


@pytest.mark.spec("G2")
@pytest.mark.parametrize("point", ["backup.copying", "backup.copied", "export.moved"])
@pytest.mark.thorough
def test_a_killed_backup_leaves_the_last_one(point: str, cli: CommandLine, doomed: Doomed) -> None:
    fill(cli, range(3))
    cli.good("backup", "copy.db")
    fill(cli, range(3, 5))

    assert doomed.run(cli.folder, ("backup", "copy.db", "--yes"), failpoint=f"{point}:kill") == KILLED
    count = 5 if point == "export.moved" else 3
    assert rows(cli.folder / "copy.db", "SELECT count(*) FROM items") == [(count,)]
    assert len(hidden(cli.folder)) == 1
    cli.good("backup", "copy.db", "--yes")
    assert rows(cli.folder / "copy.db", "SELECT count(*) FROM items") == [(5,)]
    assert not hidden(cli.folder)


@pytest.mark.spec("G2")
@pytest.mark.parametrize(("point", "count"), [("restore.prepared", 5), ("restore.replaced", 3)])
@pytest.mark.thorough
def test_a_killed_restore_leaves_one_database_or_the_other(
    point: str, count: int, cli: CommandLine, doomed: Doomed
) -> None:
    path = fill(cli, range(3))
    cli.good("backup", "copy.db")
    fill(cli, range(3, 5))

    assert doomed.run(cli.folder, ("restore", "copy.db", "--yes"), failpoint=f"{point}:kill") == KILLED
    assert rows(path, "SELECT count(*) FROM items") == [(count,)]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    cli.good("restore", "copy.db", "--yes")
    assert rows(path, "SELECT count(*) FROM items") == [(3,)]
    assert not hidden(path.parent)


# What happens after a restore


class Town:
    """An application that collects numbers from a list, and what its readers have seen."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.numbers = settings, list(range(1, 6))

    def app(self) -> Floodmark:
        app = Floodmark(self.settings)

        @app.collector(name="numbers", key="id", watermark="id", stream="numbers")
        def numbers(since: int | None) -> list[dict[str, int]]:
            return [{"id": number} for number in self.numbers if number > (since or 0)]

        return app

    async def collect(self, resources: Resources) -> None:
        operations = LocalOperations(resources, ACTOR)
        execution = (await operations.run_job("numbers")).execution_id

        async def check() -> bool:
            found = await operations.execution(execution)
            assert found.state == "done", found
            items = (await operations.items("numbers", limit=100)).items
            assert len(items) == len(self.numbers)
            log = await resources.repositories.item_pages.bounds()
            assert await resources.repositories.events.last_position() == log.newest
            return True

        await soon(check)


@pytest.mark.spec("G2", "G3", "G4")
@pytest.mark.thorough
async def test_after_a_restore_gaps_are_filled_and_readers_miss_nothing(
    sqlite_copy: str, redis_url: str, tmp_path: Path
) -> None:
    """Redis knows executions that the store does not, and readers have positions that it has not given yet."""
    path, copy = path_of(sqlite_copy), tmp_path / "copy.db"
    town = Town(Settings(database_url=sqlite_copy, redis_url=redis_url, hostname="town", floodmark_home=tmp_path))
    app = town.app()
    async with served(app) as (resources, _):
        await town.collect(resources)
        assert len([event async for event in app.events(consumer="mailer")]) == 5
        await asyncio.to_thread(back_up, path, copy, unseen)
        town.numbers += range(6, 11)
        await town.collect(resources)
        later = [event async for event in app.events(consumer="mailer")]
        assert [event.key for event in later] == ["6", "7", "8", "9", "10"]
        own_position = later[-1].position
        with pytest.raises(Conflict, match="these processes use the database"):
            Restore(copy, path).check()

    await Restore(copy, path).run(ACTOR, unseen)
    town.numbers.append(11)

    async with served(app) as (resources, _):
        await town.collect(resources)
        ids = [f"numbers/{number}/1" for number in range(6, 12)]
        assert [event.event_id async for event in app.events(consumer="mailer")] == ids
        # A program that keeps its position itself reads the same events again, and nothing is missing.
        assert [event.event_id async for event in app.events(after=own_position)] == ids
        items = [item async for item in app.items("numbers")]
        assert sorted(int(item.key) for item in items) == list(range(1, 12))
        assert {item.revision for item in items} == {1}
        findings = await LocalOperations(resources, ACTOR).doctor()
        assert [one.code for one in findings if not one.ok and one.code.startswith(("I", "states"))] == []


@pytest.mark.spec("G2")
@pytest.mark.thorough
async def test_a_continued_export_after_a_restore_misses_nothing(sqlite_copy: str, tmp_path: Path) -> None:
    path, copy, out = path_of(sqlite_copy), tmp_path / "copy.db", tmp_path / "out"
    chosen = {"format": "jsonl", "continues": True}
    async with opening(sqlite_copy)() as resources:
        await keep(resources, range(3))
        await export(resources, out, **chosen)
        back_up(path, copy, unseen)
        await keep(resources, range(3, 5))
        await export(resources, out, **chosen)
    await Restore(copy, path).run(ACTOR, unseen)

    async with opening(sqlite_copy)() as resources:
        await keep(resources, range(3, 7))
        await relayed(resources)
        again = await export(resources, out, **chosen)

    assert (again.rows, again.is_complete) == (4, False)
    found = sorted(row["key"] for row in all_lines(out))
    assert found == ["k0", "k1", "k2", "k3", "k3", "k4", "k4", "k5", "k6"]


# PostgreSQL


@pytest.fixture
def dumped(postgres: Postgres) -> Iterator[tuple[str, str]]:
    """The URLs of a database, and of another one for its copy."""
    names = [f"{kind}_{uuid4().hex[:12]}" for kind in ("before", "after")]
    urls = [postgres.create_database(name) for name in names]
    yield urls[0], urls[1]
    for name in names:
        postgres.drop_database(name)


async def relayed(resources: Resources) -> None:
    async def publish(_: Any) -> None: ...

    await resources.keeping.relay(publish, limit=1000)


@pytest.mark.thorough
def test_on_postgresql_a_dump_is_restored_and_marked(cli: CommandLine, dumped: tuple[str, str]) -> None:
    """As the page says: pg_dump, pg_restore, `floodmark restore --mark`."""
    before, after = dumped
    programs = find_postgres()
    cli.settings["DATABASE_URL"] = before
    cli.refused("backup", "copy.db", says="is not a file: this command is for SQLite")
    cli.refused("restore", "copy.db", says="is not a file: this command is for SQLite")
    cli.good("migrate")

    async def collect(url: str, numbers: Sequence[int]) -> list[tuple[str, int]]:
        async with opening(url)() as resources:
            await keep(resources, numbers)
            await relayed(resources)
            events = LocalOperations(resources, ACTOR).read_events(consumer="mailer")
            return [(event.key, event.position) async for event in events]

    assert asyncio.run(collect(before, [1, 2])) == [("k1", 1), ("k2", 2)]
    dump = str(cli.folder / "floodmark.dump")
    _run(programs / "pg_dump", "--format", "custom", "--file", dump, before)
    assert asyncio.run(collect(before, [3])) == [("k3", 3)]
    _run(programs / "pg_restore", "--dbname", after, "--no-owner", dump)
    cli.settings["DATABASE_URL"] = after
    position = cli.good("restore", "--mark", "--yes", "--json").json["position"]

    assert position > gap_after(timedelta())
    assert asyncio.run(collect(after, [3, 4])) == [("k3", position + 1), ("k4", position + 2)]
    findings = cli("doctor", "--json").json
    assert [one["ok"] for one in findings if one["code"] == "I8.gapless"] == [True]


def _run(program: Path, *arguments: str) -> None:
    subprocess.run(
        [program, *arguments], check=True, capture_output=True, env={**os.environ, "PGCONNECT_TIMEOUT": "60"}
    )
