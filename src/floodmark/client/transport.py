"""Sends requests, and raises the same errors as the operations in this process.

Requests that are safe to repeat are tried three times: reads, requests with an Idempotency-Key, and those that never
reached the server.
"""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx2
import msgspec

from floodmark.errors import Conflict, Denied, FloodmarkError, InvalidInput, NotFound, Unavailable
from floodmark.rules.backoff import backoff
from floodmark.security.masking import mask_text
from floodmark.version import __version__

from .requests import OutgoingRequest

PREFIX = "/api/v2"
_ATTEMPTS = 3
_PAUSE, _LONGEST_PAUSE = timedelta(seconds=0.4), timedelta(seconds=2)
# A longer Retry-After is reported at once: nobody waits for it at a keyboard.
_LONGEST_WAIT_SECONDS = 5.0
_CONNECT_SECONDS = 5.0
# A feed without events sends a heartbeat every 15 s.
_SILENCE_SECONDS = 45.0
_LARGEST_EVENT = 64 * 1024 * 1024
_REPEATABLE = frozenset({"GET", "HEAD"})
_LATER = frozenset({429, 502, 503, 504})
_SOURCE_REFUSED = 502
_SHOWN = 200


# Messages for connection errors; the innermost known error counts.
_REASONS: Mapping[type[BaseException], str] = {
    httpx2.ConnectTimeout: "nobody answers",
    httpx2.ReadTimeout: "no answer in time",
    httpx2.RemoteProtocolError: "the connection was closed",
    httpx2.ReadError: "the connection was closed",
    ConnectionRefusedError: "nothing listens there",
    socket.gaierror: "there is no such host",
}


_KINDS: Mapping[int, type[FloodmarkError]] = {
    400: InvalidInput,
    401: Denied,
    403: Denied,
    404: NotFound,
    409: Conflict,
    412: Conflict,
    413: InvalidInput,
    422: InvalidInput,
}


class ProblemBody(msgspec.Struct, kw_only=True):
    """A response of type application/problem+json."""

    detail: str
    hint: str | None = None
    request_id: str | None = None


