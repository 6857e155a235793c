"""Special responses: what misconfigured, broken, overloaded and malicious servers do."""

import asyncio
import gzip
import socket
import struct
import zlib
from collections.abc import Awaitable, Callable
from typing import Literal

from aiohttp import web

Behaviour = Callable[[web.Request], Awaitable[web.StreamResponse]]

_MEGABYTE = 1024 * 1024


def status(code: int, *, retry_after: str | None = None, text: str = "") -> Behaviour:
    """Respond with this status, and with a Retry-After (seconds or an HTTP date) if one is given."""
    headers = {} if retry_after is None else {"Retry-After": retry_after}

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=code, headers=headers, text=text or f"status {code}")

    return answer


def redirect(to: str, code: int = 302) -> Behaviour:
    """Redirect; `{n}` in `to` is the number of this request, so that a chain can be endless."""
    count = 0

    async def answer(_: web.Request) -> web.StreamResponse:
        nonlocal count
        count += 1
        return web.Response(status=code, headers={"Location": to.replace("{n}", str(count))})

    return answer


def slow(seconds: float, then: Behaviour) -> Behaviour:
    """Respond after a delay."""

    async def answer(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return await then(request)

    return answer


def no_answer() -> Behaviour:
    """Accept the request and never respond."""

    async def answer(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    return answer


def drip(pause: float = 0.02, part: bytes = b" ") -> Behaviour:
    """Send a few bytes from time to time, and never finish."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/html"})
        await response.prepare(request)
        while True:
            await response.write(part)
            await asyncio.sleep(pause)

    return answer


def endless() -> Behaviour:
    """Send an endless body without a length."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/html"})
        await response.prepare(request)
        while True:
            await response.write(b"<p>and so on</p>" * 4096)

    return answer


def bomb(encoding: Literal["gzip", "deflate", "nested"] = "gzip", megabytes: int = 64) -> Behaviour:
    """Send a few kilobytes that decompress to very much more; `nested`: compressed twice."""
    packed = _compress(encoding, megabytes)
    announced = {"nested": "gzip, gzip"}.get(encoding, encoding)

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=packed, headers={"Content-Encoding": announced, "Content-Type": "text/html"})

    return answer


def header_flood(count: int, size: int) -> Behaviour:
    """Send this number of headers of this size."""
    lines = "".join(f"X-{number}: {'x' * size}\r\n" for number in range(count))
    return raw(f"HTTP/1.1 200 OK\r\n{lines}Content-Length: 2\r\n\r\nok".encode())


def wrong_length(by: int, body: bytes = b"<p>some text</p>") -> Behaviour:
    """Announce a body that is longer or shorter than the sent one."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body) + by}\r\n\r\n"
    return raw(head.encode() + body)


def cut(body: bytes = b"<p>some te") -> Behaviour:
    """Send a chunked body without its last chunks."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
    return raw(head + f"{len(body):x}\r\n".encode() + body + b"\r\n")


def raw(text: bytes, *, keep_open: bool = False) -> Behaviour:
    """Send exactly these bytes instead of a response; then close the connection, unless it should stay open."""

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.write(text)
        if keep_open:
            await asyncio.Event().wait()
        request.transport.close()
        return web.Response()

    return answer


def reset() -> Behaviour:
    """Reset the connection."""

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        # Without lingering: the other side gets a reset, not an end.
        linger = struct.pack("ii", 1, 0)
        request.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        request.transport.abort()
        return web.Response()

    return answer


def _compress(encoding: str, megabytes: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | (0 if encoding == "deflate" else 16))
    empty = bytes(_MEGABYTE)
    packed = b"".join(packer.compress(empty) for _ in range(megabytes)) + packer.flush()
    return gzip.compress(packed) if encoding == "nested" else packed
