"""How long many jobs take: 10,000 added in one request, compared with a bare INSERT of the same rows.

python run.py bench bulk [jobs]
"""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import delete, insert, select

from floodmark.app import Floodmark
from floodmark.model.audit import Actor
from floodmark.model.bulk import Action, AddJob, RemoveJob, TagJob
from floodmark.operations.local import LocalOperations
from floodmark.settings import Settings
from floodmark.store.dialects import chunks
from floodmark.store.tables import jobs
from floodmark.wiring.resources import Resources, open_resources

from ._measuring import Report, Watch, both_servers, folder, migrated, run

_ALONE = 200


async def main(count: int = 10_000) -> None:
    report = Report(f"{count:,} jobs at once")
    with both_servers() as (postgres, _), folder() as place:
        for name, url in (
            ("SQLite", f"sqlite:///{place}/bulk.db"),
            ("PostgreSQL", postgres.create_database("bulk")),
        ):
            settings = Settings(database_url=url)
            await migrated(settings)
            async with open_resources(settings, validation=Floodmark(settings).validation) as resources:
                await _measure(report, name, resources, count)
            await _measure_file(report, name, url, place, count)
    report.print()


async def _measure(report: Report, name: str, resources: Resources, count: int) -> None:
    operations = LocalOperations(resources, Actor(who="bench"))
    targets = [f"@channel_{n}" for n in range(count)]
    added = await _watch(operations, [_add(target) for target in targets])
    bare = await _insert_again(resources)
    report.add(
        f"added, {name}",
        f"{added.wall:.1f} s, {added.cpu:.1f} s of CPU",
        f"{bare.wall:.1f} s, bare INSERT of the same rows",
        f"{added.wall / bare.wall:.1f}x",
        "< 10 s" if count == 10_000 else "",
        figure=added.wall,
    )
    alone = Watch()
    with alone.running():
        for n in range(_ALONE):
            await operations.add_job({"source": "telegram", "target": f"@alone_{n}", "interval_seconds": 300})
    one, many = alone.wall / _ALONE * 1000, added.wall / count * 1000
    report.add(f"each, {name}", f"{many:.2f} ms", f"{one:.2f} ms, added one by one", f"{many / one:.2f}x")
    for what, actions in (
        ("added again: all there", [_add(target) for target in targets]),
        ("tagged", [TagJob(name=f"telegram-channel-{n}", add=["x"]) for n in range(count)]),
        ("removed", [RemoveJob(name=f"telegram-channel-{n}") for n in range(count)]),
    ):
        watch = await _watch(operations, actions)
        report.add(f"{what}, {name}", f"{watch.wall:.1f} s, {watch.cpu:.1f} s of CPU")


def _add(target: str) -> AddJob:
    return AddJob(job={"source": "telegram", "target": target, "interval_seconds": 300, "tags": ["news"]})


async def _watch(operations: LocalOperations, actions: Sequence[Action]) -> Watch:
    watch = Watch()
    with watch.running():
        done = await operations.bulk_jobs(actions)
    assert not done.failed
    return watch


async def _insert_again(resources: Resources) -> Watch:
    """Delete the jobs and insert the same rows with bare statements."""
    database, watch = resources.database, Watch()
    rows = [dict(row) for row in await database.fetch(select(*(column for column in jobs.c if column.name != "id")))]
    async with database.writing() as connection:
        await connection.execute(delete(jobs))
    with watch.running():
        for some in chunks(rows):
            async with database.writing() as connection:
                await connection.execute(insert(jobs).returning(jobs.c.job_id), some)
    return watch


async def _measure_file(report: Report, name: str, url: str, place: Path, count: int) -> None:
    """Measure the whole command, from its start to its end."""
    file = place / "many.txt"
    file.write_text("\n".join(f"@channel_{n}" for n in range(count)), encoding="utf-8")
    exported = place / "jobs.toml"
    for what, *command in (
        ("floodmark add --from FILE", "add", "telegram", "--from", str(file), "--every", "5m"),
        ("floodmark jobs export", "jobs", "export"),
        ("floodmark apply FILE, unchanged", "apply", str(exported)),
    ):
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "floodmark", "--set", f"DATABASE_URL={url}", *command),
            stdout=exported.open("wb") if command[0] == "jobs" else asyncio.subprocess.DEVNULL,
            cwd=place,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert await process.wait() == 0
        target = "< 10 s" if command[0] == "add" and count == 10_000 else ""
        took = time.perf_counter() - began
        report.add(f"{what}, {name}", f"{took:.1f} s", target=target, figure=took)


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    run(lambda: main(*arguments))
