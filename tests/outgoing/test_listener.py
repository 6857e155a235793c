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
from starlette.responses import PlainTextResponse

from certificates import self_signed
from floodmark.api.server import HttpServer
from floodmark.outbound.client import Http
from floodmark.outbound.guard import Guard
from floodmark.outbound.proxy import GuardedProxy
from floodmark.testing.telegram import LoopbackTelegram, TelegramBackend
from floodmark.testing.web import Site

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
