"""The processes of the Telegram benchmarks: a loopback server, Telethon alone, and a Floodmark worker.

Each gets its task as one JSON argument and prints its result as JSON. The server prints its address and ends when its
standard input ends.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Literal

import msgspec
import structlog
from msgspec import Struct
from pydantic import SecretStr
from sqlalchemy import text

from floodmark import Floodmark
from floodmark.model.job import Job
from floodmark.model.spec import JobSpec
from floodmark.observability.events import BatchKept, ExecutionSettled
from floodmark.observability.logs import LogListener, configure
from floodmark.repositories.jobs import Jobs
from floodmark.security.vault import Vault
from floodmark.settings import Settings
from floodmark.sources.telegram.accounts import Accounts
from floodmark.testing.serving import served
from floodmark.wiring.resources import Resources

from ._measuring import EVENT, Watch, in_a_process, migrated, resident_megabytes, run, tell

SECRET = SecretStr("the secret key of a benchmark, long enough")
# Read before the clock starts, so that the measured process is connected and has imported everything.
WARM_UP = "warmup"


class Town(Struct, kw_only=True):
    """The content of the server: the number of messages in each channel, and the delay of its responses."""

    channels: dict[str, int]
    files: dict[str, list[int]] = {}
    """Channels with one file of each of these sizes."""
    kind: Literal["typical", "plain"] = "typical"
    every_seconds: float = 180.0
    start: datetime | None = None
    delay_seconds: float = 0.0


class Served(Struct, kw_only=True):
    """A session of the only account of the server."""

    session: str


class Reading(Struct, kw_only=True):
    """What to read. A worker stores it in `database_url`. `samples`: after how many messages memory is measured."""

    session: str
    channel: str
    database_url: str = ""
    samples: Sequence[int] = ()


class Read(Struct, kw_only=True):
    """The number of messages read, and the cost for the process."""

    messages: int
    wall: float
    cpu: float
    megabytes: Sequence[float] = ()


@contextmanager
def serving(town: Town) -> Iterator[Served]:
    """Run a loopback Telegram server in its own process."""
    with _started("serve", town) as process:
        assert process.stdout is not None
        yield msgspec.json.decode(process.stdout.readline(), type=Served)
        process.communicate()


async def read(how: Literal["bare", "worker"], wanted: Reading) -> Read:
    """Read a channel in its own process."""
    return await in_a_process(__spec__.name, how, wanted, Read)


async def given_account(resources: Resources, session: str) -> None:
    """Store the account that the server knows."""
    accounts = Accounts(resources.database, resources.clock, Vault.of(resources.settings), resources.events)
    await accounts.add("reader", api_id=1, api_hash="hash", session=session)


def _started(role: str, told: Struct) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", __spec__.name, role, msgspec.json.encode(told).decode()]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


# The code of these processes. Telethon is imported where it is used, as in a worker.


async def serve(town: Town) -> None:
    from floodmark.testing.telegram import LoopbackTelegram, TelegramBackend

    backend = TelegramBackend()
    backend.account("reader")
    for name, messages in town.channels.items():
        every = timedelta(seconds=town.every_seconds)
        backend.channel(name).fill(messages, kind=town.kind, every=every, start=town.start)
    for name, sizes in town.files.items():
        channel = backend.channel(name)
        for size in sizes:
            channel.post("a file", media=backend.upload(os.urandom(size)))
    async with LoopbackTelegram(backend, keep=1_000) as server:
        if town.delay_seconds:
            server.delay(town.delay_seconds)
        tell(Served(session=server.session("reader")))
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def bare(wanted: Reading) -> None:
    """Measure the reference: read a channel with Telethon and discard the messages."""
    from telethon import TelegramClient
    from telethon.sessions import StringSession

    client = TelegramClient(StringSession(wanted.session), 1, "hash")
    await client.connect()
    watch, messages = Watch(), 0
    async for _ in client.iter_messages(WARM_UP, limit=None, wait_time=0):
        pass
    with watch.running():
        async for _ in client.iter_messages(wanted.channel, limit=None, wait_time=0):
            messages += 1
    await client.disconnect()
    tell(Read(messages=messages, wall=watch.wall, cpu=watch.cpu))


async def worker(wanted: Reading) -> None:
    """Measure Floodmark: a worker leases an execution, reads the whole history and stores it."""
    settings = Settings(
        database_url=wanted.database_url, floodmark_secret_key=SECRET, hostname="bench", log_level="warning"
    )
    await migrated(settings)
    app, samples, watch = Floodmark(settings), _Samples(wanted.samples), Watch()
    configure(settings.log_level, settings.log_format)
    LogListener(structlog.get_logger()).attach(app.internal_events)
    async with served(app, scheduler=False) as (resources, _):
        await given_account(resources, wanted.session)
        await _execution(resources, await _job(resources, WARM_UP))
        before, job = await _count(resources), await _job(resources, wanted.channel)
        resources.events.listen(BatchKept, samples.kept)
        with watch.running():
            await _execution(resources, job)
        messages = await _count(resources) - before
    tell(Read(messages=messages, wall=watch.wall, cpu=watch.cpu, megabytes=samples.megabytes))


async def _job(resources: Resources, channel: str) -> Job:
    spec = JobSpec(source="telegram", target=f"@{channel}", when=EVENT, params={"history": "all"})
    return await Jobs(resources.database, resources.clock).add(spec)


async def _execution(resources: Resources, job: Job) -> None:
    """Run one execution over the whole history of a channel, from its request to its settlement."""
    jobs, over = Jobs(resources.database, resources.clock), asyncio.get_running_loop().create_future()

    def settled(event: ExecutionSettled) -> None:
        if event.job_name == job.name:
            over.set_result(event)

    resources.events.listen(ExecutionSettled, settled)
    forced = await jobs.force_run(job)
    await resources.queue.put([forced.queued] if forced.queued else [])
    ended = await over
    if ended.status != "done":
        raise SystemExit(f"the execution is {ended.status}: {ended.error}")


async def _count(resources: Resources) -> int:
    async with resources.database.reading() as connection:
        return int((await connection.execute(text("SELECT count(*) FROM items"))).scalar_one())


class _Samples:
    """Memory of this process after certain numbers of stored messages."""

    def __init__(self, after: Sequence[int]) -> None:
        self._after, self._kept = list(after), 0
        self.megabytes: list[float] = []

    def kept(self, event: BatchKept) -> None:
        self._kept += event.new
        while self._after and self._kept >= self._after[0]:
            del self._after[0]
            self.megabytes.append(resident_megabytes())


if __name__ == "__main__":
    role, told = sys.argv[1:]
    if role == "serve":
        run(lambda: serve(msgspec.json.decode(told, type=Town)))
    elif role == "worker":
        run(lambda: worker(msgspec.json.decode(told, type=Reading)))
    else:
        # The usual way to read a channel.
        asyncio.run(bare(msgspec.json.decode(told, type=Reading)))
