"""A local proxy for programs that open their own connections, such as a browser. It connects only as the guard allows.

    CONNECT host:port        a tunnel, for https and web sockets
    GET http://host/path     forwarded, one request per connection

The proxy resolves names, so HTTP_RESOLVE applies to the browser as well. It does not read the content of tunnels.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from .connector import Names, system_lookup
from .guard import AddressRefused, Guard
from .listener import Listener

if TYPE_CHECKING:
    from .client import Http

_HEAD_BYTES = 64 * 1024
_CHUNK = 64 * 1024
_MAX_REFUSED = 100
_REASONS = {
    400: "Bad Request",
    403: "Forbidden",
    411: "Length Required",
    502: "Bad Gateway",
    503: "Service Unavailable",
}
# Headers of one hop, which are not forwarded.
_HOP_HEADERS = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"upgrade"})


class ProxyLimits(Struct, frozen=True, kw_only=True):
    """Limits of the proxy and of each connection."""

    connections: int = 200
    connect: timedelta = timedelta(seconds=15)
    idle: timedelta = timedelta(seconds=60)
    """A connection without traffic for this long is closed."""
    received_bytes: int = 200 * 1024 * 1024
    """Per connection."""


class _ProxyError(Exception):
    """An error response of the proxy itself."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class GuardedProxy:
    """A proxy to use as `async with GuardedProxy.of(http) as proxy`; `proxy.url` is its address for the browser."""

    def __init__(self, guard: Guard, names: Names, limits: ProxyLimits | None = None) -> None:
        self._guard, self._names, self._limits = guard, names, limits or ProxyLimits()
        # Not asyncio's server: a closing browser may connect at any moment.
        self._listener = Listener(self._serve, name="proxied connection")
        self.refused: deque[str] = deque(maxlen=_MAX_REFUSED)
        """The guard's refusal messages, newest last."""

    @classmethod
    def of(cls, http: "Http", limits: ProxyLimits | None = None) -> "GuardedProxy":
        """Return a proxy with the guard and the name resolution of `http`."""
        return cls(http.guard, Names(http.guard, http.resolve, http.lookup or system_lookup), limits)

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return self._listener.port

    @property
    def url(self) -> str:
        """The proxy's URL."""
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> "GuardedProxy":
        self._listener.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listener.end()

    async def _serve(self, accepted: socket.socket) -> None:
        browser = _Peer(*await asyncio.open_connection(sock=accepted, limit=_HEAD_BYTES))
        try:
            await self._answer(browser)
        except _ProxyError as error:
            await _send_error(browser, error)
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            # One side has disconnected or is too slow: close both.
            pass
        except asyncio.CancelledError:
            # The proxy is closing. Otherwise asyncio would report it as a server error.
            pass
        finally:
            await browser.close()

    async def _answer(self, browser: "_Peer") -> None:
        if len(self._listener.tasks) > self._limits.connections:
            raise _ProxyError(503, "too many connections at once")
        head = await _read_head(browser, self._limits.idle)
        method, _, rest = head[0].partition(b" ")
        target = rest.rpartition(b" ")[0]
        if method == b"CONNECT":
            server = await self._connect(*_parse_authority(target, 443))
            try:
                await browser.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await self._pump_both(browser, server)
            finally:
                await server.close()
        else:
            await self._forward(browser, method, target, head)

    async def _forward(self, browser: "_Peer", method: bytes, target: bytes, head: Sequence[bytes]) -> None:
        scheme, _, rest = target.partition(b"://")
        if scheme.lower() != b"http" or not rest:
            raise _ProxyError(400, "this is a proxy: request http://host/path")
        cut = min((at for at in (rest.find(mark) for mark in b"/?#") if at >= 0), default=len(rest))
        where, path = _parse_authority(rest[:cut], 80), rest[cut:].partition(b"#")[0]
        if not path.startswith(b"/"):
            path = b"/" + path
        length = _content_length(head)
        server = await self._connect(*where)
        try:
            # The Host header must name the host that the proxy has checked and connected to.
            kept = [line for line in head[1:] if _header_name(line) not in _HOP_HEADERS | {b"host"}]
            headers = [b"Host: " + rest[:cut].rpartition(b"@")[2], *kept, b"Connection: close"]
            await server.send(b"\r\n".join([method + b" " + path + b" HTTP/1.1", *headers, b"", b""]))
            await self._pump(browser, server, limit=length)
            await self._send_response(server, browser)
        finally:
            await server.close()

    async def _send_response(self, server: "_Peer", browser: "_Peer") -> None:
        """Send the response, with a header that ends the connection after this request."""
        while True:
            head = await _read_head(server, self._limits.idle, error_status=502)
            kept = [line for line in head[1:] if _header_name(line) not in _HOP_HEADERS]
            is_last = not head[0].partition(b" ")[2].startswith(b"1")
            closing = [b"Connection: close"] if is_last else []
            await browser.send(b"\r\n".join([head[0], *kept, *closing, b"", b""]))
            if is_last:
                break
        await self._pump(server, browser, limit=self._limits.received_bytes)

    async def _connect(self, host: str, port: int) -> "_Peer":
        try:
            async with asyncio.timeout(self._limits.connect.total_seconds()):
                return await self._dial(host, port)
        except AddressRefused as refused:
            self.refused.append(str(refused))
            raise _ProxyError(403, f"{refused} ({refused.hint})") from None
        except TimeoutError:
            raise _ProxyError(502, f"{host}:{port} does not respond") from None
        except OSError as error:
            raise _ProxyError(502, f"{host}:{port} cannot be reached: {error}") from None

    async def _dial(self, host: str, port: int) -> "_Peer":
        failed: OSError = OSError("no address")
        self._guard.check_host(host)
        is_address = ":" in host or host.replace(".", "").isdigit()
        for address in [host] if is_address else await self._names.addresses(host):
            self._guard.check_address(host, address)
            sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
            try:
                sock.setblocking(False)
                await asyncio.get_running_loop().sock_connect(sock, (address, port))
                return _Peer(*await asyncio.open_connection(sock=sock, limit=_HEAD_BYTES))
            except OSError as error:
                sock.close()
                failed = error
            except BaseException:
                sock.close()
                raise
        raise failed

    async def _pump_both(self, browser: "_Peer", server: "_Peer") -> None:
        limit = self._limits.received_bytes
        up = asyncio.create_task(self._pump(browser, server, limit=limit))
        down = asyncio.create_task(self._pump(server, browser, limit=limit))
        try:
            await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def _pump(self, sender: "_Peer", receiver: "_Peer", *, limit: int) -> None:
        """Forward up to `limit` bytes, until the sender ends or both sides are idle for too long."""
        while limit > 0:
            part = await sender.read(min(_CHUNK, limit), self._limits.idle, receiver)
            if not part:
                return
            limit -= len(part)
            await receiver.send(part)


