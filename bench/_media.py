"""The processes of the benchmark of files: Telethon alone, and a Floodmark worker.

Each gets its task as one JSON argument and prints its result as JSON.
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import Literal

import msgspec
import structlog
from msgspec import Struct

from floodmark import Floodmark
from floodmark.model.spec import JobSpec
from floodmark.observability.events import MediaStored
from floodmark.observability.logs import LogListener, configure
from floodmark.repositories.jobs import Jobs
from floodmark.settings import Settings
from floodmark.testing.serving import served

from ._measuring import EVENT, in_a_process, migrated, run, tell
from ._telegram import SECRET, given_account


class Downloading(Struct, kw_only=True):
    """What to download, and where to. A worker also has a database."""

    session: str
    channel: str
    files: int
    folder: str
    database_url: str = ""


class Downloaded(Struct, kw_only=True):
    """All bytes; the bytes after the first file and their seconds; the CPU seconds of the process meanwhile."""

    bytes: int
    later_bytes: int
    wall: float
    cpu: float

    @property
    def rate(self) -> float:
        return self.later_bytes / self.wall


class Clocked:
    """The moments at which files were complete."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._began = self._ended = (0.0, 0.0)

    def add(self, size: int) -> None:
        self.sizes.append(size)
        self._ended = (time.perf_counter(), time.process_time())
        if len(self.sizes) == 1:
            self._began = self._ended

    def result(self) -> Downloaded:
        wall, cpu = (end - begin for begin, end in zip(self._began, self._ended, strict=True))
        return Downloaded(bytes=sum(self.sizes), later_bytes=sum(self.sizes[1:]), wall=wall, cpu=cpu)


def make_folder(wanted: Downloading) -> Path:
    folder = Path(wanted.folder)
    folder.mkdir(parents=True)
    return folder


def size_of(path: str) -> int:
    return Path(path).stat().st_size


async def download(how: Literal["bare", "worker"], wanted: Downloading) -> Downloaded:
    """Download the files of a channel in a process of its own."""
    return await in_a_process(__spec__.name, how, wanted, Downloaded)


async def bare(wanted: Downloading) -> None:
    """Measure the reference: download every file with Telethon."""
    from telethon import TelegramClient
    from telethon.sessions import StringSession

    client, clocked = TelegramClient(StringSession(wanted.session), 1, "hash"), Clocked()
    folder = make_folder(wanted)
    await client.connect()
    async for message in client.iter_messages(wanted.channel, limit=None, wait_time=0, reverse=True):
        path = await client.download_media(message, file=str(folder / str(message.id)))
        clocked.add(size_of(path))
    await client.disconnect()
    tell(clocked.result())


async def worker(wanted: Downloading) -> None:
    """Measure Floodmark: a worker reads the channel, and downloads and stores the files of its posts."""
    folder = make_folder(wanted)
    settings = Settings(
        database_url=wanted.database_url,
        floodmark_secret_key=SECRET,
        hostname="bench",
        log_level="warning",
        artifacts_dir=folder / "artifacts",
        telegram_media_per_minute=1_000_000,
    )
    await migrated(settings)
    app, clocked, over = Floodmark(settings), Clocked(), asyncio.Event()
    configure(settings.log_level, settings.log_format)
    LogListener(structlog.get_logger()).attach(app.internal_events)

    def stored(event: MediaStored) -> None:
        clocked.add(event.size)
        if len(clocked.sizes) == wanted.files:
            over.set()

    async with served(app, scheduler=False) as (resources, _):
        await given_account(resources, wanted.session)
        resources.events.listen(MediaStored, stored)
        params = {"history": "all", "media": "document"}
        spec = JobSpec(source="telegram", target=f"@{wanted.channel}", when=EVENT, params=params)
        jobs = Jobs(resources.database, resources.clock)
        forced = await jobs.force_run(await jobs.add(spec))
        await resources.queue.put([forced.queued] if forced.queued else [])
        async with asyncio.timeout(600):
            await over.wait()
    tell(clocked.result())


if __name__ == "__main__":
    role, told = sys.argv[1:]
    if role == "worker":
        run(lambda: worker(msgspec.json.decode(told, type=Downloading)))
    else:
        # The usual way to download files.
        asyncio.run(bare(msgspec.json.decode(told, type=Downloading)))
