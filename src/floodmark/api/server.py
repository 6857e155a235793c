"""An HTTP server in the running event loop; the process handles signals."""

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

# Seconds for open requests when the server stops.
GRACE = 5
# Iterations of the event loop from accepting a socket until its protocol has the connection: a task, then a callback.
_TURNS_TO_CONNECT = 3


class HttpServer:
    """Serves an ASGI app on `port` while the `async with` block runs.

    If the port is in use, `fallback` takes a free one and logs it; without it, Unavailable is raised. `leaving` is
    called when the block ends, before the wait for open requests: it has to end endless responses.
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
        """The address of the server."""
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
                raise _port_in_use(self._host, self._asked) from error
        listener = await _listener(self._host, 0)
        structlog.get_logger().warning(
            "port taken, using a free one", asked=self._asked, port=listener.getsockname()[1]
        )
        return listener


async def _listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the first address of the host."""
    loop = asyncio.get_running_loop()
    family, kind, proto, _, address = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
    listener = socket.socket(family, kind, proto)
    try:
        # Reuse a port at once after its last process ended; a port in use is still refused.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # With SO_REUSEADDR two processes can bind, but only one can listen.
        listener.listen(MOST_AT_ONCE)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _port_in_use(host: str, port: int) -> Unavailable:
    return Unavailable(f"port {port} on {host} is in use", hint="stop what uses it, or choose another port with --port")


def _unavailable(host: str, port: int, error: OSError) -> Unavailable:
    return Unavailable(
        f"cannot listen on {host}, port {port}: {error.strerror or error}",
        hint="choose an address of this machine and a port of 1024 or more",
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
    """Wait until accepted connections have their protocol: asyncio (3.11) would lose them when the server closes."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, asyncio.SelectorEventLoop):
        return
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(_TURNS_TO_CONNECT):
        await asyncio.sleep(0)


class _Server(uvicorn.Server):
    """A uvicorn server that reports when it is ready and leaves signals to the process."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:
            # Uvicorn exits the process; raised in a task, this would end the event loop.
            hint = "see the log for the reason"
            raise Unavailable("the HTTP application did not start", hint=hint) from None
        self.ready.set_result(None)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            await _stop_accepting(server)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
