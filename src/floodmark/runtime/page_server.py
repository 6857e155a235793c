"""A process that refreshes open dashboards for a process that also schedules or works.

Twenty dashboards ask for their pages in the same moment, and jobs that are due would wait until these are made. From a
number of open dashboards on (`DASHBOARD_PROCESS_FROM`) a second process makes the pages. It is started when it is first
needed, and ends when nobody has asked for a while. Without it, or if it fails, this process answers itself.
"""

import asyncio
import os
import pickle
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from floodmark.api.edge import SAFE
from floodmark.api.live import Live
from floodmark.api.routing import PREFIX
from floodmark.api.turnstile import REFRESH
from floodmark.dashboard.sharing import SHARED_SECONDS
from floodmark.process.tasks import end_tasks
from floodmark.settings import Settings

from .page_messages import Begin, Ready, Refresh, Refreshed, read_message, write_message

# An open page asks at least every fifteen seconds.
_IDLE_SECONDS = 60.0
# A browser gives up after ten.
_PATIENCE_SECONDS = 8.0
# The time after a failure in which none is started.
_PAUSE_SECONDS = 30.0


class PageServer:
    """Starts and ends the second process, and lets it answer.

    `idle`: seconds without a request until it ends. `pause`: seconds after a failure in which none is started.
    """

    def __init__(
        self, name: str, settings: Settings, live: Live, *, idle: float = _IDLE_SECONDS, pause: float = _PAUSE_SECONDS
    ) -> None:
        self._name, self._settings, self._live, self._idle, self._pause = name, settings, live, idle, pause
        self._least = settings.dashboard_process_from
        self._running: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: dict[int, asyncio.Future[Refreshed]] = {}
        self._number, self._not_before = 0, 0.0
        self.pid: int | None = None
        """The process id, while the second process runs."""
        self.answered = 0
        """The number of requests that it has answered."""

    async def close(self) -> None:
        """End the second process."""
        if self._running is not None:
            await end_tasks(self._running)

    @property
    def is_answering(self) -> bool:
        """Whether the second process has started and answers requests."""
        return self._writer is not None

    async def answer(self, scope: Scope) -> Refreshed | None:
        """Return the response to a request, or None if the caller has to answer it."""
        if self._writer is None:
            self._start_if_needed()
            return None
        self._number += 1
        number = self._number
        answered: asyncio.Future[Refreshed] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answered
        write_message(self._writer, _refresh_of(scope, number, self._live.version))
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await answered
        except TimeoutError:
            self._give_up()
            return None
        except ConnectionError:
            return None
        finally:
            self._waiting.pop(number, None)

    def _start_if_needed(self) -> None:
        is_possible = os.name == "posix" and time.monotonic() >= self._not_before
        is_enough = 0 < self._least <= self._live.open_pages
        if is_possible and is_enough and (self._running is None or self._running.done()):
            self._running = asyncio.create_task(self._run(), name="page server")

    def _give_up(self) -> None:
        self._not_before = time.monotonic() + self._pause
        if self._writer is not None and self._running is not None:
            structlog.get_logger().warning("page server does not answer, ending it", pid=self.pid)
            self._running.cancel()

    async def _run(self) -> None:
        """Start the process, and receive its answers until it is no longer needed."""
        log = structlog.get_logger()
        try:
            async with self._spawned() as (reader, writer):
                write_message(writer, Begin(self._name, pickle.dumps(self._settings)))
                if await read_message(reader, Ready) is None:
                    self._not_before = time.monotonic() + self._pause
                    log.warning("page server did not start, see its messages above")
                    return
                log.info("dashboards are refreshed by a second process", pid=self.pid)
                await self._hand_over(reader, writer)
        except OSError as error:
            # Too many processes, or too little memory.
            self._not_before = time.monotonic() + self._pause
            log.warning("page server cannot be started", error=str(error))
            return
        log.info("dashboards are refreshed by this process again")

    async def _hand_over(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Let the process answer until it ends, or is no longer needed."""
        self._writer = writer
        try:
            with suppress(TimeoutError):
                await self._receive(reader)
        finally:
            self._writer = None
            for answered in self._waiting.values():
                if not answered.done():
                    answered.set_exception(ConnectionError("the page server has ended"))

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        """Hand out answers until the process ends; raise TimeoutError when there were none for long."""
        while True:
            async with asyncio.timeout(self._idle):
                found = await read_message(reader, Refreshed)
            if found is None:
                self._not_before = time.monotonic() + self._pause
                return
            answered = self._waiting.get(found.number)
            if answered is not None and not answered.done():
                self.answered += 1
                answered.set_result(found)

    @asynccontextmanager
    async def _spawned(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Run the process during the block. It also ends when this process dies, because its socket is closed then."""
        ours, its = socket.socketpair()
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        try:
            with its:
                # In its own group: Ctrl-C reaches only this process.
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", f"{__package__}.page_process", str(its.fileno())),
                    pass_fds=[its.fileno()],
                    stdin=asyncio.subprocess.DEVNULL,
                    start_new_session=True,
                )
        except BaseException:
            writer.close()
            raise
        self.pid = process.pid
        try:
            yield reader, writer
        finally:
            self.pid = None
            writer.close()
            # It only reads.
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


class OffloadRefreshes:
    """A layer that lets a page server answer open pages that ask for themselves again."""

    def __init__(self, app: ASGIApp, pages: PageServer) -> None:
        self._app, self._pages, self._changed_at = app, pages, -SHARED_SECONDS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or follow the lifespan of the server."""
        if scope["type"] == "lifespan":
            return await self._app(scope, self._close_before(receive), send)
        answered = None
        if scope["type"] == "http":
            if scope["method"] == "GET" and any(name == REFRESH for name, _ in scope["headers"]):
                # A page that the other process has begun before a form was sent must not be shown after it.
                if time.monotonic() - self._changed_at >= SHARED_SECONDS:
                    answered = await self._pages.answer(scope)
            elif scope["method"] not in SAFE and PREFIX not in scope["path"]:
                self._changed_at = time.monotonic()
        if answered is None:
            return await self._app(scope, receive, send)
        await send({"type": "http.response.start", "status": answered.status, "headers": answered.headers})
        await send({"type": "http.response.body", "body": answered.body})
        return None

    def _close_before(self, receive: Receive) -> Receive:
        """End the second process when the server stops: it does not wait for what comes after its application."""

        async def received() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self._pages.close()
            return message

        return received


def _refresh_of(scope: Scope, number: int, version: int) -> Refresh:
    return Refresh(
        number=number,
        version=version,
        scheme=scope["scheme"],
        path=scope["path"],
        raw_path=scope["raw_path"],
        query_string=scope["query_string"],
        root_path=scope.get("root_path", ""),
        headers=list(scope["headers"]),
        client=scope.get("client"),
        server=scope.get("server"),
    )
