"""HTTP requests over aiohttp: one session and one connector; every response is read within its limits."""

import asyncio
import os
import ssl
from collections.abc import Mapping, Sequence

import aiohttp
from aiohttp.http_exceptions import LineTooLong
from yarl import URL

from floodmark.errors import Permanent, SourceError, Transient
from floodmark.model.proxies import ProxyAddress

from .client import HttpAnswer, ResponseLimits, TooLarge, TooSlow
from .connector import Lookup, Names, RefusedSocketError, make_connector, requested_host, system_lookup
from .decompression import PlainBody, open_body
from .guard import Guard

# Of one header line; `ResponseLimits.header_bytes` limits all of them together.
_LONGEST_LINE = 16 * 1024
_MAX_HEADERS = 128
_SHOWN = 200


class Sender:
    """Sends requests over a shared pool of connections."""

    def __init__(
        self,
        guard: Guard,
        *,
        user_agent: str,
        resolve: Mapping[str, Sequence[str]],
        lookup: Lookup | None,
        proxy: ProxyAddress | None = None,
        proxy_guard: Guard | None = None,
    ) -> None:
        names = Names(guard, resolve, lookup or system_lookup)
        self._loop = asyncio.get_running_loop()
        self._session = aiohttp.ClientSession(
            connector=_connector(guard, names, proxy, Names(proxy_guard or guard, resolve, lookup or system_lookup)),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": user_agent, "Accept-Encoding": "gzip, deflate", "Accept": "*/*"},
            # `send` has its own timeouts, which depend on the bytes received.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            auto_decompress=False,
            trust_env=False,
            max_line_size=_LONGEST_LINE,
            max_field_size=_LONGEST_LINE,
            max_headers=_MAX_HEADERS,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    def now(self) -> float:
        """Return the event loop's time, which `until` refers to."""
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
        """Send a request to a URL that the guard has checked, and read the response until `until` at the latest."""
        began = self._loop.time()
        requested_host.set(url.raw_host or "")
        try:
            async with (
                asyncio.timeout_at(min(until, began + limits.head.total_seconds())) as timeout,
                self._session.request(method, url, data=body, headers=headers, allow_redirects=False) as response,
            ):
                _check_head(response, limits)
                is_empty = response.content.at_eof()
                body, received = (b"", 0) if is_empty else await self._read(response, until, timeout, limits)
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
            raise TooSlow(f"{url.host} took longer than {took:.3g} s to respond, or responded too slowly") from None
        except aiohttp.ClientError as error:
            raise _translate_error(error, url) from error
        except OSError as error:
            raise Transient(f"{url.host}: {_describe(error)}") from error
        except ValueError as error:
            raise Permanent(f"{url.host} cannot be requested: {_describe(error)}") from error

    async def _read(
        self, response: aiohttp.ClientResponse, until: float, timeout: asyncio.Timeout, limits: ResponseLimits
    ) -> tuple[bytes, int]:
        """Return the decompressed body and the number of bytes received."""
        body, received, content = _open_body(response, limits), 0, response.content
        deadline = self._loop.time() + limits.grace.total_seconds()
        while not content.at_eof():
            if not content.is_eof():
                # Most bodies arrive together with their headers: those need no timeout.
                timeout.reschedule(min(until, deadline + received / limits.slowest))
            part = await content.readany()
            received += len(part)
            if received > limits.body_bytes:
                raise _too_large(response, limits.body_bytes)
            if part:
                await _add(body, part)
            if body.is_too_large:
                raise _too_large(response, limits.unpacked_bytes, " when decompressed")
        if received and not body.is_complete:
            raise Transient(f"the response of {response.url.host} is incomplete")
        return body.content, received


def _connector(guard: Guard, names: Names, proxy: ProxyAddress | None, proxy_names: Names) -> aiohttp.TCPConnector:
    if proxy is None:
        return make_connector(guard, names)
    from .proxy_connector import ProxyConnector  # noqa: PLC0415 - few jobs have a proxy

    return ProxyConnector(guard, names, proxy, proxy_names=proxy_names)


async def _add(body: PlainBody, part: bytes) -> None:
    body.add(part)
    while body.has_more:
        # A small part can decompress to a very large one: let other tasks run in between.
        await asyncio.sleep(0)
        body.step()


def _check_head(response: aiohttp.ClientResponse, limits: ResponseLimits) -> None:
    size = sum(len(name) + len(value) + 4 for name, value in response.raw_headers)
    if size > limits.header_bytes:
        raise TooLarge(f"the headers of {response.url.host} are larger than {_size(limits.header_bytes)}")
    if (response.content_length or 0) > limits.body_bytes and response.method != "HEAD":
        raise _too_large(response, limits.body_bytes)


def _open_body(response: aiohttp.ClientResponse, limits: ResponseLimits) -> PlainBody:
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    try:
        return open_body(encoding, limits.unpacked_bytes)
    except KeyError:
        raise Permanent(
            f"the response of {response.url.host} has the unsupported Content-Encoding {encoding[:_SHOWN]!r}"
        ) from None


def _too_large(response: aiohttp.ClientResponse, limit: int, when: str = "") -> TooLarge:
    return TooLarge(
        f"the response of {response.url.host} is larger than {_size(limit)}{when}",
        hint="to allow larger responses, raise HTTP_MAX_BODY_BYTES",
    )


def _size(count: int) -> str:
    return f"{count / 1024 / 1024:.3g} MB" if count >= 1024 * 1024 else f"{count / 1024:.3g} KB"


def _translate_error(error: aiohttp.ClientError, url: URL) -> SourceError:  # noqa: PLR0911 - a table
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return Permanent(f"the certificate of {url.host} is not valid: {_describe(error.certificate_error)}")
        case aiohttp.ClientConnectorError(os_error=RefusedSocketError(refused=refused)):
            return refused
        case aiohttp.ClientConnectorDNSError():
            return Transient(
                f"the host name {url.host} is unknown ({_describe(error.os_error)})", hint="check its spelling"
            )
        case aiohttp.ClientConnectorSSLError():
            return Transient(
                f"the TLS handshake with {url.host}:{url.port} failed ({_describe(error.os_error)})",
                hint=f"if the server has no TLS, write http://{url.authority}/",
            )
        case aiohttp.ClientConnectorError():
            why = os.strerror(error.errno) if error.errno else _describe(error.os_error)
            return Transient(f"cannot connect to {url.host}:{url.port} ({why})")
        case aiohttp.ClientResponseError() if _has_long_line(error):
            return TooLarge(f"the headers of {url.host} are too large: a line is longer than {_size(_LONGEST_LINE)}")
        case aiohttp.ClientResponseError():
            return Permanent(f"the response of {url.host} is not valid HTTP: {_describe(error.message)}")
        case aiohttp.InvalidURL():
            return Permanent(f"{url.host} cannot be requested: {_describe(error)}")
        case _:
            # Reset, closed without a response, or before its end.
            return Transient(f"the connection to {url.host} was lost ({_describe(error)})")


def _has_long_line(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, LineTooLong):
        error = error.__cause__
    return error is not None


def _describe(error: object) -> str:
    text = str(error) or type(error).__name__
    # OpenSSL's full text is long; these parts are readable.
    if isinstance(error, ssl.SSLCertVerificationError):
        text = error.verify_message or text
    elif isinstance(error, ssl.SSLError):
        text = getattr(error, "reason", None) or text
    line = " ".join(text.split())[:_SHOWN]
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in line)
