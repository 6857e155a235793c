"""Items written to files in each format, compared with a bare cursor that reads the same rows.

python run.py bench export [items] [rounds]
"""

import asyncio
import gc
import sqlite3
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg
import msgspec
from msgspec import Struct
from sqlalchemy import text

from floodmark.cli.export_items import ItemOptions, request_of
from floodmark.exports.export import run_export
from floodmark.exports.formats import FORMATS
from floodmark.model.audit import Actor
from floodmark.operations.local import LocalOperations
from floodmark.settings import Settings
from floodmark.wiring.resources import Resources, open_resources

from ._measuring import Report, both_servers, floodmark, folder, in_a_process, interleaved, ratio, run, tell

STREAMS, CURSOR = 20, 2000
# A spreadsheet takes ten times as long.
SHEET_SHARE = 10
COLUMNS = "stream, key, revision, occurred_at, collected_at, data, deleted"
OLD = datetime(2026, 1, 1, tzinfo=UTC)


class Task(Struct):
    """What a process measures: one format, or `cursor`."""

    url: str
    kind: str
    streams: int
    out: str


class Measured(Struct):
    """Rows and CPU seconds, and the memory of the process in megabytes: before the work, and the most."""

    rows: int
    cpu: float
    before: float
    most: float

    @property
    def rate(self) -> float:
        return self.rows / self.cpu


async def fill(resources: Resources, items: int) -> None:
    """Store posts of about 700 bytes, as the Telegram source does."""
    now = resources.clock.now()
    share = items // STREAMS
    for stream in range(STREAMS):
        rows = [_row(stream + 1, number, now) for number in range(share)]
        async with resources.database.writing() as connection:
            mark = text("INSERT INTO watermarks (stream, fence) VALUES (:stream, 1)")
            await connection.execute(mark, {"stream": rows[0]["stream"]})
            await connection.execute(
                text(
                    "INSERT INTO items (stream, key, occurred_at, collected_at, data, content_hash, fence)"
                    " VALUES (:stream, :key, :at, :now, :data, 'h', 1)"
                    if resources.database.dialect == "sqlite"
                    else "INSERT INTO items (stream, key, occurred_at, collected_at, data, content_hash, fence) VALUES"
                    " (:stream, :key, CAST(CAST(:at AS text) AS timestamptz),"
                    " CAST(CAST(:now AS text) AS timestamptz), CAST(CAST(:data AS text) AS jsonb), 'h', 1)"
                ),
                rows,
            )
    if resources.database.dialect == "postgresql":
        async with resources.database.engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await connection.execute(text("VACUUM ANALYZE items"))


def _row(channel: int, number: int, now: datetime) -> dict[str, Any]:
    at = OLD + timedelta(minutes=number)
    data = {
        "id": number,
        "channel_id": channel,
        "channel": "harbour",
        "date": f"{at:%Y-%m-%dT%H:%M:%SZ}",
        "text": "The ferry is back, and the ice on the river is gone. " * 8,
        "kind": "message",
        "views": number * 7,
        "forwards": 3,
        "media": {"type": "photo", "id": "5312345678901234567"},
        "reactions": [{"emoji": "👍", "count": 12}],
    }
    moments = {"at": f"{at:%Y-%m-%d %H:%M:%S}.000000+00:00", "now": f"{now:%Y-%m-%d %H:%M:%S.%f}+00:00"}
    return {
        "stream": f"telegram:{channel}",
        "key": f"{channel}:{number:07}",
        "data": msgspec.json.encode(data).decode(),
        **moments,
    }


class Silent:
    def start(self, streams: int) -> None: ...

    def add(self, rows: int, stream: str | None) -> None: ...


async def write(task: Task) -> int:
    """Export with the code of the command."""
    names = tuple(f"telegram:{number + 1}" for number in range(task.streams))
    options = ItemOptions(streams=names, out=task.out, format=task.kind)
    async with open_resources(Settings(database_url=task.url)) as resources:
        operations = LocalOperations(resources, Actor(who="bench"))
        request = request_of(options, datetime.now(UTC))
        return (await run_export(operations, request, Silent(), sys.stdout.buffer)).rows


async def read(task: Task) -> int:
    """Read the same rows with the driver alone, 2,000 at a time."""
    last, rows = f"telegram:{task.streams}", 0
    query = f"SELECT {COLUMNS} FROM items WHERE length(stream) <= {len(last)} ORDER BY stream, key"
    if task.url.startswith("sqlite"):
        cursor = sqlite3.connect(task.url.removeprefix("sqlite:///")).execute(query)
        while page := cursor.fetchmany(CURSOR):
            rows += len(page)
        return rows
    connection = await asyncpg.connect(task.url)
    async with connection.transaction():
        reader = await connection.cursor(query)
        while page := await reader.fetch(CURSOR):
            rows += len(page)
    await connection.close()
    return rows


def measure(task: Task) -> Measured:
    # As the command does.
    gc.freeze()
    before, cpu = _most_megabytes(), time.process_time()
    rows = asyncio.run(read(task) if task.kind == "cursor" else write(task))
    return Measured(rows, time.process_time() - cpu, before, _most_megabytes())


def _most_megabytes() -> float:
    # Not `getrusage`, which begins with the memory of the process that started this one.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1000


async def main(items: int = 200_000, rounds: int = 3) -> None:
    report = Report(f"{items:,} posts of 700 bytes in {STREAMS} streams, median of {rounds} interleaved rounds")
    with both_servers() as (postgres, _valkey), folder() as files:
        for where, url in (
            ("SQLite", f"sqlite:///{files}/items.db"),
            ("PostgreSQL", postgres.create_database("export")),
        ):
            async with floodmark(Settings(database_url=url)) as resources:
                await fill(resources, items)
            kinds = ("cursor", *FORMATS)
            tasks = [
                Task(url, kind, STREAMS // SHEET_SHARE if kind == "xlsx" else STREAMS, str(files / f"out.{kind}"))
                for kind in kinds
            ]
            measured = await interleaved(
                rounds, *[lambda task=task: in_a_process("bench.export", "measure", task, Measured) for task in tasks]
            )
            bare = measured[0]
            for kind, ours in zip(kinds[1:], measured[1:], strict=True):
                report.add(
                    f"{kind}, {where}",
                    f"{median(one.rate for one in ours):,.0f} rows per CPU s, "
                    f"{max(one.most for one in ours):.0f} MB ({max(one.most - one.before for one in ours):+.0f})",
                    f"{median(one.rate for one in bare):,.0f} rows per CPU s, bare cursor",
                    ratio([one.rate for one in ours], [one.rate for one in bare]),
                )
    report.print()


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        tell(measure(msgspec.json.decode(sys.argv[2], type=Task)))
    else:
        arguments = [int(argument) for argument in sys.argv[1:]]
        run(lambda: main(*arguments))
