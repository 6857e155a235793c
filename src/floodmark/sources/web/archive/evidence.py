"""The evidence of one crawl: writes what the options ask for, on threads, one write at a time."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from floodmark.outbound.client import HttpAnswer

from .raw import write_raw
from .warc import WarcArchive


class Evidence:
    """Stores responses and the content of revisions. `folder` is ARTIFACTS_DIR."""

    def __init__(self, folder: Path, warc: WarcArchive | None, *, keeps_raw: bool) -> None:
        self._folder, self._warc, self._keeps_raw = folder, warc, keeps_raw
        self._lock = asyncio.Lock()

    async def open(self) -> None:
        """Prepare the files."""
        if self._warc is not None:
            await self._run(self._warc.open)

    async def add_response(self, url: str, answer: HttpAnswer, now: datetime) -> None:
        """Store a response; it is durable after `sync`."""
        warc = self._warc
        if warc is not None:
            await self._run(lambda: warc.add(url, answer, now))

    async def add_revision(self, answer: HttpAnswer) -> str | None:
        """Store the content of a new revision durably and return its hash; None if the job does not want it."""
        return await asyncio.to_thread(write_raw, self._folder, answer) if self._keeps_raw else None

    async def sync(self) -> None:
        """Make all responses durable, before the items that they prove are stored."""
        if self._warc is not None:
            await self._run(self._warc.sync)

    async def close(self) -> None:
        """Complete the files."""
        if self._warc is not None:
            await self._run(self._warc.close)

    async def _run(self, work: Callable[[], None]) -> None:
        """Run on a thread, also to the end of a cancelled crawl: a record must not be left half-written."""
        async with self._lock:
            task = asyncio.ensure_future(asyncio.to_thread(work))
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                await asyncio.wait([task])
                raise


def open_evidence(
    folder: Path | None, stream: str, execution_id: str, *, warc: bool, raw: bool, most_bytes: int
) -> Evidence | None:
    """Return the evidence of a crawl; None if the job wants none."""
    if folder is None or not (warc or raw):
        return None
    archive = WarcArchive(folder, stream, execution_id, most_bytes=most_bytes) if warc else None
    return Evidence(folder, archive, keeps_raw=raw)
