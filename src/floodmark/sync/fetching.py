"""One request to API_URL, bounded in every way: time, speed, size on the wire, size unpacked, redirects.

Whoever answers is not trusted. The address was chosen by whoever runs Floodmark; a redirect stays on it.
"""

import asyncio
import zlib
from collections.abc import Callable
from datetime import timedelta

import aiohttp
from aiohttp.connector import BaseConnector
from msgspec import Struct
from yarl import URL

from floodmark.errors import Unavailable
from floodmark.masking import mask_text

from .format import BadAnswer

MOST_BYTES = 8 * 1024 * 1024
# Beyond REQUEST_TIMEOUT an answer may go on for as long as it keeps this pace: all of it within half a minute.
SLOWEST_BYTES_PER_SECOND = 512 * 1024
_REDIRECTS = 3
_REDIRECTED = frozenset({301, 302, 303, 307, 308})
_ENCODINGS = {"": 0, "identity": 0, "gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16}
_LONGEST_ETAG = 512
_SHOWN = 200

Connect = Callable[[], BaseConnector]
"""Makes what connections are opened with: the place where addresses can be refused."""


class Fetched(Struct, frozen=True, kw_only=True):
    """An answer: `body` is None if it is still the one with the ETag we know."""

    body: bytes | None
    etag: str | None


class Fetcher:
    """Reads one address."""

    def __init__(self, url: str, *, timeout: timedelta, connect: Connect = aiohttp.TCPConnector) -> None:
        self._url, self._timeout, self._connect = url, timeout.total_seconds(), connect

    async def fetch(self, etag: str | None = None) -> Fetched:
        """Ask, and read the answer; `Unavailable` says what went wrong."""
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": "floodmark"}
        if etag is not None:
            headers["If-None-Match"] = etag
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with (
                asyncio.timeout(self._timeout) as patience,
                aiohttp.ClientSession(
                    connector=self._connect(),
                    cookie_jar=aiohttp.DummyCookieJar(),
                    headers=headers,
                    timeout=aiohttp.ClientTimeout(total=None),
                    auto_decompress=False,
                    trust_env=False,
                ) as session,
                await self._answer(session) as response,
            ):

                def go_on(received: int) -> None:
                    patience.reschedule(began + self._timeout + received / SLOWEST_BYTES_PER_SECOND)

                return await self._read(response, etag, go_on)
        except TimeoutError:
            raise self._away(f"it took longer than {self._timeout:g} s to answer, or answered too slowly") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._away(_why(error)) from error

    async def _answer(self, session: aiohttp.ClientSession) -> aiohttp.ClientResponse:
        """The answer at the end of the redirects."""
        address = URL(self._url)
        for _ in range(_REDIRECTS + 1):
            response = await session.get(address, allow_redirects=False)
            if response.status not in _REDIRECTED:
                return response
            response.close()
            address = self._led(address, response.headers.get("Location", ""))
        raise self._away(f"it redirects more than {_REDIRECTS} times")

    def _led(self, address: URL, location: str) -> URL:
        if not location:
            raise self._away("it redirects to nowhere")
        to = address.join(URL(location))
        is_safer = (address.scheme, to.scheme) == ("http", "https") and address.host == to.host
        if to.origin() != address.origin() and not is_safer:
            raise self._away(f"it redirects to another server, {_shown(str(to.origin()))}")
        # `join` leaves out who we are.
        return to.with_user(address.user).with_password(address.password)

    async def _read(self, response: aiohttp.ClientResponse, etag: str | None, go_on: Callable[[int], None]) -> Fetched:
        if response.status == 304 and etag is not None:
            return Fetched(body=None, etag=etag)
        if response.status != 200:
            raise self._away(f"it answers with status {response.status}")
        kind = response.content_type.lower()
        if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
            raise self._bad(f"its content type is {_shown(kind)!r}, not application/json")
        return Fetched(body=await self._body(response, go_on), etag=_etag(response))

    async def _body(self, response: aiohttp.ClientResponse, go_on: Callable[[int], None]) -> bytes:
        encoding = response.headers.get("Content-Encoding", "").strip().lower()
        if encoding not in _ENCODINGS:
            raise self._bad(f"it is packed as {_shown(encoding)!r}, which was not asked for")
        if (response.content_length or 0) > MOST_BYTES:
            raise self._too_large()
        unpacked = _Unpacked(_ENCODINGS[encoding])
        received = 0
        async for part in response.content.iter_any():
            received += len(part)
            go_on(received)
            unpacked.add(part)
            if received > MOST_BYTES or unpacked.is_too_large:
                raise self._too_large()
        if not unpacked.is_whole:
            raise self._bad("it ends in the middle")
        return bytes(unpacked.body)

    def _away(self, why: str) -> Unavailable:
        return Unavailable(
            f"the schedules of {_shown(self._url)} cannot be had: {why}",
            hint="nothing was changed; look at that API, or correct API_URL",
        )

    def _bad(self, why: str) -> BadAnswer:
        return BadAnswer(
            f"the answer of {_shown(self._url)} is refused: {why}",
            hint="nothing was changed; whoever runs that API has to correct it",
        )

    def _too_large(self) -> BadAnswer:
        return self._bad(f"it is larger than {MOST_BYTES // 1024 // 1024} MB")


class _Unpacked:
    """The body as it grows. Never more than a byte beyond the limit is unpacked, whatever the packed parts hold."""

    def __init__(self, window: int) -> None:
        self.body = bytearray()
        self._packed = zlib.decompressobj(window) if window else None
        self._trails = False

    def add(self, part: bytes) -> None:
        """Add what was received."""
        if self._packed is None:
            self.body += part
            return
        try:
            self.body += self._packed.decompress(part, MOST_BYTES + 1 - len(self.body))
        except zlib.error as error:
            raise ValueError(f"it is not well packed: {error}") from None

    @property
    def is_too_large(self) -> bool:
        return len(self.body) > MOST_BYTES

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing in the end, and nothing follows it."""
        return self._packed is None or (self._packed.eof and not self._packed.unused_data)


def _etag(response: aiohttp.ClientResponse) -> str | None:
    found = response.headers.get("ETag", "").strip()
    is_good = found.endswith('"') and found.isprintable() and found.isascii() and len(found) <= _LONGEST_ETAG
    return found if is_good else None


def _why(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the connection was broken off"
    if isinstance(error, aiohttp.ClientConnectorError):
        return _shown(f"nobody answers at {error.host}:{error.port} ({error.strerror or error.os_error})")
    return _shown(str(error) or type(error).__name__)


def _shown(text: str) -> str:
    masked = mask_text(text)[:_SHOWN]
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in masked)
