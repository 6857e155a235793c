"""A disk that is full, and a server that takes no writes: health says so, reading goes on, nothing is half kept."""

import asyncio
import json
import re
import resource
import sqlite3
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from command_line import CommandLine, eventually
from floodmark.operations.health import health_of
from floodmark.store.database import SqliteDatabase
from floodmark.testing.factories import Opened
from floodmark.wiring.resources import Resources
from floodmark.wiring.write_check import WriteCheck

pytest_plugins = ("backends",)
LIMIT = 100_000
UNLIMITED = resource.RLIM_INFINITY


def get(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def kept(database: Path) -> tuple[int, int]:
    """How many items there are, and the watermark."""
    with closing(sqlite3.connect(database)) as connection:
        [count] = connection.execute("SELECT count(*) FROM items").fetchone()
        watermark = connection.execute("SELECT value FROM watermarks").fetchone()
    return count, json.loads(watermark[0])["value"] if watermark and watermark[0] else 0


@pytest.mark.spec("T8", "G2", "G9")
@pytest.mark.thorough
def test_a_full_disk_is_not_ok_and_comes_back_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file of the process may grow beyond a size that the log of the database soon reaches."""
    monkeypatch.chdir(tmp_path)
    cli = CommandLine(tmp_path, PORT="0")
    with cli.running("up", "--app", "feeds:app") as process:
        url = eventually(lambda: re.findall(r"health +(http\S+)/health", cli.said()))[0]
        eventually(lambda: get(f"{url}/health")[0] == 200)

        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (LIMIT, UNLIMITED))
        try:
            eventually(lambda: get(f"{url}/health")[0] == 503)
            for path in ("/health", "/health/details", "/api/v2/scheduler/health"):
                _, report = get(f"{url}{path}")
                assert report["status"] == "down"
                assert report["database"].startswith("cannot be written: ")
                assert f"the database {report['database']}" in report["problems"]
            # It can still be asked, and a restart would not help.
            for path in ("/health/live", "/health/ready", "/api/v2/jobs", "/api/v2/streams"):
                assert get(f"{url}{path}")[0] == 200, path
            count, watermark = kept(tmp_path / ".floodmark" / "floodmark.db")
            assert count == watermark
        finally:
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED))

        eventually(lambda: get(f"{url}/health")[0] == 200)
        eventually(lambda: kept(tmp_path / ".floodmark" / "floodmark.db")[0] > count + 1)
        count, watermark = kept(tmp_path / ".floodmark" / "floodmark.db")
        assert watermark - count in (-1, 0, 1), "the two were read one after the other"


@pytest.mark.spec("T8")
async def test_a_server_that_takes_no_writes_is_not_ok(postgres_only: Opened) -> None:
    """As after a failover to a standby."""
    async with postgres_only() as resources:
        assert await resources.write_check.problem() is None
        await _let(resources, "SET default_transaction_read_only = on")
        try:
            async with postgres_only() as later:
                report = await health_of(later)
        finally:
            await _let(resources, "RESET default_transaction_read_only")
    assert report["status"] == "down"
    assert "read-only transaction" in report["database"]


async def _let(resources: Resources, change: str) -> None:
    """Change a setting of the database, which new sessions begin with."""
    async with resources.database.writing() as connection:
        await connection.execute(text("SET TRANSACTION READ WRITE"))
        name = (await connection.execute(text("SELECT current_database()"))).scalar_one()
        await connection.execute(text(f'ALTER DATABASE "{name}" {change}'))


@pytest.mark.spec("T8", "G8")
async def test_looking_wakes_nobody_and_waits_for_nobody(sqlite: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is committed; while another process writes, that is answer enough; many ask, one looks."""
    async with sqlite() as resources:
        assert isinstance(resources.database, SqliteDatabase)
        with closing(sqlite3.connect(resources.database.path, isolation_level=None)) as other:
            before = other.execute("PRAGMA data_version").fetchone()
            assert await WriteCheck(resources.database).problem() is None
            assert other.execute("PRAGMA data_version").fetchone() == before
            other.execute("BEGIN IMMEDIATE")
            assert await WriteCheck(resources.database).problem() is None
            other.execute("ROLLBACK")

        looked = 0

        def look(_: object) -> None:
            nonlocal looked
            looked += 1

        monkeypatch.setattr("floodmark.wiring.write_check._write_sqlite", look)
        check = WriteCheck(resources.database)
        await asyncio.gather(*(check.problem() for _ in range(20)))
        assert looked == 1
