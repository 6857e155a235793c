"""A proxy on this machine for programs that dial by themselves, such as a browser: it dials only what the guard allows.

    CONNECT host:port        a tunnel, for https and web sockets
    GET http://host/path     forwarded, one request for each connection

Names are looked up here, so HTTP_RESOLVE holds for the browser as well. What is inside a tunnel is not looked at.
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
_REMEMBERED = 100
_REASONS = {
    400: "Bad Request",
    403: "Forbidden",
    411: "Length Required",
    502: "Bad Gateway",
    503: "Service Unavailable",
}
# Between us and the browser, or the browser and us: not for the server.
_OURS = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"upgrade"})


class ProxyLimits(Struct, frozen=True, kw_only=True):
    """How much of either side is borne."""

    connections: int = 200
    connect: timedelta = timedelta(seconds=15)
    idle: timedelta = timedelta(seconds=60)
    """A connection over which nothing comes for so long is closed."""
    received_bytes: int = 200 * 1024 * 1024
    """Of one connection."""


class _TurnedDownError(Exception):
    """The browser is told this instead of an answer."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class GuardedProxy:
    """`async with GuardedProxy.of(http) as proxy`: then `proxy.url` is where the browser is to be sent."""

    def __init__(self, guard: Guard, names: Names, limits: ProxyLimits | None = None) -> None:
        self._guard, self._names, self._limits = guard, names, limits or ProxyLimits()
        # A browser that is being closed may connect at any moment.
        self._listener = Listener(self._serve, name="proxied connection")
        self.refused: deque[str] = deque(maxlen=_REMEMBERED)
        """What the guard has refused, as it was told, newest last."""

    @classmethod
    def of(cls, http: "Http", limits: ProxyLimits | None = None) -> "GuardedProxy":
        """One that dials by the rules of `http`."""
        return cls(http.guard, Names(http.guard, http.resolve, http.lookup or system_lookup), limits)

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1."""
        return self._listener.port

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> "GuardedProxy":
        self._listener.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listener.end()

    async def _serve(self, accepted: socket.socket) -> None:
        browser = _Side(*await asyncio.open_connection(sock=accepted, limit=_HEAD_BYTES))
        try:
            await self._answer(browser)
        except _TurnedDownError as no:
            await _say_no(browser, no)
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            # One side has left, or is too slow; the other one sees the end.
            pass
        except asyncio.CancelledError:
            # We are closing: asyncio would report it as an error of the server.
            pass
        finally:
            await browser.close()

    async def _answer(self, browser: "_Side") -> None:
        if len(self._listener.tasks) > self._limits.connections:
            raise _TurnedDownError(503, "too many connections at once")
        head = await _head(browser, self._limits.idle)
        method, _, rest = head[0].partition(b" ")
        target = rest.rpartition(b" ")[0]
        if method == b"CONNECT":
            server = await self._dialled(*_authority(target, 443))
            try:
                await browser.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await self._pump_both(browser, server)
            finally:
                await server.close()
        else:
            await self._forward(browser, method, target, head)

    async def _forward(self, browser: "_Side", method: bytes, target: bytes, head: Sequence[bytes]) -> None:
        scheme, _, rest = target.partition(b"://")
        if scheme.lower() != b"http" or not rest:
            raise _TurnedDownError(400, "this is a proxy: ask for http://host/path")
        cut = min((at for at in (rest.find(mark) for mark in b"/?#") if at >= 0), default=len(rest))
        where, path = _authority(rest[:cut], 80), rest[cut:].partition(b"#")[0]
        if not path.startswith(b"/"):
            path = b"/" + path
        length = _length(head)
        server = await self._dialled(*where)
        try:
            # The host that was dialled is the host that is named: the two must not differ.
            kept = [line for line in head[1:] if _name(line) not in _OURS and _name(line) != b"host"]
            named = [b"Host: " + rest[:cut].rpartition(b"@")[2], *kept, b"Connection: close"]
            await server.send(b"\r\n".join([method + b" " + path + b" HTTP/1.1", *named, b"", b""]))
            await self._pump(browser, server, most=length)
            await self._return(server, browser)
        finally:
            await server.close()

    async def _return(self, server: "_Side", browser: "_Side") -> None:
        """The answer. The browser is told that this connection is for one request only, whatever the server says."""
        while True:
            head = await _head(server, self._limits.idle, bad=502)
            kept = [line for line in head[1:] if _name(line) not in _OURS]
            is_last = not head[0].partition(b" ")[2].startswith(b"1")
            closing = [b"Connection: close"] if is_last else []
            await browser.send(b"\r\n".join([head[0], *kept, *closing, b"", b""]))
            if is_last:
                break
        await self._pump(server, browser, most=self._limits.received_bytes)

    async def _dialled(self, host: str, port: int) -> "_Side":
        try:
            async with asyncio.timeout(self._limits.connect.total_seconds()):
                return await self._dial(host, port)
        except AddressRefused as refused:
            self.refused.append(str(refused))
            raise _TurnedDownError(403, f"{refused} ({refused.hint})") from None
        except TimeoutError:
            raise _TurnedDownError(502, f"{host}:{port} does not answer") from None
        except OSError as error:
            raise _TurnedDownError(502, f"{host}:{port} cannot be reached: {error}") from None

    async def _dial(self, host: str, port: int) -> "_Side":
        failed: OSError = OSError("no address")
        self._guard.check_host(host)
        is_address = ":" in host or host.replace(".", "").isdigit()
        for address in [host] if is_address else await self._names.addresses(host):
            self._guard.check_address(host, address)
            sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
            try:
                sock.setblocking(False)
                await asyncio.get_running_loop().sock_connect(sock, (address, port))
                return _Side(*await asyncio.open_connection(sock=sock, limit=_HEAD_BYTES))
            except OSError as error:
                sock.close()
                failed = error
            except BaseException:
                sock.close()
                raise
        raise failed

    async def _pump_both(self, browser: "_Side", server: "_Side") -> None:
        most = self._limits.received_bytes
        up = asyncio.create_task(self._pump(browser, server, most=most))
        down = asyncio.create_task(self._pump(server, browser, most=most))
        try:
            await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def _pump(self, giver: "_Side", taker: "_Side", *, most: int) -> None:
        """Carry over up to so many bytes, until the giver ends or both are silent for too long."""
        while most > 0:
            part = await giver.read(min(_CHUNK, most), self._limits.idle, taker)
            if not part:
                return
            most -= len(part)
            await taker.send(part)


class _Side:
    """One of the two that talk through us."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.heard_at = asyncio.get_running_loop().time()

    async def read(self, most: int, idle: timedelta, other: "_Side") -> bytes:
        """What it says next. Its silence is borne as long as the other one talks."""
        loop, patience = asyncio.get_running_loop(), idle.total_seconds()
        while True:
            try:
                async with asyncio.timeout(patience):
                    part = await self.reader.read(most)
            except TimeoutError:
                if loop.time() - other.heard_at > patience:
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
            # What it has not read yet it will not read: else the socket stays for as long as it keeps us waiting.
            self.writer.transport.abort()
        except OSError:
            pass


