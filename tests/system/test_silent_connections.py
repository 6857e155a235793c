"""A thousand connections that say nothing: the work goes on, and `/health` answers."""

import asyncio
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from floodmark.api import connections
from floodmark.api.connections import most_connections
from floodmark.api.health import health_app
from floodmark.api.server import HttpServer
from floodmark.testing.eventually import eventually

SILENT, DESCRIPTORS = 1000, 256
# A whole `up` that counts in a file how often its collector ran.
PROGRAM = """
import asyncio, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({descriptors}, {descriptors}))
from floodmark import Floodmark
from floodmark.process import eventloop
from floodmark.settings import Settings

app = Floodmark(Settings(database_url=sys.argv[1]))

@app.collector(every="1s")
async def tick():
    # A new descriptor for every run, as a source needs it.
    with open(sys.argv[2], "a") as file:
        file.write("x")
    yield {{"n": 1}}

eventloop.run(app.serve(port=0, ready=lambda resources, server: print(server.url, flush=True)))
"""


@contextmanager
def working(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Such a process and where it listens; this one may open enough sockets meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, SILENT + 500), hard))
    program = PROGRAM.format(descriptors=DESCRIPTORS)
    command = [sys.executable, "-c", program, f"sqlite:///{folder}/x.db", str(folder / "ran")]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                yield process, process.stdout.readline().strip()
            finally:
                process.kill()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _is_well(url: str) -> bool:
    with urlopen(f"{url}/health", timeout=20) as answer:
        return bool(answer.status == 200)


@pytest.mark.spec("G6")
async def test_silent_connections_do_not_stop_the_work(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    with working(tmp_path) as (process, url), ExitStack() as stack:
        where = urlsplit(url)
        await eventually(ran.exists)
        for _ in range(SILENT):
            silent = stack.enter_context(socket.socket())
            silent.setblocking(False)
            silent.connect_ex((where.hostname, where.port))
        before = ran.stat().st_size
        await eventually(lambda: ran.stat().st_size >= before + 4)
        await eventually(lambda: asyncio.to_thread(_is_well, url))
        assert process.poll() is None
        assert len(os.listdir(f"/proc/{process.pid}/fd")) < DESCRIPTORS


async def _is_closed_after(port: int, *pieces: bytes, every: float) -> float:
    """Seconds until the server closes a connection on which these pieces arrive one by one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = time.monotonic()

    async def send() -> None:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(every)

    sending = asyncio.create_task(send())
    try:
        async with asyncio.timeout(60):
            await reader.read()
    except ConnectionError:
        pass
    finally:
        sending.cancel()
        await asyncio.wait({sending})
        writer.transport.abort()
    return time.monotonic() - began


@pytest.mark.spec("G6")
async def test_a_head_or_body_that_trickles_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Single bytes are no progress: a connection has to send a whole head, and a whole body."""
    monkeypatch.setitem(connections._PATIENCE, "silent", 1.0)
    monkeypatch.setitem(connections._PATIENCE, "sending", 1.0)

    async def health() -> dict[str, str]:
        return {"status": "ok"}

    head = b"GET /health HTTP/1.1\r\nHost: a\r\n"
    async with HttpServer(health_app(None, health)) as server:
        seconds = await asyncio.gather(
            _is_closed_after(server.port, every=1),
            _is_closed_after(server.port, *(head[place : place + 1] for place in range(30)), every=0.5),
            _is_closed_after(server.port, b"POST /nowhere HTTP/1.1\r\nContent-Length: 99\r\nHost: a\r\n\r\n", every=1),
            # An answered request does not buy time for the next one.
            _is_closed_after(server.port, head + b"\r\n", *[b"G"] * 30, every=0.5),
        )
    assert max(seconds) < 30


def test_the_bound_leaves_most_descriptors_to_the_work() -> None:
    assert [most_connections(limit) for limit in (16, 256, 1024, 100_000)] == [8, 64, 256, 512]


@pytest.mark.spec("G6")
async def test_the_longest_silent_connection_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floodmark.api.server.most_connections", lambda _: 8)

    async def health() -> dict[str, str]:
        return {"status": "ok"}

    async with HttpServer(health_app(None, health)) as server:
        opened = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(12)]
        for reader, _ in opened[:4]:
            async with asyncio.timeout(30):
                assert await _ended(reader)
        reader, writer = opened[-1]
        writer.write(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        async with asyncio.timeout(30):
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        for _, writer in opened:
            writer.transport.abort()


async def _ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True
