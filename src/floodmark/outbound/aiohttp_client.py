"""Requests over aiohttp: one session and one connector, and every answer read within its limits."""

import asyncio
import os
import ssl
from collections.abc import Mapping, Sequence

import aiohttp
from aiohttp.http_exceptions import LineTooLong
from yarl import URL

from floodmark.errors import Permanent, SourceError, Transient

from .client import HttpAnswer, ResponseLimits, TooLarge, TooSlow
from .connector import Lookup, Names, RefusedSocketError, asked_for, guarded_connector, system_lookup
from .decompression import Unpacked, unpacker
from .guard import Guard

# A line of a header; all of them together are bounded by `Limits.header_bytes`.
_LONGEST_LINE = 16 * 1024
_MOST_HEADERS = 128
_SHOWN = 200


class Sender:
    """Sends one request at a time for each caller, over connections that are shared."""

    def __init__(
        self, guard: Guard, *, user_agent: str, resolve: Mapping[str, Sequence[str]], lookup: Lookup | None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._session = aiohttp.ClientSession(
            connector=guarded_connector(guard, Names(guard, resolve, lookup or system_lookup)),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": user_agent, "Accept-Encoding": "gzip, deflate", "Accept": "*/*"},
            # Ours instead: it knows how much has come.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            auto_decompress=False,
            trust_env=False,
            max_line_size=_LONGEST_LINE,
            max_field_size=_LONGEST_LINE,
            max_headers=_MOST_HEADERS,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    def now(self) -> float:
        """The time of the loop, which `until` is measured by."""
        return self._loop.time()

    async def send(
        self,
        method: str,
        url: URL,
        *,
        limits: ResponseLimits,
        until: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> HttpAnswer:
        """Send to a URL that was checked, and read the answer until `until` at the latest."""
        began = self._loop.time()
        asked_for.set(url.raw_host or "")
        try:
            async with (
                asyncio.timeout_at(min(until, began + limits.head.total_seconds())) as patience,
                self._session.request(method, url, data=body, headers=headers, allow_redirects=False) as response,
            ):
                _check_head(response, limits)
                is_empty = response.content.at_eof()
                body, received = (b"", 0) if is_empty else await self._read(response, until, patience, limits)
                return HttpAnswer(
                    status=response.status,
                    url=str(response.url),
                    headers=response.headers,
                    body=body,
                    wire_bytes=received,
                    seconds=self._loop.time() - began,
                )
        except TimeoutError:
            took = self._loop.time() - began
            raise TooSlow(f"{url.host} took longer than {took:.3g} s to answer, or answered too slowly") from None
        except aiohttp.ClientError as error:
            raise _said(error, url) from error
        except OSError as error:
            raise Transient(f"{url.host}: {_short(error)}") from error
        except ValueError as error:
            raise Permanent(f"{url.host} cannot be asked: {_short(error)}") from error

    async def _read(
        self, response: aiohttp.ClientResponse, until: float, patience: asyncio.Timeout, limits: ResponseLimits
    ) -> tuple[bytes, int]:
        """The body, and how many bytes came over the wire."""
        unpacked, received, content = _unpacked(response, limits), 0, response.content
        pace = self._loop.time() + limits.grace.total_seconds()
        while not content.at_eof():
            if not content.is_eof():
                # Most bodies are there with their headers: those need no clock.
                patience.reschedule(min(until, pace + received / limits.slowest))
            part = await content.readany()
            received += len(part)
            if received > limits.body_bytes:
                raise _too_large(response, limits.body_bytes)
            if part:
                await _add(unpacked, part)
            if unpacked.is_too_large:
                raise _too_large(response, limits.unpacked_bytes, "unpacked")
        if received and not unpacked.is_whole:
            raise Transient(f"the answer of {response.url.host} ends in the middle")
        return unpacked.body, received


async def _add(unpacked: Unpacked, part: bytes) -> None:
    unpacked.add(part)
    while unpacked.has_more:
        # A small part can become very large: others have their turn meanwhile.
        await asyncio.sleep(0)
        unpacked.go_on()


def _check_head(response: aiohttp.ClientResponse, limits: ResponseLimits) -> None:
    size = sum(len(name) + len(value) + 4 for name, value in response.raw_headers)
    if size > limits.header_bytes:
        raise TooLarge(f"the headers of {response.url.host} are larger than {_size(limits.header_bytes)}")
    if (response.content_length or 0) > limits.body_bytes and response.method != "HEAD":
        raise _too_large(response, limits.body_bytes)


def _unpacked(response: aiohttp.ClientResponse, limits: ResponseLimits) -> Unpacked:
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    try:
        return unpacker(encoding, limits.unpacked_bytes)
    except KeyError:
        raise Permanent(
            f"the answer of {response.url.host} is packed as {encoding[:_SHOWN]!r}, which was not asked for"
        ) from None


def _too_large(response: aiohttp.ClientResponse, most: int, how: str = "") -> TooLarge:
    return TooLarge(
        f"the answer of {response.url.host} is larger than {_size(most)}{how and ' '}{how}",
        hint="if it is worth it, raise HTTP_MAX_BODY_BYTES",
    )


def _size(count: int) -> str:
    return f"{count / 1024 / 1024:.3g} MB" if count >= 1024 * 1024 else f"{count / 1024:.3g} KB"


def _said(error: aiohttp.ClientError, url: URL) -> SourceError:  # noqa: PLR0911 - a table
    """What an error of aiohttp means to us."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return Permanent(f"the certificate of {url.host} is not good: {_short(error.certificate_error)}")
        case aiohttp.ClientConnectorError(os_error=RefusedSocketError(refused=refused)):
            return refused
        case aiohttp.ClientConnectorDNSError():
            return Transient(
                f"the name {url.host} is not known ({_short(error.os_error)})", hint="is it written correctly?"
            )
        case aiohttp.ClientConnectorSSLError():
            return Transient(
                f"{url.host}:{url.port} does not speak TLS with us ({_short(error.os_error)})",
                hint=f"if it is a plain server, write http://{url.authority}/",
            )
        case aiohttp.ClientConnectorError():
            why = os.strerror(error.errno) if error.errno else _short(error.os_error)
            return Transient(f"nobody answers at {url.host}:{url.port} ({why})")
        case aiohttp.ClientResponseError() if _has_long_line(error):
            return TooLarge(f"the headers of {url.host} are too large: a line is longer than {_size(_LONGEST_LINE)}")
        case aiohttp.ClientResponseError():
            return Permanent(f"the answer of {url.host} is no good HTTP: {_short(error.message)}")
        case aiohttp.InvalidURL():
            return Permanent(f"{url.host} cannot be asked: {_short(error)}")
        case _:
            # Reset, closed without a word, or before its end.
            return Transient(f"the connection to {url.host} was broken off ({_short(error)})")


def _has_long_line(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, LineTooLong):
        error = error.__cause__
    return error is not None


def _short(error: object) -> str:
    text = str(error) or type(error).__name__
    # Of what OpenSSL says, the part that is meant for people.
    if isinstance(error, ssl.SSLCertVerificationError):
        text = error.verify_message or text
    elif isinstance(error, ssl.SSLError):
        text = getattr(error, "reason", None) or text
    line = " ".join(text.split())[:_SHOWN]
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in line)
