"""An aiohttp application on loopback that leaves no open connection when it closes."""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from floodmark.errors import Unavailable
from floodmark.outbound.listener import Listener


@asynccontextmanager
async def serve_app(
    app: web.Application, *, port: int = 0, tls: ssl.SSLContext | None = None, **options: Any
) -> AsyncIterator[int]:
    """Serve until the block ends; yields the port. `options` are those of `web.AppRunner`."""
    runner = web.AppRunner(app, **options)
    await runner.setup()
    protocol = runner.server
    assert protocol is not None

    connected: dict[socket.socket, asyncio.Transport] = {}

    async def serve(accepted: socket.socket) -> None:
        for closed in [other for other in connected if other.fileno() < 0]:
            del connected[closed]
        try:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(protocol, accepted, ssl=tls)
            connected[accepted] = transport
        except OSError:
            # The client left during the TLS handshake, or does not speak TLS.
            accepted.close()

    listener = Listener(serve)
    try:
        listener.open("127.0.0.1", port)
    except OSError as error:
        await runner.cleanup()
        raise Unavailable(
            f"port {port} is not available: {os.strerror(error.errno or 0)}", hint="use another port, or 0 for any"
        ) from error
    try:
        yield listener.port
    finally:
        await listener.end()
        await runner.cleanup()
        # A closing transport still waits for the client to read the rest, or to end TLS.
        for accepted, transport in connected.items():
            if accepted.fileno() >= 0:
                transport.abort()
        await asyncio.sleep(0)