class _Peer:
    """One of the two connections: to the browser or to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.heard_at = asyncio.get_running_loop().time()

    async def read(self, limit: int, idle: timedelta, other: "_Peer") -> bytes:
        """Return the next bytes; TimeoutError once this and the other side have been idle for too long."""
        loop, timeout = asyncio.get_running_loop(), idle.total_seconds()
        while True:
            try:
                async with asyncio.timeout(timeout):
                    part = await self.reader.read(limit)
            except TimeoutError:
                if loop.time() - other.heard_at > timeout:
                    raise
                continue
            self.heard_at = loop.time()
            return part

    async def send(self, part: bytes) -> None:
        self.writer.write(part)
        await self.writer.drain()

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except asyncio.CancelledError:
            # Discard unsent bytes: a side that reads nothing would keep the socket open.
            self.writer.transport.abort()
        except OSError:
            pass


async def _read_head(side: _Peer, idle: timedelta, *, error_status: int = 400) -> list[bytes]:
    """Return the lines before the body; `error_status` is for a head that is not valid HTTP."""
    async with asyncio.timeout(idle.total_seconds()):
        text = await side.reader.readuntil(b"\r\n\r\n")
    lines = text[:-4].split(b"\r\n")
    # Some parsers accept a lone line break, and would see two headers where we see one.
    if any(b"\n" in line or b"\r" in line or b"\0" in line for line in lines) or b" " not in lines[0]:
        raise _ProxyError(error_status, "invalid HTTP")
    return lines


def _parse_authority(text: bytes, port: int) -> tuple[str, int]:
    """Return host and port; refuse everything ambiguous."""
    try:
        # Browsers encode all names as ASCII.
        host = text.decode("ascii")
        if host.startswith("["):
            host, _, rest = host[1:].partition("]")
            if rest and not rest.startswith(":"):
                raise ValueError(rest)
            digits = rest[1:]
        else:
            host, _, digits = host.partition(":")
        number = int(digits) if digits.isascii() and digits.isdigit() else port if not digits else 0
    except ValueError:
        number, host = 0, ""
    if not host or "@" in host or not 0 < number < 65536:
        raise _ProxyError(400, "invalid host or port")
    return host, number


def _content_length(head: Sequence[bytes]) -> int:
    found = [line.partition(b":")[2].strip() for line in head[1:] if _header_name(line) == b"content-length"]
    if any(_header_name(line) == b"transfer-encoding" for line in head[1:]) or len(found) > 1:
        raise _ProxyError(411, "a request needs one Content-Length")
    if not found:
        return 0
    if not found[0].isdigit() or len(found[0]) > 12:
        raise _ProxyError(400, "invalid Content-Length")
    return int(found[0])


def _header_name(line: bytes) -> bytes:
    return line.partition(b":")[0].strip().lower()


async def _send_error(browser: _Peer, error: _ProxyError) -> None:
    body = f"floodmark: {error}\n".encode()
    head = f"HTTP/1.1 {error.status} {_REASONS[error.status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
    with suppress(OSError):
        await browser.send(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