async def _head(side: _Side, idle: timedelta, *, bad: int = 400) -> list[bytes]:
    """The lines before a body; `bad` is the status for what is none."""
    async with asyncio.timeout(idle.total_seconds()):
        text = await side.reader.readuntil(b"\r\n\r\n")
    lines = text[:-4].split(b"\r\n")
    # A lone end of line is one to some readers: what we take for one header could be two to them.
    if any(b"\n" in line or b"\r" in line or b"\0" in line for line in lines) or b" " not in lines[0]:
        raise _TurnedDownError(bad, "that is not HTTP")
    return lines


def _authority(text: bytes, port: int) -> tuple[str, int]:
    """Host and port. What cannot be read in one way only is refused."""
    try:
        # ASCII alone: a browser has turned all other names into it.
        host = text.decode("ascii")
        if host.startswith("["):
            host, _, behind = host[1:].partition("]")
            if behind and not behind.startswith(":"):
                raise ValueError(behind)
            digits = behind[1:]
        else:
            host, _, digits = host.partition(":")
        number = int(digits) if digits.isascii() and digits.isdigit() else port if not digits else 0
    except ValueError:
        number, host = 0, ""
    if not host or "@" in host or not 0 < number < 65536:
        raise _TurnedDownError(400, "that is no host and port")
    return host, number


def _length(head: Sequence[bytes]) -> int:
    """How many bytes follow the head of a request."""
    found = [line.partition(b":")[2].strip() for line in head[1:] if _name(line) == b"content-length"]
    if any(_name(line) == b"transfer-encoding" for line in head[1:]) or len(found) > 1:
        raise _TurnedDownError(411, "a request needs one Content-Length")
    if not found:
        return 0
    if not found[0].isdigit() or len(found[0]) > 12:
        raise _TurnedDownError(400, "that is no Content-Length")
    return int(found[0])


def _name(line: bytes) -> bytes:
    return line.partition(b":")[0].strip().lower()


async def _say_no(browser: _Side, no: _TurnedDownError) -> None:
    body = f"floodmark: {no}\n".encode()
    head = f"HTTP/1.1 {no.status} {_REASONS[no.status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
    with suppress(OSError):
        await browser.send(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
