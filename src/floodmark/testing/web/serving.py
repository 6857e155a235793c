"""An aiohttp application on loopback that leaves no open connection when it closes.

A connection that sends no complete request for a while is closed, and so are connections beyond a limit.
"""

import asyncio
import os
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from floodmark.errors import Unavailable
from floodmark.outbound.listener import Listener

IDLE_SECONDS, MOST_CONNECTIONS = 75.0, 1000


class _OpenConnections:
    """The connections of a server, with the number of requests under way and the time of the last one."""

    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        self._transports: dict[socket.socket, asyncio.Transport] = {}
        self._busy: Counter[asyncio.BaseTransport] = Counter()
        self._since: dict[asyncio.BaseTransport, float] = {}

    def __len__(self) -> int:
        return len(self._transports)

    def add(self, accepted: socket.socket, transport: asyncio.Transport) -> None:
        self._transports[accepted] = transport
        self._since.setdefault(transport, time.monotonic())

    def wrap(self, handle: Callable[[web.BaseRequest], Awaitable[Any]]) -> Callable[[web.BaseRequest], Awaitable[Any]]:
        """Return a handler of requests that also records which connections have one."""

        async def recording(request: web.BaseRequest) -> Any:
            transport = request.transport
            if transport is None:
                return await handle(request)
            self._busy[transport] += 1
            try:
                return await handle(request)
            finally:
                self._busy[transport] -= 1
                self._since[transport] = time.monotonic()

        return recording

    def sweep(self) -> None:
        """Forget closed connections, and close those that have been idle for too long."""
        before = time.monotonic() - self._idle_seconds
        for accepted, transport in tuple(self._transports.items()):
            if accepted.fileno() < 0:
                del self._transports[accepted]
                self._busy.pop(transport, None)
                self._since.pop(transport, None)
            elif not self._busy[transport] and self._since[transport] < before:
                transport.abort()

    async def sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(self._idle_seconds / 5)
            self.sweep()

    def abort(self) -> None:
        """Close all: a closing transport still waits for the client to read the rest, or to end TLS."""
        for accepted, transport in self._transports.items():
            if accepted.fileno() >= 0:
                transport.abort()


@asynccontextmanager
async def serve_app(
    app: web.Application,
    *,
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    idle_seconds: float = IDLE_SECONDS,
    most_connections: int = MOST_CONNECTIONS,
    **options: Any,
) -> AsyncIterator[int]:
    """Serve until the block ends; yields the port. `options` are those of `web.AppRunner`."""
    runner = web.AppRunner(app, **options)
    await runner.setup()
    protocol = runner.server
    assert protocol is not None

    connected = _OpenConnections(idle_seconds)
    protocol.request_handler = connected.wrap(protocol.request_handler)

    async def serve(accepted: socket.socket) -> None:
        connected.sweep()
        if len(connected) >= most_connections:
            accepted.close()
            return
        try:
            # A TLS handshake has a time limit of its own.
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(protocol, accepted, ssl=tls)
            connected.add(accepted, transport)
        except OSError:
            # The client left during the TLS handshake, or does not speak TLS.
            accepted.close()

    # At most this many TLS handshakes at once.
    listener = Listener(serve, most=most_connections)
    try:
        listener.open("127.0.0.1", port)
    except OSError as error:
        await runner.cleanup()
        raise Unavailable(
            f"port {port} is not available: {os.strerror(error.errno or 0)}", hint="use another port, or 0 for any"
        ) from error
    sweeping = asyncio.create_task(connected.sweep_forever(), name="idle connections")
    try:
        yield listener.port
    finally:
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)
        await listener.end()
        await runner.cleanup()
        connected.abort()
        await asyncio.sleep(0)
