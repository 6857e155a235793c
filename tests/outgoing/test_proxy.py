"""The proxy between a browser and the web: what it carries, what it turns down, and that nobody can hold it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from floodmark.outbound.client import Http
from floodmark.outbound.guard import Guard
from floodmark.outbound.proxy import GuardedProxy, ProxyLimits
from floodmark.testing.eventually import eventually
from floodmark.testing.web import Site, drip, endless, no_answer, raw

pytestmark = pytest.mark.spec("E8")

LIMITS = ProxyLimits(connections=5, connect=timedelta(seconds=60), idle=timedelta(seconds=60), received_bytes=300_000)
HURRY = replace(LIMITS, idle=timedelta(seconds=0.3))


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as site:
        site.page("/", "Welcome", cookies=("a=1", "b=2"))
        yield site


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    names = {"a.test": ["127.0.0.1"], "b.test": ["127.0.0.1"], "6.test": ["::1", "127.0.0.1"]}
    async with Http(Guard(["*.test"]), user_agent="test", resolve=names) as http:
        yield http


@pytest.fixture
async def proxy(http: Http) -> AsyncIterator[GuardedProxy]:
    async with GuardedProxy.of(http, LIMITS) as proxy:
        yield proxy


class Browser:
    """A connection to the proxy."""

    def __init__(self, proxy: GuardedProxy) -> None:
        self._proxy = proxy

    async def __aenter__(self) -> "Browser":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._proxy.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        await self.writer.wait_closed()

    async def ask(self, text: str) -> bytes:
        """All that comes back until the proxy closes."""
        self.writer.write(text.replace("\n", "\r\n").encode())
        return await self.reader.read()


async def test_requests_are_forwarded_as_they_are(site: Site, proxy: GuardedProxy) -> None:
    async with aiohttp.ClientSession() as browser:

        async def ask(method: str, host: str, path: str, **options: Any) -> tuple[int, bytes]:
            async with browser.request(method, site.at(host, path), proxy=proxy.url, **options) as answer:
                return answer.status, await answer.read()

        assert (await ask("GET", "a.test", "/"))[0] == 200
        assert (await ask("GET", "b.test", "/?q=1&r=%20"))[0] == 200
        assert (await ask("GET", "6.test", "/nothing"))[0] == 404
        assert (await ask("POST", "a.test", "/", data=b"x" * 200_000))[0] == 200
        assert await ask("HEAD", "a.test", "/") == (200, b"")
    assert [(seen.method, seen.host, seen.path) for seen in site.seen] == [
        ("GET", "a.test", "/"),
        ("GET", "b.test", "/?q=1&r=%20"),
        ("GET", "6.test", "/nothing"),
        ("POST", "a.test", "/"),
        ("HEAD", "a.test", "/"),
    ]
    assert len(site.seen[3].body) == 200_000
    assert not proxy.refused


async def test_the_host_that_is_dialled_is_the_host_that_is_named(site: Site, proxy: GuardedProxy) -> None:
    """And a second request on the same connection goes nowhere: it could be for someone else."""
    async with Browser(proxy) as browser:
        said = await browser.ask(
            f"GET {site.at('a.test')}/ HTTP/1.1\nHost: elsewhere.test\nProxy-Authorization: Basic x\n"
            f"Connection: keep-alive\nCookie: c=1\n\nGET {site.at('b.test')}/ HTTP/1.1\nHost: b.test\n\n"
        )
    assert said.count(b"HTTP/1.1 200") == 1
    assert b"Connection: close" in said
    assert said.count(b"Set-Cookie") == 2
    [seen] = site.seen
    assert (seen.host, seen.headers["Cookie"], "Proxy-Authorization" in seen.headers) == ("a.test", "c=1", False)


async def test_a_server_that_keeps_its_connection_does_not_keep_ours(site: Site, http: Http) -> None:
    held = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nConnection: keep-alive\r\n"
    site.always("/x", raw(held + b"Content-Length: 2\r\n\r\nok", keep_open=True))
    # The end comes when the server has been silent for this long.
    limits = replace(LIMITS, idle=timedelta(seconds=3))
    async with GuardedProxy.of(http, limits) as proxy, Browser(proxy) as browser:
        said = await browser.ask(f"GET {site.at('a.test')}/x HTTP/1.1\nHost: a.test\n\n")
    assert said.startswith(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert said.endswith(b"\r\nConnection: close\r\n\r\nok")


async def test_a_tunnel_carries_both_ways_until_either_side_leaves(site: Site, proxy: GuardedProxy) -> None:
    async with Browser(proxy) as browser:
        browser.writer.write(f"CONNECT a.test:{site.port} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode())
        assert (await browser.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        for _ in range(3):
            browser.writer.write(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
            assert b"Welcome" in await browser.reader.readuntil(b"</html>\n")
        assert b"Welcome" in await browser.ask("GET / HTTP/1.1\nHost: a.test\nConnection: close\n\n")
    async with Browser(proxy) as browser:
        browser.writer.write(f"CONNECT a.test:{site.port} HTTP/1.1\r\n\r\n".encode())
        await browser.reader.readuntil(b"\r\n\r\n")
    await eventually(lambda: not proxy._listener.tasks)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("GET / HTTP/1.1\nHost: a.test\n\n", b"400"),
        ("GET https://a.test/ HTTP/1.1\nHost: a.test\n\n", b"400"),
        ("CONNECT a.test:http HTTP/1.1\n\n", b"400"),
        ("CONNECT a.test:0 HTTP/1.1\n\n", b"400"),
        ("CONNECT [::1 HTTP/1.1\n\n", b"403"),
        ("CONNECT [::1]x:1 HTTP/1.1\n\n", b"400"),
        ("CONNECT me@a.test:1 HTTP/1.1\n\n", b"400"),
        ("CONNECT a.test:1 HTTP/1.1\n\n", b"502"),
        ("CONNECT unknown.invalid:1 HTTP/1.1\n\n", b"502"),
        ("CONNECT 127.0.0.1:1 HTTP/1.1\n\n", b"403"),
        ("POST http://a.test:{port}/ HTTP/1.1\nTransfer-Encoding: chunked\n\n0\n\n", b"411"),
        ("POST http://a.test:{port}/ HTTP/1.1\nContent-Length: 1\nContent-Length: 2\n\nxx", b"411"),
        ("POST http://a.test:{port}/ HTTP/1.1\nContent-Length: -1\n\n", b"400"),
        ("GET http://a.test:{port}/garbage HTTP/1.1\n\n", b"502"),
        ("nonsense\n\n", b"400"),
    ],
)
async def test_what_cannot_be_done_is_said(site: Site, proxy: GuardedProxy, text: str, status: bytes) -> None:
    site.always("/garbage", raw(b"nonsense\r\n\r\n"))
    async with Browser(proxy) as browser:
        said = await browser.ask(text.replace("{port}", str(site.port)))
    assert said[9:12] == status, said
    assert b"floodmark: " in said


async def test_nobody_can_hold_it(site: Site, http: Http, proxy: GuardedProxy) -> None:
    """Not by silence, not by large heads, not by bodies without an end, and not by many connections."""
    site.always("/endless", endless())
    site.always("/silent", no_answer())
    silent = ("", "GET http://a.test/", f"GET {site.at('a.test')}/silent HTTP/1.1\n\n")
    async with GuardedProxy.of(http, HURRY) as impatient:
        for text in (*silent, "GET / HTTP/1.1\nX: " + "x" * 100_000):
            async with Browser(impatient) as browser:
                assert await browser.ask(text) == b""
    async with Browser(proxy) as browser:
        said = await browser.ask(f"GET {site.at('a.test')}/endless HTTP/1.1\n\n")
        assert 200_000 < len(said) <= 301_000
    browsers = [await Browser(proxy).__aenter__() for _ in range(5)]
    await eventually(lambda: len(proxy._listener.tasks) == 5)
    async with Browser(proxy) as browser:
        assert (await browser.ask(""))[9:12] == b"503"
    for each in browsers:
        await each.__aexit__()


async def test_closing_it_ends_what_is_under_way(site: Site) -> None:
    site.always("/drip", drip(pause=0.05))
    async with Http(Guard(["a.test"]), user_agent="test", resolve={"a.test": ["127.0.0.1"]}) as http:
        async with GuardedProxy.of(http) as proxy:
            browser = await Browser(proxy).__aenter__()
            browser.writer.write(f"GET {site.at('a.test')}/drip HTTP/1.1\r\n\r\n".encode())
            await browser.reader.readuntil(b"\r\n\r\n")
        await browser.reader.read()
        await browser.__aexit__()


@pytest.mark.parametrize("turns", range(5))
async def test_who_knocks_while_it_closes_sees_the_end(turns: int) -> None:
    """However far the loop has come with letting it in."""
    async with Http(Guard(), user_agent="test") as http:
        async with GuardedProxy.of(http) as proxy:
            browser = socket.create_connection(("127.0.0.1", proxy.port), timeout=60)
            for _ in range(turns):
                await asyncio.sleep(0)
        with browser, suppress(ConnectionResetError):
            assert await asyncio.to_thread(browser.recv, 1) == b""
