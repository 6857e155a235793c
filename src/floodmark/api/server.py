"""An HTTP server inside the running event loop, which leaves signals to the process."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import structlog
import uvicorn

from floodmark.errors import Unavailable

from .connections import MOST_AT_ONCE, Connections, most_connections, protocol_of, raise_descriptor_limit

# Seconds for open requests when the server is told to leave.
GRACE = 5
# Turns of asyncio's loop from accepting a socket until its protocol knows of the connection: a task, then a callback.
_TURNS_TO_CONNECT = 3


class HttpServer:
    """Serves an ASGI app while the `async with` block runs; `port` is where.

    When the port is taken, `fallback` takes a free one and says so in the log; without it, Unavailable is raised.
    `leaving` is called when the block ends, before open requests are waited for: answers without end must end.
    """

    def __init__(
        self,
        app: Any,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        fallback: bool = True,
        leaving: Callable[[], None] | None = None,
    ) -> None:
        self._app, self._host, self._asked, self._fallback = app, host, port, fallback
        self._leaving = leaving
        self.port = port

    @property
    def url(self) -> str:
        """Where a browser finds the server."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    async def __aenter__(self) -> Self:
        listener = await self._bind()
        self.port = listener.getsockname()[1]
        self._connections = Connections(most_connections(raise_descriptor_limit()))
        self._server = _Server(_config(self._app, self._connections))
        self._serving = asyncio.create_task(self._server.serve([listener]), name=f"http {self.port}")
        try:
            await asyncio.wait({self._serving, self._server.ready}, return_when=asyncio.FIRST_COMPLETED)
            if self._serving.done():
                self._serving.result()
        except BaseException:
            self._serving.cancel()
            await asyncio.wait({self._serving})
            listener.close()
            raise
        self._sweeping = asyncio.create_task(self._connections.run(), name=f"connections {self.port}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._leaving is not None:
            self._leaving()
        self._server.should_exit = True
        try:
            await self._serving
        finally:
            self._sweeping.cancel()
            await asyncio.wait({self._sweeping})

    async def _bind(self) -> socket.socket:
        try:
            return await _listener(self._host, self._asked)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise _unavailable(self._host, self._asked, error) from error
            if not self._fallback:
                raise _taken(self._host, self._asked) from error
        listener = await _listener(self._host, 0)
        structlog.get_logger().warning(
            "port taken, using a free one", asked=self._asked, port=listener.getsockname()[1]
        )
        return listener


async def _listener(host: str, port: int) -> socket.socket:
    """A socket bound to the first address of the host."""
    loop = asyncio.get_running_loop()
    family, kind, proto, _, address = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
    listener = socket.socket(family, kind, proto)
    try:
        # A port whose last owner just left may be taken at once; one with an owner stays refused.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # Bound is not yet taken: two could bind with SO_REUSEADDR, only one can listen.
        listener.listen(MOST_AT_ONCE)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _taken(host: str, port: int) -> Unavailable:
    return Unavailable(f"port {port} on {host} is in use", hint="stop what uses it, or choose another port with --port")


def _unavailable(host: str, port: int, error: OSError) -> Unavailable:
    return Unavailable(
        f"cannot listen on {host}, port {port}: {error.strerror or error}",
        hint="Choose an address of this machine and a port of 1024 or more.",
    )


def _config(app: Any, connections: Connections) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol_of(connections),
        backlog=MOST_AT_ONCE,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=GRACE,
    )


async def _stop_accepting(server: asyncio.Server) -> None:
    """Let accepted connections become known before the server closes: asyncio (3.11) would lose those between."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, asyncio.SelectorEventLoop):
        return
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(_TURNS_TO_CONNECT):
        await asyncio.sleep(0)


class _Server(uvicorn.Server):
    """Tells when it is ready, and keeps its hands off the signals: draining is the process's business."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:
            # Uvicorn thinks the process is its own; raised from a task, this would tear down the event loop.
            hint = "The log says why its startup failed."
            raise Unavailable("the HTTP application did not start", hint=hint) from None
        self.ready.set_result(None)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            await _stop_accepting(server)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
