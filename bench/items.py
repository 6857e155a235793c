"""Items stored with watermark and events in batches of 100, compared with a bulk INSERT of the same rows.

python run.py bench items [items] [rounds]
"""

import sys
from datetime import UTC, datetime
from statistics import median

import asyncpg
from sqlalchemy import text

from floodmark.model.batch import Batch, Item
from floodmark.model.execution import Lease
from floodmark.model.job import Work
from floodmark.settings import Settings
from floodmark.store.item_rows import pack
from floodmark.store.port import Keeping
from floodmark.wiring.resources import Resources

from ._measuring import Report, Watch, both_servers, floodmark, folder, interleaved, ratio, run

BATCH = 100
COLUMNS = "stream, key, occurred_at, collected_at, data, content_hash, deleted, fence"


def batches(items: int) -> list[Batch]:
    """Return posts of about 400 characters."""
    made = []
    for start in range(0, items, BATCH):
        posts = [
            Item(f"{n:09d}", {"id": n, "text": "lorem ipsum " * 30, "views": n * 7, "author": "someone"})
            for n in range(start, start + BATCH)
        ]
        made.append(Batch(posts, {"value": start + BATCH}))
    return made


async def ours(resources: Resources, made: list[Batch]) -> float:
    """Return the items per second through the sink."""
    await _empty(resources)
    async with resources.database.writing() as connection:
        await connection.execute(text("INSERT INTO watermarks (stream, fence) VALUES ('bench', 1)"))
    work = Work(job_id="j", name="bench", source="python", target="bench", stream="bench")
    lease = Lease(execution_id="e", job=work, scheduled_for=datetime.now(UTC), attempt=1, worker="w", fence=1)
    keeping: Keeping = resources.keeping
    watch = Watch()
    with watch.running():
        for batch in made:
            await keeping.keep(lease, batch)
    return len(made) * BATCH / watch.wall


async def raw_postgres(resources: Resources, url: str, made: list[Batch]) -> float:
    """Insert the same rows, one INSERT per batch, with asyncpg alone."""
    await _empty(resources)
    connection = await asyncpg.connect(url)
    statement = (
        f"INSERT INTO items ({COLUMNS}) SELECT 'bench', n.*, 1 FROM unnest($1::text[], $2::timestamptz[],"
        " $3::timestamptz[], $4::jsonb[], $5::text[], $6::bool[]) AS n"
    )
    now = await connection.fetchval("SELECT now()")
    watch = Watch()
    with watch.running():
        for batch in made:
            keys, occurred, data, hashes, deleted = zip(*pack(batch.items), strict=True)
            texts = [json.decode() for json in data]
            await connection.execute(statement, keys, occurred, [now] * BATCH, texts, hashes, deleted)
    await connection.close()
    return len(made) * BATCH / watch.wall


async def raw_sqlite(resources: Resources, made: list[Batch]) -> float:
    """Insert the same rows, one transaction per batch, with sqlite3 alone on its thread."""
    await _empty(resources)
    statement = f"INSERT INTO items ({COLUMNS}) VALUES ('bench', ?, ?, '2026-01-01', ?, ?, ?, 1)"
    hot = resources.database.hot  # type: ignore[attr-defined]
    watch = Watch()
    with watch.running():
        for batch in made:
            rows = [(key, moment, data.decode(), *more) for key, moment, data, *more in pack(batch.items)]
            await hot("raw", lambda connection, rows=rows: connection.executemany(statement, rows).rowcount)
    return len(made) * BATCH / watch.wall


async def _empty(resources: Resources) -> None:
    async with resources.database.writing() as connection:
        for table in ("items", "outbox", "watermarks"):
            await connection.execute(text(f"DELETE FROM {table}"))
    if resources.database.dialect == "postgresql":
        async with resources.database.engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await connection.execute(text("VACUUM items, outbox, watermarks"))


async def main(items: int = 20_000, rounds: int = 3) -> None:
    made = batches(items)
    report = Report(f"{items:,} items in batches of {BATCH}, median of {rounds} interleaved rounds")
    with both_servers() as (postgres, _valkey), folder() as files:
        url = postgres.create_database("items")
        async with (
            floodmark(Settings(database_url=url)) as servers,
            floodmark(Settings(database_url=f"sqlite:///{files}/items.db")) as embedded,
        ):
            measured = await interleaved(
                rounds,
                lambda: ours(servers, made),
                lambda: raw_postgres(servers, url, made),
                lambda: ours(embedded, made),
                lambda: raw_sqlite(embedded, made),
            )
    for where, place in (("PostgreSQL", 0), ("SQLite", 2)):
        kept, inserted = measured[place], measured[place + 1]
        report.add(
            f"items kept with watermark and outbox, {where}",
            f"{median(kept):,.0f}/s",
            f"{median(inserted):,.0f}/s bulk INSERT alone",
            ratio(kept, inserted),
            ">= 0.75x",
        )
    report.print()


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    run(lambda: main(*arguments))
