"""The outermost layer: request ids, limits on size and time, a check of the origin, and a log line."""

import asyncio
import re
import secrets
import time
from functools import cached_property
from urllib.parse import unquote

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .addresses import address_scope, is_own_page, prefix_of, route_path
from .problems import problem

REQUEST_SECONDS = 30.0
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}", re.ASCII)
SAFE = ("GET", "HEAD", "OPTIONS")
# The key of the scope that says whether one of our own pages sent the request; None if that is not known.
OWN_PAGE = "floodmark.own_page"
_JSON_ONLY, _WEBHOOKS = "/api/v2/", "/api/v2/triggers/webhook/"
# Content types of programs that did not set one, such as `curl -d`.
_UNTYPED = ("", "application/x-www-form-urlencoded", "text/plain")
# Headers that only browsers send.
_BROWSER = ("origin", "referer", "sec-fetch-")
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
# These stay encoded until the path was split at its slashes.
_KEPT = re.compile(r"(%2f|%25)", re.IGNORECASE)


class Edge:
    """Answers every request, also after an unexpected error.

    `endless`: paths whose responses have no end and no time limit. `origins`: web pages of others that may change data.
    `public_url`: the address at which a proxy offers us.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        body_max: int,
        origins: tuple[str, ...] = (),
        endless: tuple[str, ...] = (),
        seconds: float = REQUEST_SECONDS,
        public_url: str | None = None,
    ) -> None:
        self._app, self._body_max, self._origins = app, body_max, origins
        self._endless, self._seconds, self._public_url = endless, seconds, public_url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        request_id = _request_id(headers.get("x-request-id"))
        began = time.perf_counter()
        scope = address_scope({**scope, "floodmark.request_id": request_id}, _split_later(scope), self._public_url)
        scope[OWN_PAGE] = is_own_page(scope)
        sender = _Sender(send, request_id, prefix_of(Request(scope)))
        if scope["method"] == "HEAD" and route_path(scope) not in self._endless:
            # The server leaves out the body.
            scope["method"] = "GET"
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                refusal = self._refusal(scope, headers)
                if refusal is None:
                    await self._run_bounded(_assume_json(scope, headers), receive, sender)
                else:
                    status, detail, hint = refusal
                    await problem(status, detail, request_id=request_id, hint=hint)(scope, receive, sender.send)
            finally:
                self._log(scope, sender, time.perf_counter() - began)
        return None

    async def _run_bounded(self, scope: Scope, receive: Receive, sender: "_Sender") -> None:
        limit = None if route_path(scope) in self._endless else self._seconds
        request_id = scope["floodmark.request_id"]
        try:
            async with asyncio.timeout(limit):
                await self._app(scope, _Bounded(receive, self._body_max), sender.send)
        except TimeoutError:
            if sender.status is not None:
                raise
            detail, hint = f"no answer within {self._seconds:g} s", "ask for less at once, or try again"
            answer = problem(503, detail, request_id=request_id, hint=hint, kind="too-slow")
            await answer(scope, receive, sender.send)
        except Exception as error:
            structlog.get_logger().exception("request failed", path=scope["path"], error=type(error).__name__)
            if sender.status is not None:
                raise
            hint = "the log of the server has details under this request_id; please report it"
            answer = problem(500, "something unexpected happened", request_id=request_id, hint=hint)
            await answer(scope, receive, sender.send)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str, str] | None:
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self._body_max:
            return _too_large(self._body_max)
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            return 400, "the address holds a NUL character", "leave it out: databases cannot store it"
        is_foreign = scope[OWN_PAGE] is False and headers.get("origin") not in self._origins
        if scope["method"] not in SAFE and is_foreign:
            # Otherwise any web page could change data here through the browsers of its visitors.
            return 403, "a web page of another origin may not change anything", "add its origin to API_CORS_ORIGINS"
        return None

    def _log(self, scope: Scope, sender: "_Sender", seconds: float) -> None:
        log = structlog.get_logger()
        tell = log.debug if scope["method"] in SAFE else log.info
        milliseconds = round(1000 * seconds, 1)
        tell("request", method=scope["method"], path=scope["path"], status=sender.status, ms=milliseconds)


class _Sender:
    """Sends a response with the common headers, and remembers its status."""

    def __init__(self, send: Send, request_id: str, prefix: str) -> None:
        self._send, self._request_id, self._prefix = send, request_id, prefix
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-ID"] = self._request_id
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            if headers.get("location", "").startswith(_JSON_ONLY):
                # Operations do not know under which prefix they are reached.
                headers["location"] = self._prefix + headers["location"]
        await self._send(message)


class _Bounded:
    """Limits the size of a body, also without Content-Length."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._most, self._taken = receive, most, 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._taken += len(message.get("body", b""))
        if self._taken > self._most:
            status, detail, _ = _too_large(self._most)
            raise HTTPException(status, detail)
        return message


def _assume_json(scope: Scope, headers: Headers) -> Scope:
    """Return the request with content type JSON if the sender, such as `curl -d`, did not set one.

    Not for browsers: a web page may send such a body anywhere without asking. A webhook may have any type.
    """
    given = headers.get("content-type", "").partition(";")[0].strip().lower()
    if (
        scope["method"] in SAFE
        or given not in _UNTYPED
        or not route_path(scope).startswith(_JSON_ONLY)
        or route_path(scope).startswith(_WEBHOOKS)
        or any(name.startswith(_BROWSER) for name in headers)
    ):
        return scope
    kept = [(name, value) for name, value in scope["headers"] if name.lower() != b"content-type"]
    return {**scope, "headers": [*kept, (b"content-type", b"application/json")]}


class EdgeRoute(Route):
    """A route that matches paths as `Edge` leaves them, where %2F and %25 are not decoded yet."""

    @cached_property
    def _beginning(self) -> str:
        """The part of its path before the first parameter."""
        return self.path.partition("{")[0]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match the path, and decode the parameters in it."""
        # Rules out nearly all of a hundred routes for little. Before it there may be the prefix of a proxy.
        if self._beginning not in scope["path"]:
            return Match.NONE, {}
        match, child = super().matches(scope)
        params = child.get("path_params")
        if params:
            child["path_params"] = {
                name: unquote(value) if isinstance(value, str) else value for name, value in params.items()
            }
        return match, child


def _too_large(most: int) -> tuple[int, str, str]:
    return 413, f"a request may have {most} bytes at most", "send less at once, or raise API_BODY_MAX"


def _request_id(given: str | None) -> str:
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given
    return secrets.token_hex(8)


def _split_later(scope: Scope) -> str:
    raw: bytes | None = scope.get("raw_path")
    if raw is None:
        return str(scope["path"]).replace("%", "%25")
    pieces = _KEPT.split(raw.partition(b"?")[0].decode("ascii", "replace"))
    return "".join(piece if at % 2 else unquote(piece) for at, piece in enumerate(pieces))
