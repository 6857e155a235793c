"""The server: pages by host and path, special behaviours, and a record of all requests."""

import asyncio
import gzip
import hashlib
import ssl
import zlib
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any, Literal, Self, TypeVar

from aiohttp import web
from msgspec import Struct, field

from .behaviours import Behaviour
from .documents import document
from .serving import serve_app

HTML = "text/html; charset=utf-8"
_BREATHE_SECONDS = 0.1
# Without a content type aiohttp would send its own; this one is removed before the response is sent.
_NO_CONTENT_TYPE = "x-floodmark/none"

T = TypeVar("T")


class ServedPage(Struct, kw_only=True):
    """The content of a path. It may be changed at any time: the next request gets the new content."""

    body: bytes
    content_type: str | None = HTML
    status: int = 200
    has_etag: bool = False
    """Send an ETag that changes with the body, and respond with 304 if a request contains it."""
    last_modified: datetime | None = None
    encoding: Literal["gzip", "deflate"] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    cookies: tuple[str, ...] = ()
    """Whole Set-Cookie values."""

    @property
    def etag(self) -> str:
        """Return its ETag, if it has one."""
        return f'"{hashlib.blake2b(self.body, digest_size=8).hexdigest()}"'


class SeenRequest(Struct, frozen=True, kw_only=True):
    """A recorded request at the loop time `at`; `inside` is the number of running requests, including this one."""

    method: str
    host: str
    path: str
    """With its query, as it was sent."""
    headers: Mapping[str, str]
    body: bytes
    at: float
    inside: int