class Transport:
    """A connection to one server, kept open until `close`."""

    def __init__(self, url: str, token: str | None = None, *, timeout: timedelta = timedelta(seconds=30)) -> None:
        self.url = url.rstrip("/")
        self._has_token = bool(token)
        headers = {"User-Agent": f"floodmark/{__version__}", "Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            parsed = httpx2.URL(self.url)
        except httpx2.InvalidURL as error:
            raise _no_url(url, str(error)) from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise _no_url(url, "it has to begin with http:// or https:// and have a host")
        self._is_private = parsed.scheme == "https" or _is_loopback(parsed.host)
        self._http = httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(timeout.total_seconds(), connect=_CONNECT_SECONDS),
            # Loading certificates takes longer than a request; plain http does not need them.
            verify=parsed.scheme == "https",
            # A proxy cannot reach this machine's loopback address.
            trust_env=not _is_loopback(parsed.host),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def require_private(self, what: str) -> None:
        """Refuse to send a secret by plain http, except to this machine."""
        if not self._is_private:
            raise InvalidInput(
                f"{what} is not sent to {mask_text(self.url)}: that is plain http, and others could read it on the way",
                hint="use https://, or type it where the server runs",
            )

    async def send(self, request: OutgoingRequest) -> bytes:
        """Return the body of a successful response."""
        method, headers = request.method, dict(request.headers)
        content = None if request.body is None else msgspec.json.encode(request.body)
        if content is not None:
            headers["Content-Type"] = "application/json"
        is_repeatable = method in _REPEATABLE or "Idempotency-Key" in headers
        address, params = self._address(request.path), _params(request.query)
        for left in range(_ATTEMPTS - 1, -1, -1):
            try:
                response = await self._http.request(method, address, params=params, content=content, headers=headers)
            except (httpx2.TransportError, httpx2.InvalidURL) as error:
                # Without a connection the server has done nothing.
                if not left or not (is_repeatable or isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)):
                    raise self._unreachable(error) from error
                await asyncio.sleep(_pause(left))
                continue
            if response.is_success:
                return response.content
            wait = _wait(response, left)
            if not left or not (is_repeatable or _is_busy(response)) or wait is None:
                raise self._error_of(response)
            await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def events(
        self, path: str, query: Mapping[str, Any], headers: Mapping[str, str]
    ) -> AsyncIterator[AsyncIterator[httpx2.ServerSentEvent]]:
        """Yield the server-sent events of a path, until either side closes the connection."""
        timeout = httpx2.Timeout(_SILENCE_SECONDS, connect=_CONNECT_SECONDS)
        options: dict[str, Any] = {"params": _params(query), "headers": dict(headers), "timeout": timeout}
        try:
            async with self._http.sse(self._address(path), max_event_size=_LARGEST_EVENT, **options) as source:
                if not source.response.is_success:
                    await source.response.aread()
                    raise self._error_of(source.response)
                yield aiter(source)
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    def _address(self, path: str) -> str:
        return f"{self.url}{PREFIX}{path}"

    def _error_of(self, response: httpx2.Response) -> FloodmarkError:
        """Return the error that an unsuccessful response stands for."""
        try:
            problem = msgspec.json.decode(response.content, type=ProblemBody)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self._not_floodmark(response)
        kind = _KINDS.get(response.status_code, Unavailable)
        message, hint = problem.detail, problem.hint or ""
        if kind is Denied:
            return Denied(f"{mask_text(self.url)} refused this: {message}", hint=self._which_token(hint))
        # A refusal by a source is not an error of the server: its log has no more.
        if response.status_code >= 500 and response.status_code != _SOURCE_REFUSED and problem.request_id:
            message += f" (request {problem.request_id})"
        return kind(message, hint=hint)

    def _which_token(self, hint: str) -> str:
        if not self._has_token:
            return (
                "no token was sent: set FLOODMARK_TOKEN to a token that was made on the server with: "
                "floodmark tokens add NAME --role read|operate|admin"
            )
        return f"the token is the one in FLOODMARK_TOKEN; {hint}" if hint else "check the token in FLOODMARK_TOKEN"

    def _not_floodmark(self, response: httpx2.Response) -> FloodmarkError:
        """Return the error for a response of something else: a proxy, another program, another path."""
        where = response.headers.get("location")
        led = f", and redirects to {where[:_SHOWN]}" if where else ""
        return Unavailable(
            f"{mask_text(self.url)} answers with status {response.status_code}, not as a Floodmark server does{led}",
            hint="correct the address (--url or FLOODMARK_URL): it is the one that `floodmark up` prints there",
        )

    def _unreachable(self, error: Exception) -> Unavailable:
        return Unavailable(
            f"cannot reach the server at {mask_text(self.url)}: {_why(error)}",
            hint="start it there with: floodmark up; or correct the address (--url or FLOODMARK_URL)",
        )


def _why(error: BaseException) -> str:
    reason, deeper = str(error) or type(error).__name__, error.__cause__ or error.__context__
    while deeper is not None:
        reason = _REASONS.get(type(deeper), reason)
        deeper = deeper.__cause__ or deeper.__context__
    return _REASONS.get(type(error), reason)


def _no_url(url: str, why: str) -> InvalidInput:
    return InvalidInput(
        f"{mask_text(url)[:_SHOWN]!r} is not the address of a server: {why}", hint="for example http://127.0.0.1:8060"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _params(query: Mapping[str, Any]) -> httpx2.QueryParams:
    """Return the query; lists are repeated, booleans are written as in JSON, None is left out."""
    found: list[tuple[str, str | int | float | bool | None]] = []
    for name, value in query.items():
        values = value if isinstance(value, list | tuple) else [value]
        found += [(name, str(one).lower() if isinstance(one, bool) else str(one)) for one in values if one is not None]
    return httpx2.QueryParams(found)


def _pause(left: int) -> float:
    """Return the seconds to wait before the next attempt, when `left` attempts are left."""
    return backoff(_ATTEMPTS - left, base=_PAUSE, longest=_LONGEST_PAUSE).total_seconds()


def _is_busy(response: httpx2.Response) -> bool:
    """Return whether the server refused a request before reading it: then nothing was changed."""
    return response.status_code == 503 and b'"urn:floodmark:busy"' in response.content


def _wait(response: httpx2.Response, left: int) -> float | None:
    """Return the seconds to wait before the next attempt; None: do not try again."""
    if response.status_code not in _LATER:
        return None
    asked = response.headers.get("retry-after", "")
    if not asked.isdecimal():
        return _pause(left)
    return float(asked) if float(asked) <= _LONGEST_WAIT_SECONDS else None
