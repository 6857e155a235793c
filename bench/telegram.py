"""Telegram messages collected and committed by a worker, compared with Telethon's `iter_messages` alone.

python run.py bench telegram [messages] [rounds]
"""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from floodmark.settings import Settings

from ._measuring import Report, both_servers, floodmark, folder, interleaved, ratio, run
from ._telegram import SECRET, WARM_UP, Read, Reading, Served, Town, given_account, read, serving

SAMPLES = (10_000, 50_000, 100_000, 200_000)
CHATS = tuple(f"pier{number}" for number in range(8))


async def speed(report: Report, messages: int, rounds: int) -> None:
    """Measure one channel: messages per second, and CPU per message of the reading process."""
    town = Town(channels={WARM_UP: 500, "harbour": messages})
    with both_servers() as (postgres, _valkey), folder() as place, serving(town) as served:
        names = iter(range(1_000_000))

        async def bare() -> Read:
            return await read("bare", Reading(session=served.session, channel="harbour"))

        async def on_sqlite() -> Read:
            return await _ours(served, f"sqlite:///{place}/{next(names)}.db")

        async def on_postgres() -> Read:
            name = f"telegram{next(names)}"
            try:
                return await _ours(served, postgres.create_database(name))
            finally:
                postgres.drop_database(name)

        reference, *ours = await interleaved(rounds, bare, on_sqlite, on_postgres)
    for one in [*reference, *ours[0], *ours[1]]:
        if one.messages != messages:
            raise SystemExit(f"{one.messages:,} of {messages:,} messages were read")
    for where, measured in zip(("SQLite", "PostgreSQL"), ours, strict=True):
        _add_rates(report, where, measured, reference)
        _add_cpu(report, where, measured, reference)


async def _ours(served: Served, database_url: str, channel: str = "harbour", samples: Sequence[int] = ()) -> Read:
    return await read(
        "worker", Reading(session=served.session, channel=channel, database_url=database_url, samples=samples)
    )


def _add_rates(report: Report, where: str, measured: Sequence[Read], reference: Sequence[Read]) -> None:
    rates, others = ([one.messages / one.wall for one in of] for of in (measured, reference))
    report.add(
        f"messages collected and committed, {where}",
        f"{median(rates):,.0f}/s",
        f"{median(others):,.0f}/s iter_messages(wait_time=0)",
        ratio(rates, others),
        ">= 0.75x",
    )


def _add_cpu(report: Report, where: str, measured: Sequence[Read], reference: Sequence[Read]) -> None:
    spent, others = ([one.cpu / one.messages * 1e6 for one in of] for of in (measured, reference))
    report.add(
        f"CPU of the worker per message, {where}",
        f"{median(spent):.0f} us",
        f"{median(others):.0f} us iter_messages",
        ratio(spent, others),
    )


async def memory(report: Report) -> None:
    """Measure the memory of the worker during a long history; it must not grow with the length."""
    town = Town(channels={WARM_UP: 500, "harbour": SAMPLES[-1]}, kind="plain", every_seconds=10)
    with both_servers() as (postgres, _valkey), folder() as place, serving(town) as served:
        for where, url in (
            ("SQLite", f"sqlite:///{place}/memory.db"),
            ("PostgreSQL", postgres.create_database("telegram")),
        ):
            found = (await _ours(served, url, samples=SAMPLES)).megabytes
            shown = " ".join(f"{megabytes:.0f}" for megabytes in found)
            report.add(
                f"memory of the worker, {where}",
                f"{shown} MB",
                f"after {', '.join(f'{count:,}' for count in SAMPLES)} messages",
                f"{found[-1] - found[0]:+.0f} MB",
            )


async def parallel(report: Report, rounds: int) -> None:
    """Measure `floodmark fetch` of one day of several chats from a slow server."""
    yesterday = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    town = Town(channels=dict.fromkeys(CHATS, 500), every_seconds=60, start=yesterday, delay_seconds=0.1)
    with folder() as place, serving(town) as served:
        names = iter(range(1_000_000))

        async def fetched(at_once: int) -> float:
            return await _fetch(served, place / str(next(names)), yesterday, at_once)

        alone, together = await interleaved(rounds, lambda: fetched(1), lambda: fetched(2))
    report.add(
        f"fetch of a day of {len(CHATS)} chats, answers after 100 ms, PARALLELISM_MAX=2",
        f"{median(together):.1f} s",
        f"{median(alone):.1f} s with PARALLELISM_MAX=1",
        f"{ratio(alone, together)} as fast",
        "> 1x",
        figure=ratio(alone, together),
    )


async def _fetch(served: Served, place: Path, day: datetime, at_once: int) -> float:
    """Return the seconds that the command takes from its start to the files."""
    settings = Settings(database_url=f"sqlite:///{place}/fetch.db", floodmark_secret_key=SECRET)
    async with floodmark(settings) as resources:
        await given_account(resources, served.session)
    environment = {
        "DATABASE_URL": settings.database_url,
        "FLOODMARK_SECRET_KEY": SECRET.get_secret_value(),
        "PARALLELISM_MAX": str(at_once),
    }
    chats = [f"@{chat}" for chat in CHATS]
    command = ["fetch", *chats, "--date", f"{day:%Y-%m-%d}", "--out", str(place / "out")]
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "floodmark", *command, env=os.environ | environment, stdout=asyncio.subprocess.DEVNULL
    )
    if await process.wait():
        raise SystemExit("the fetch failed, see above")
    took = time.monotonic() - began
    files = list((place / "out").rglob("*.json"))
    if len(files) != len(CHATS):
        raise SystemExit(f"{len(files)} of {len(CHATS)} files were written")
    return took


async def main(messages: int = 20_000, rounds: int = 7) -> None:
    report = Report(f"one channel of {messages:,} typical messages, median (range) of {rounds} interleaved rounds")
    await speed(report, messages, rounds)
    await memory(report)
    await parallel(report, min(rounds, 2))
    report.print()


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    run(lambda: main(*arguments))