class Site:
    """A local web site: `async with Site() as site` listens on 127.0.0.1 for every host name.

    Paths apply to all hosts, unless a host is given.
    """

    def __init__(self, *, port: int = 0, tls: ssl.SSLContext | None = None, remembered: int | None = None) -> None:
        self.port = port
        self.pages: dict[tuple[str | None, str], ServedPage] = {}
        self.seen: list[SeenRequest] = []
        """The requests; at most the last `remembered` ones, if that is set."""
        self.count = 0
        """The number of all requests."""
        self.missing: Behaviour | None = None
        """The response for unknown paths; without it, a plain 404."""
        self._tls, self._remembered = tls, remembered
        self._troubles: dict[tuple[str | None, str], deque[tuple[Behaviour, float]]] = {}
        self._behaviours: dict[tuple[str | None, str], Behaviour] = {}
        self._inside = 0

    async def __aenter__(self) -> Self:
        server = web.Application(client_max_size=64 * 1024 * 1024)
        server.router.add_route("*", "/{path:.*}", self._handle)
        server.on_response_prepare.append(_remove_content_type)
        async with AsyncExitStack() as opening:
            self.port = await opening.enter_async_context(
                serve_app(
                    server,
                    port=self.port,
                    tls=self._tls,
                    access_log=None,
                    shutdown_timeout=_BREATHE_SECONDS,
                    handler_cancellation=True,
                    max_line_size=65536,
                )
            )
            self._serving = opening.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._serving.aclose()

    @property
    def url(self) -> str:
        """Return its URL without a path."""
        return self.at("127.0.0.1")

    def at(self, host: str, path: str = "") -> str:
        """Return the URL of a path under a host name, which HTTP_RESOLVE must map to this site."""
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}{path}"

    @staticmethod
    def settings(*hosts: str) -> dict[str, str]:
        """Return the settings that map and allow these hosts; without hosts, the settings that allow 127.0.0.1."""
        if not hosts:
            return {"http_allow_hosts": "127.0.0.1"}
        return {
            "http_allow_hosts": ",".join(hosts),
            "http_resolve": ",".join(f"{host}=127.0.0.1" for host in hosts),
        }

    # Content

    def page(
        self,
        path: str,
        text: str = "",
        *,
        title: str | None = None,
        links: Iterable[str] = (),
        head: str = "",
        body: str = "",
        language: str = "en",
        host: str | None = None,
        **options: Any,
    ) -> ServedPage:
        """Put an HTML page at a path and replace its content. `options` are fields of `ServedPage`."""
        made = document(title or f"Page {path}", text, links, head=head, body=body, language=language)
        return self.put(path, made, host=host, **options)

    def put(self, path: str, body: str | bytes, *, host: str | None = None, **options: Any) -> ServedPage:
        """Put any content at a path. `options` are fields of `ServedPage`."""
        page = ServedPage(body=body.encode() if isinstance(body, str) else body, **options)
        self._behaviours.pop((host, path), None)
        self.pages[host, path] = page
        return page

    def robots(self, text: str, *, host: str | None = None) -> ServedPage:
        """Put a robots.txt."""
        return self.put("/robots.txt", text, host=host, content_type="text/plain")

    def xml(self, path: str, text: str, *, host: str | None = None, **options: Any) -> ServedPage:
        """Put a sitemap or a feed; content at a path that ends in .gz is compressed."""
        if path.endswith(".gz"):
            packed = gzip.compress(text.encode(), mtime=0)
            return self.put(path, packed, host=host, content_type="application/gzip", **options)
        return self.put(path, text, host=host, **{"content_type": "application/xml", **options})

    def remove(self, path: str, *, host: str | None = None) -> None:
        """Remove the content of a path."""
        self.pages.pop((host, path), None)
        self._behaviours.pop((host, path), None)

    def always(self, path: str, behaviour: Behaviour, *, host: str | None = None) -> None:
        """Use this behaviour at this path from now on. A path that ends in `*` matches all paths with that prefix."""
        self._behaviours[host, path] = behaviour

    def trouble(self, path: str, *behaviours: Behaviour, times: float = 1, host: str | None = None) -> None:
        """Use these behaviours for the next requests, each this number of times. `*` as in `always`."""
        self._troubles.setdefault((host, path), deque()).extend((each, times) for each in behaviours)

    def calm(self) -> None:
        """Remove all remaining behaviours of `trouble`."""
        self._troubles.clear()

    # Recorded requests

    def paths(self, *, host: str | None = None) -> list[str]:
        """Return the requested paths in order."""
        return [seen.path for seen in self.seen if host is None or seen.host == host]

    @property
    def most_at_once(self) -> int:
        """Return the maximum number of parallel requests."""
        return max((seen.inside for seen in self.seen), default=0)

    def forget(self) -> None:
        """Clear the recorded requests."""
        self.seen = []

    # Responses

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self._inside += 1
        host = request.host.rpartition(":")[0] or request.host
        try:
            self.seen.append(
                SeenRequest(
                    method=request.method,
                    host=host,
                    path=request.raw_path,
                    headers=request.headers,
                    body=await request.read() if request.can_read_body else b"",
                    at=asyncio.get_running_loop().time(),
                    inside=self._inside,
                )
            )
            self.count += 1
            if self._remembered is not None and len(self.seen) > self._remembered:
                del self.seen[: self._remembered // 2]
            return await self._answer(request, host)
        except ConnectionResetError:
            # The client has disconnected during the response, as some behaviours make it do.
            return web.Response()
        finally:
            self._inside -= 1

    async def _answer(self, request: web.Request, host: str) -> web.StreamResponse:
        places = [(of, path) for path in (request.raw_path, request.path) for of in (host, None)]
        for place in places:
            if (trouble := self._trouble(*place)) is not None:
                return await trouble(request)
        for place in places:
            if (behaviour := _find(self._behaviours, *place)) is not None:
                return await behaviour(request)
            if (page := self.pages.get(place)) is not None:
                return _response(page, request)
        if self.missing is not None:
            return await self.missing(request)
        return web.Response(status=404, text="not found")

    def _trouble(self, host: str | None, path: str) -> Behaviour | None:
        waiting = _find(self._troubles, host, path)
        if not waiting:
            return None
        behaviour, times = waiting.popleft()
        if times > 1:
            waiting.appendleft((behaviour, times - 1))
        return behaviour


def _find(among: Mapping[tuple[str | None, str], T], host: str | None, path: str) -> T | None:
    if (exact := among.get((host, path))) is not None:
        return exact
    prefixes = ((pattern[:-1], value) for (of, pattern), value in among.items() if of == host and pattern[-1:] == "*")
    return next((value for prefix, value in prefixes if path.startswith(prefix)), None)


def _response(page: ServedPage, request: web.Request) -> web.StreamResponse:
    headers = dict(page.headers)
    if page.has_etag:
        headers["ETag"] = page.etag
    if page.last_modified is not None:
        headers["Last-Modified"] = format_datetime(page.last_modified.astimezone(UTC), usegmt=True)
    if _is_unmodified(page, request):
        return web.Response(status=304, headers=headers)
    body = page.body
    if page.encoding is not None:
        headers["Content-Encoding"] = page.encoding
        body = gzip.compress(body, mtime=0) if page.encoding == "gzip" else zlib.compress(body)
    headers["Content-Type"] = page.content_type or _NO_CONTENT_TYPE
    response = web.Response(status=page.status, body=body, headers=headers)
    for cookie in page.cookies:
        response.headers.add("Set-Cookie", cookie)
    return response


async def _remove_content_type(_: web.Request, response: web.StreamResponse) -> None:
    if response.headers.get("Content-Type") == _NO_CONTENT_TYPE:
        del response.headers["Content-Type"]


def _is_unmodified(page: ServedPage, request: web.Request) -> bool:
    if page.status != 200:
        return False
    if page.has_etag and (known := request.headers.get("If-None-Match")) is not None:
        return page.etag in [each.strip().removeprefix("W/") for each in known.split(",")]
    since = request.headers.get("If-Modified-Since")
    if page.last_modified is None or since is None:
        return False
    return page.last_modified.replace(microsecond=0) <= parsedate_to_datetime(since)
