"""Processes that serve HTTP, and a client that is cheap enough to load them.

`python -m bench._serving DATABASE_URL` serves the API; with a REDIS_URL it also schedules.
`python -m bench._serving bare LIST JOB` serves plain routes that return the content of these two files.
Both print their URL, and serve until their standard input ends.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from fastapi import FastAPI, Response
from pydantic import BaseModel

from floodmark.api.app import create_app
from floodmark.api.server import HttpServer
from floodmark.observability import logs
from floodmark.process import eventloop
from floodmark.runtime.scheduler_role import SchedulerRole
from floodmark.settings import Settings
from floodmark.wiring.resources import open_resources

from ._measuring import percentile


@dataclass
class Load:
    """The rate of responses, and the 99th percentile of their duration."""

    rate: float
    p50: float
    p99: float


async def load(url: str, requests: Sequence[bytes], connections: int, status: int) -> Load:
    """Send all requests over several connections, on each the next one after the response to the last."""
    waiting, took = iter(requests), list[float]()
    where = urlsplit(url)

    async def one_after_another() -> None:
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        for request in waiting:
            began = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0]))
            took.append((time.perf_counter() - began) * 1000)
            if int(head[9:12]) != status:
                raise SystemExit(f"unexpected answer: {head.decode()}")
        writer.close()
        await writer.wait_closed()

    began = time.perf_counter()
    await asyncio.gather(*(one_after_another() for _ in range(connections)))
    seconds = time.perf_counter() - began
    took.sort()
    return Load(rate=len(took) / seconds, p50=percentile(took, 50), p99=percentile(took, 99))


def request(method: str, path: str, token: str, body: Any = None) -> bytes:
    """Return the bytes of a request."""
    sent = b"" if body is None else msgspec.json.encode(body)
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    if sent:
        head += f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n"
    return head.encode() + b"\r\n" + sent


@contextmanager
def serving(*arguments: str) -> Iterator[str]:
    """Run such a process during the block and yield its URL."""
    command = [sys.executable, "-m", "bench._serving", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(20)


class NewJob(BaseModel):
    """A job as the plain route accepts it."""

    name: str
    source: str
    target: str
    interval_seconds: float


def bare(page: bytes, job: bytes) -> FastAPI:
    """Serve plain routes with known responses: one lets FastAPI encode a value, one returns encoded bytes."""
    app, told, made = FastAPI(), msgspec.json.decode(page), msgspec.json.decode(job)

    @app.get("/jobs")
    async def list_jobs(limit: int = 50) -> Any:
        return told

    @app.get("/ready")
    async def ready(limit: int = 50) -> Response:
        return Response(page, media_type="application/json")

    @app.post("/jobs", status_code=201)
    async def add_job(body: NewJob) -> Any:
        return made

    return app


async def _serve(database_url: str, redis_url: str | None = None) -> None:
    async with open_resources(Settings(database_url=database_url, redis_url=redis_url)) as resources:
        stop = asyncio.Event()
        scheduling = None if redis_url is None else asyncio.create_task(SchedulerRole(resources).run(stop))
        await _until_told(create_app(resources))
        stop.set()
        if scheduling is not None:
            await scheduling


async def _until_told(app: FastAPI) -> None:
    async with HttpServer(app) as server:
        print(server.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


def main(what: str, *files: str) -> None:
    logs.configure("warning", "json")
    if what == "bare":
        page, job = (Path(name).read_bytes() for name in files)
        eventloop.run(_until_told(bare(page, job)))
    else:
        eventloop.run(_serve(what, *files))


if __name__ == "__main__":
    main(*sys.argv[1:])
