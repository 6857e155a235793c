"""A server that closes while somebody connects leaves nothing open. asyncio's own server does, in Python 3.11."""

import asyncio
import gc
import socket
import ssl
import warnings
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from starlette.responses import PlainTextResponse

from certificates import self_signed
from floodmark.api.server import HttpServer
from floodmark.outbound.client import Http
from floodmark.outbound.guard import Guard
from floodmark.outbound.proxy import GuardedProxy
from floodmark.testing.telegram import LoopbackTelegram, TelegramBackend
from floodmark.testing.web import Site
from floodmark.testing.web.serving import serve_app

Open = Callable[[Path], AbstractAsyncContextManager[Any]]


def _tls(folder: Path) -> ssl.SSLContext:
    return self_signed(folder, "site.test")[0]


class ClosesAtOnce(HttpServer):
    """The API's server, told to shut down in this very turn of the loop instead of at its next tick."""

    async def __aexit__(self, *_: object) -> None:
        await self._server.shutdown()
        await super().__aexit__(None, None, None)


SERVERS: dict[str, Open] = {
    "api": lambda _: ClosesAtOnce(PlainTextResponse("hello")),
    "proxy": lambda _: GuardedProxy.of(Http(Guard(), user_agent="test")),
    "site": lambda _: Site(),
    "site with TLS": lambda folder: Site(tls=_tls(folder)),
    "telegram": lambda _: LoopbackTelegram(TelegramBackend()),
}


def connect(port: int) -> socket.socket:
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex(("127.0.0.1", port))
    return client


async def close_while_clients_connect(opened: AbstractAsyncContextManager[Any], turns: int) -> None:
    with ExitStack() as clients:
        async with opened as server:
            for _ in range(3):
                clients.enter_context(connect(server.port))
            for _ in range(turns):
                await asyncio.sleep(0)


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_that_closes_while_clients_connect_leaves_nothing_open(name: str, tmp_path: Path) -> None:
    """However far the event loop has come with accepting them."""
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        for turns in range(6):
            asyncio.run(close_while_clients_connect(SERVERS[name](tmp_path), turns))
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


def test_a_client_that_does_not_answer_the_end_of_tls_leaves_nothing_open(tmp_path: Path) -> None:
    """Such as a browser that stands still: asyncio would wait for its answer for half a minute."""
    tls, trusted = self_signed(tmp_path, "site.test")
    trusting = ssl.create_default_context(cafile=trusted)

    def shake_hands(port: int) -> ssl.SSLSocket:
        client = socket.create_connection(("127.0.0.1", port), timeout=60)
        return trusting.wrap_socket(client, server_hostname="site.test")

    async def close_beside_a_client() -> None:
        async with Site(tls=tls) as site:
            clients.enter_context(await asyncio.to_thread(shake_hands, site.port))

    with ExitStack() as clients, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        asyncio.run(close_beside_a_client())
        gc.collect()
        assert [str(warning.message) for warning in caught] == []


async def read_end(port: int, sends: bytes = b"") -> bytes:
    """Connect, send something, and return what the server sends until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sends)
    try:
        async with asyncio.timeout(60):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.spec("G8")
async def test_a_loopback_site_closes_idle_connections_and_those_beyond_a_limit() -> None:
    """A silent client and one with half a request are cut off; a slow response is not."""
    leave = asyncio.Event()

    async def respond(_: web.Request) -> web.Response:
        await leave.wait()
        return web.Response(text="late")

    app = web.Application()
    app.router.add_get("/", respond)
    async with serve_app(app, idle_seconds=0.1, most_connections=2) as port:
        slow = asyncio.create_task(read_end(port, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
        for sends in (b"", b"GET / HTTP/1.1\r\nHost:"):
            assert await read_end(port, sends) == b""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await read_end(port) == b"", "two are open: the third is closed at once"
        writer.close()
        assert not slow.done()
        leave.set()
        assert b"late" in await slow
        assert await reader.read() == b""


@pytest.mark.spec("G8")
async def test_a_loopback_telegram_closes_silent_connections_and_those_beyond_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("floodmark.testing.telegram.wire._HEAD_SECONDS", 0.1)
    monkeypatch.setattr("floodmark.testing.telegram.server._MOST_CONNECTIONS", 1)
    async with LoopbackTelegram(TelegramBackend()) as server:
        first, second = await asyncio.gather(read_end(server.port), read_end(server.port))
        assert (first, second, server.connections) == (b"", b"", 1)
