"""Other task queues and Floodmark in one run: CPU time of the worker and of the caller, and the rate.

python run.py bench peers [executions] [rounds]

The first run creates a separate environment for the other tools next to .venv. A task does nothing; those of the others
have a payload of 200 bytes. Each measurement is a separate process with one worker. Floodmark keeps a history of every
execution; procrastinate keeps a row of every job, the others nothing.
"""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count as numbers
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct
from sqlalchemy import text

from floodmark.model.audit import Actor
from floodmark.operations.local import LocalOperations
from floodmark.settings import Settings

from ._executions import Place, given_jobs, measured
from ._measuring import Report, Watch, both_servers, floodmark, folder, in_a_process, interleaved, run, tell

PEERS = (
    "dramatiq[redis]==2.2.1",
    "huey==3.5.4",
    "taskiq==0.13.0",
    "taskiq-redis==1.2.4",
    "procrastinate==3.10.0",
    "psycopg[binary,pool]==3.3.9",
)
_ENVIRONMENT = Path(__file__).parent.parent / ".venv" / "peers"
_SCRIPT = Path(__file__).with_name("_peer_tasks.py")
# One call after the other is slow.
_ASKED_PART = 10


class Measured(Struct, frozen=True):
    """Asking for `asks` executions one by one, and running `runs` of them."""

    asked: Watch
    done: Watch
    asks: int = 0
    runs: int = 0


def peers_python() -> Path:
    """Return the interpreter of the other tools; install them if that has not been done."""
    python, installed = _ENVIRONMENT / "bin" / "python", _ENVIRONMENT / "installed.txt"
    wanted = "\n".join(PEERS)
    if not installed.exists() or installed.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", _ENVIRONMENT], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PEERS], check=True)
        installed.write_text(wanted)
    return python


async def measure_peer(python: Path, peer: str, count: int, address: str) -> Measured:
    """Let another tool enqueue and run tasks."""
    command = [str(python), str(_SCRIPT), peer, str(count), address]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    said, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"{peer} failed with code {process.returncode}")
    return msgspec.structs.replace(msgspec.json.decode(said, type=Measured), asks=count, runs=count)


async def measure_ours(place: Place, asking: Place) -> Measured:
    """Let Floodmark fire and run jobs, and ask for runs in another database."""
    asked = await in_a_process(__spec__.name, "ask", asking, Watch)
    done = (await measured("worker", place)).drain
    return Measured(asked, done, asks=asking.count, runs=place.count)


async def ask(place: Place) -> Watch:
    """Ask for runs of jobs, one after the other."""
    settings = Settings(database_url=place.database, redis_url=place.redis or None)
    async with floodmark(settings) as resources:
        if resources.redis is not None:
            await resources.redis.flushall()
        await given_jobs(resources, place.count)
        async with resources.database.writing() as connection:
            await connection.execute(text("UPDATE jobs SET schedule_type = 'event'"))
        operations = LocalOperations(resources, Actor(who="bench"))
        watch = Watch()
        with watch.running():
            for number in range(place.count):
                await operations.run_job(f"job-{number}")
        return watch


async def main(count: int = 8_000, rounds: int = 3) -> None:
    python, names, asks = peers_python(), numbers(), count // _ASKED_PART
    with both_servers() as (postgres, valkey), folder() as place:

        def database() -> str:
            return postgres.create_database(f"peers{next(names)}")

        def file() -> str:
            return f"{place}/{next(names)}.db"

        def ours(make: Callable[[], str], redis: str = "") -> Callable[[], Awaitable[Measured]]:
            return lambda: measure_ours(
                Place(count=count, database=make(), redis=redis), Place(count=asks, database=make(), redis=redis)
            )

        def theirs(peer: str, make: Callable[[], str], count: int = count) -> Callable[[], Awaitable[Measured]]:
            return lambda: measure_peer(python, peer, count, make())

        tools: Mapping[str, Callable[[], Awaitable[Measured]]] = {
            "Floodmark, PostgreSQL": ours(database),
            "Floodmark, Redis + PostgreSQL": ours(database, valkey.url),
            "Floodmark, SQLite": ours(lambda: f"sqlite:///{file()}"),
            "huey, SQLite": theirs("huey", file),
            "dramatiq, Redis": theirs("dramatiq", lambda: valkey.url),
            "taskiq, Redis streams": theirs("taskiq", lambda: valkey.url),
            "procrastinate, PostgreSQL": theirs("procrastinate", database, count // 4),
        }
        found = await interleaved(rounds, *tools.values())
    report = Report(f"{count:,} executions that do nothing, one worker process, median of {rounds} interleaved rounds")
    for name, measures in zip(tools, found, strict=True):
        _add(report, name, measures)
    report.print()


def _add(report: Report, name: str, found: Sequence[Measured]) -> None:
    worker = median(one.done.cpu / one.runs for one in found) * 1e6
    rate = median(one.runs / one.done.wall for one in found)
    caller = median(one.asked.cpu / one.asks for one in found) * 1000
    asked = median(one.asks / one.asked.wall for one in found)
    report.add(
        name, f"worker {worker:,.0f} us of CPU, {rate:,.0f}/s", f"caller {caller:.2f} ms of CPU, {asked:,.0f} calls/s"
    )


async def _ask_and_tell(told: str) -> None:
    tell(await ask(msgspec.json.decode(told, type=Place)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["ask"]:
        run(lambda: _ask_and_tell(sys.argv[2]))
    else:
        arguments = [int(argument) for argument in sys.argv[1:]]
        run(lambda: main(*arguments))
