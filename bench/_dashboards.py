"""A process that serves the dashboard, and open dashboards.

`python -m bench._dashboards DATABASE_URL` serves API and dashboard. It prints its URL, and serves until its standard
input ends.
"""

import asyncio
import gzip
import random
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from urllib.parse import urlsplit

from msgspec import Struct

from floodmark.api.app import create_app
from floodmark.api.server import HttpServer
from floodmark.dashboard.routes import dashboard_routes
from floodmark.observability import logs
from floodmark.process import eventloop
from floodmark.settings import Settings
from floodmark.wiring.resources import open_resources

# As the script of the dashboard refreshes: after events, soon after the next whole second.
_SHORTEST, _SPREAD, _IDLE = 1.0, 0.2, 15.0
_VERSION = re.compile(r'id="([\w-]+)" data-live data-version="(\w+)"')
_ACCEPT = "Accept: text/html\r\nAccept-Encoding: gzip\r\n"
_KINDS = ("execution", "change", "limit", "breaker", "worker")


@contextmanager
def serving_pages(database_url: str) -> Iterator[str]:
    """Run a process that serves API and dashboard during the block, and yield its URL."""
    command = [sys.executable, "-m", "bench._dashboards", database_url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(30)


class Answer(Struct, frozen=True):
    """A page: its status, its compressed content and its duration in milliseconds."""

    status: int
    content: bytes
    took: float

    def versions(self) -> dict[str, str]:
        """Return the versions of the parts of the page that are not sent again."""
        text = gzip.decompress(self.content).decode() if self.content[:2] == b"\x1f\x8b" else ""
        return dict(_VERSION.findall(text))


class Browser:
    """One connection that asks for pages."""

    def __init__(self, url: str) -> None:
        self._where = urlsplit(url)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, path: str, *, have: str | None = None) -> Answer:
        """Ask for a page, as a browser does; `have`: the parts that an open page has."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._where.hostname, self._where.port, limit=2**22)
        reader, writer = self._streams
        live = "" if have is None else f"X-Floodmark-Live: 1\r\nX-Floodmark-Have: {have}\r\n"
        head = (
            f"GET {path} HTTP/1.1\r\nHost: {self._where.netloc}\r\nAccept: text/html\r\nAccept-Encoding: gzip\r\n{live}"
        )
        began = time.perf_counter()
        writer.write(f"{head}\r\n".encode())
        found = (await reader.readuntil(b"\r\n\r\n")).lower()
        size = int(found.partition(b"content-length:")[2].partition(b"\r")[0])
        content = await reader.readexactly(size)
        if b"connection: close" in found:
            self.close()
        return Answer(int(found[9:12]), content, (time.perf_counter() - began) * 1000)

    def close(self) -> None:
        """Close the connection; the next page opens another one."""
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


class OpenDashboard:
    """A page that holds the live feed and asks for itself again, as the script of the dashboard does."""

    def __init__(self, url: str, path: str) -> None:
        self._url, self._path, self._browser = url, path, Browser(url)
        self._happened, self.refreshed, self.refused = asyncio.Event(), 0, 0
        self._versions: dict[str, str] = {}

    async def run(self) -> None:
        """Stay open until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._listen())
                tasks.create_task(self._refresh())
        finally:
            self._browser.close()

    async def _listen(self) -> None:
        where = urlsplit(self._url)
        query = "&".join(f"only={kind}" for kind in _KINDS)
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection(where.hostname, where.port, limit=2**22)
                asked = f"GET /api/v2/live?beats=true&{query} HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n"
                writer.write(asked.encode())
                try:
                    async for line in reader:
                        if line.startswith(b"event: ") and not line.startswith(b"event: beat"):
                            self._happened.set()
                finally:
                    writer.close()
            await asyncio.sleep(2)

    async def _refresh(self) -> None:
        while True:
            try:
                have = " ".join(f"{name}={version}" for name, version in self._versions.items())
                answer = await self._browser.get(self._path, have=have)
                self._versions |= answer.versions()
                self.refreshed += answer.status == 200
                self.refused += answer.status != 200
            except (OSError, asyncio.IncompleteReadError):
                self.refused += 1
                self._browser.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(_IDLE):
                    await self._happened.wait()
            self._happened.clear()
            await asyncio.sleep(_SHORTEST - time.time() % _SHORTEST + _SPREAD * random.random())


@asynccontextmanager
async def open_dashboards(url: str, paths: Sequence[str]) -> AsyncIterator[list[OpenDashboard]]:
    """Hold these pages open during the block."""
    pages = [OpenDashboard(url, path) for path in paths]
    tasks = [asyncio.create_task(page.run()) for page in pages]
    try:
        yield pages
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _serve(database_url: str) -> None:
    async with open_resources(Settings(database_url=database_url)) as resources:
        app = create_app(resources, pages=dashboard_routes())
        async with HttpServer(app, leaving=app.state.live.close) as server:
            print(server.url, flush=True)
            await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    logs.configure("warning", "json")
    eventloop.run(_serve(sys.argv[1]))
