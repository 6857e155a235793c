"""Requests to Telegram for connecting and resolving names: several workers with and without affinity.

python run.py bench affinity [runs] [workers]
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from msgspec import Struct
from sqlalchemy import text

from floodmark import Floodmark
from floodmark.model.job import ScheduleType, When
from floodmark.model.spec import JobSpec
from floodmark.repositories.jobs import Jobs
from floodmark.security.vault import Vault
from floodmark.settings import Settings
from floodmark.sources.telegram.accounts import Accounts
from floodmark.testing.eventually import eventually
from floodmark.testing.serving import served
from floodmark.testing.telegram import LoopbackTelegram, TelegramBackend
from floodmark.wiring.resources import Resources

from ._measuring import Report, both_servers, migrated, run
from ._telegram import SECRET

ACCOUNTS, CHANNELS, MESSAGES = 6, 12, 20
EVERY, LINGER = 3, 2
# A first request on a connection asks for the configuration.
CONNECT, RESOLVE, HISTORY = "help.getConfig", "contacts.resolveUsername", "messages.getHistory"
_RUNS = """
SELECT count(*), avg(EXTRACT(EPOCH FROM completed_at - scheduled_for)), (SELECT sum(fence) FROM watermarks)
  FROM executions WHERE state = 'done'
"""


class Measured(Struct, kw_only=True):
    """The runs of one fleet, its requests and leases, and the mean time from due to done."""

    runs: int
    connects: int
    resolves: int
    pages: int
    leases: int
    seconds: float


async def measure(settings: dict[str, Any], *, workers: int, runs: int) -> Measured:
    """Let a fleet read the channels, from its start until it has made this number of runs."""
    backend = TelegramBackend(seed=5)
    names = [f"reader{number}" for number in range(ACCOUNTS)]
    for name in names:
        backend.account(name)
    for number in range(CHANNELS):
        backend.channel(f"channel_{number}").fill(MESSAGES, kind="plain")
    chosen = Settings(floodmark_secret_key=SECRET, hostname="bench", log_level="error", **settings)
    await migrated(chosen)
    with LoopbackTelegram.thread(backend, forbid_duplicates=True) as server:
        async with served(Floodmark(chosen), worker=False) as (resources, _):
            accounts = Accounts(resources.database, resources.clock, Vault.of(chosen), resources.events)
            for name in names:
                await accounts.add(name, api_id=1, api_hash="hash", session=server.session(name))
            with _workers(settings, workers):
                await _workers_ready(resources, workers)
                await _add_jobs(resources)
                done, taken, leases = await eventually(lambda: _runs_done(resources, runs), within=600)
        calls = {method: len(server.calls(method)) for method in (CONNECT, RESOLVE, HISTORY)}
        if server.duplicates:
            raise SystemExit("a session was open twice")
    return Measured(
        runs=done,
        connects=calls[CONNECT],
        resolves=calls[RESOLVE],
        pages=calls[HISTORY],
        leases=int(leases or 0),
        seconds=float(taken or 0),
    )


@contextmanager
def _workers(settings: dict[str, Any], count: int) -> Iterator[None]:
    given = {name.upper(): str(value) for name, value in settings.items() if value is not None}
    environment = os.environ | given | {"FLOODMARK_SECRET_KEY": SECRET.get_secret_value(), "LOG_LEVEL": "error"}
    command = [sys.executable, "-m", "floodmark", "--quiet", "worker", "--processes", "1", "--port", "0"]
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()


async def _workers_ready(resources: Resources, count: int) -> None:
    async def are_all() -> bool:
        return len(await resources.repositories.fleet.available()) == count

    await eventually(are_all)


async def _runs_done(resources: Resources, wanted: int) -> Any:
    async with resources.database.reading() as connection:
        found = (await connection.execute(text(_RUNS))).one()
    return found if found[0] >= wanted else None


async def _add_jobs(resources: Resources) -> None:
    jobs = Jobs(resources.database, resources.clock)
    when = When(schedule_type=ScheduleType.INTERVAL, interval_seconds=EVERY)
    for number in range(CHANNELS):
        await jobs.add(JobSpec(source="telegram", target=f"@channel_{number}", when=when))
        # Spread over the interval, as jobs are that were added at different times.
        await asyncio.sleep(EVERY / CHANNELS)


async def main(runs: int = 200, workers: int = 3) -> None:
    title = (
        f"{workers} workers, {ACCOUNTS} accounts, {CHANNELS} channels every {EVERY} s, {runs} runs; "
        f"idle sessions are closed after {LINGER} s"
    )
    report = Report(title)
    with both_servers() as (postgres, valkey):
        for queue, redis_url in (("Redis queue", valkey.url), ("SQL queue", None)):
            found = {}
            for affinity in (timedelta(), timedelta(seconds=2)):
                name = f"affinity{len(report.rows)}_{affinity.seconds}"
                settings = {
                    "database_url": postgres.create_database(name),
                    "redis_url": redis_url,
                    "scheduler_queue_prefix": name,
                    "telegram_session_linger": LINGER,
                    "execution_affinity": affinity.seconds,
                }
                found[bool(affinity)] = await measure(settings, workers=workers, runs=runs)
            _add_rows(report, queue, found[True], found[False])
    report.print()


def _add_rows(report: Report, queue: str, ours: Measured, other: Measured) -> None:
    for what, count, reference in (
        ("connections", ours.connects, other.connects),
        ("resolved names", ours.resolves, other.resolves),
        ("pages of history", ours.pages, other.pages),
        ("leases", ours.leases, other.leases),
    ):
        mine, theirs = count / max(1, ours.runs), reference / max(1, other.runs)
        report.add(
            f"{what} per run, {queue}",
            f"{mine:.3f} ({count} / {ours.runs})",
            f"{theirs:.3f} ({reference} / {other.runs}) without affinity",
            f"{mine / theirs:.2f}x" if theirs else "",
        )
    report.add(
        f"from due to done, {queue}",
        f"{ours.seconds:.2f} s",
        f"{other.seconds:.2f} s without affinity",
        f"{ours.seconds / other.seconds:.2f}x" if other.seconds else "",
    )


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    run(lambda: main(*arguments))
