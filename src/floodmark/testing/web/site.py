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
from typing import Any, Literal, TypeVar

from aiohttp import web
from msgspec import Struct, field

from .behaviours import Behaviour
from .serving import serve_app
from .writing import document

HTML = "text/html; charset=utf-8"
_BREATHE_SECONDS = 0.1
# aiohttp would say something of its own; this is taken away again.
_UNSAID = "x-floodmark/unsaid"

T = TypeVar("T")


class Page(Struct, kw_only=True):
    """The content of a path. It may be changed at any time: the next request gets the new content."""

    body: bytes
    content_type: str | None = HTML
    status: int = 200
    has_etag: bool = False
    """An ETag that changes with the body; asked with the right one, it answers 304."""
    last_modified: datetime | None = None
    encoding: Literal["gzip", "deflate"] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    cookies: tuple[str, ...] = ()
    """Whole Set-Cookie values."""

    @property
    def etag(self) -> str:
        """Return its ETag, if it has one."""
        return f'"{hashlib.blake2b(self.body, digest_size=8).hexdigest()}"'


class Seen(Struct, frozen=True, kw_only=True):
    """A recorded request. `at` is the time of the event loop, `inside` the number of running requests, including this
    one.
    """

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
        self.pages: dict[tuple[str | None, str], Page] = {}
        self.seen: list[Seen] = []
        """Every request, or as many as are to be `remembered`: then, now and then, the older half goes."""
        self.count = 0
        """How many there were."""
        self.missing: Behaviour | None = None
        """Answers what is not there; without it, a plain 404."""
        self._tls, self._remembered = tls, remembered
        self._troubles: dict[tuple[str | None, str], deque[tuple[Behaviour, float]]] = {}
        self._behaviours: dict[tuple[str | None, str], Behaviour] = {}
        self._inside = 0

    async def __aenter__(self) -> "Site":
        server = web.Application(client_max_size=64 * 1024 * 1024)
        server.router.add_route("*", "/{path:.*}", self._handle)
        server.on_response_prepare.append(_leave_unsaid)
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

    # What is there

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
    ) -> Page:
        """Put an HTML page at a path and replace its content. `options` are fields of `Page`."""
        made = document(title or f"Page {path}", text, links, head=head, body=body, language=language)
        return self.put(path, made, host=host, **options)

    def put(self, path: str, body: str | bytes, *, host: str | None = None, **options: Any) -> Page:
        """Put any content at a path. `options` are fields of `Page`."""
        page = Page(body=body.encode() if isinstance(body, str) else body, **options)
        self._behaviours.pop((host, path), None)
        self.pages[host, path] = page
        return page

    def robots(self, text: str, *, host: str | None = None) -> Page:
        """Put a robots.txt."""
        return self.put("/robots.txt", text, host=host, content_type="text/plain")

    def xml(self, path: str, text: str, *, host: str | None = None, **options: Any) -> Page:
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

    # Who asked

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

    # Answering

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self._inside += 1
        host = request.host.rpartition(":")[0] or request.host
        try:
            self.seen.append(
                Seen(
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
            # Whoever asked has left in the middle of the answer, as is to be expected of some answers.
            return web.Response()
        finally:
            self._inside -= 1

    async def _answer(self, request: web.Request, host: str) -> web.StreamResponse:
        for asked in (request.raw_path, request.path):
            for whose in (host, None):
                trouble = self._trouble(whose, asked)
                if trouble is not None:
                    return await trouble(request)
        for asked in (request.raw_path, request.path):
            for whose in (host, None):
                if (behaviour := _found(self._behaviours, whose, asked)) is not None:
                    return await behaviour(request)
                if (page := self.pages.get((whose, asked))) is not None:
                    return _response(page, request)
        if self.missing is not None:
            return await self.missing(request)
        return web.Response(status=404, text="not found")

    def _trouble(self, host: str | None, path: str) -> Behaviour | None:
        waiting = _found(self._troubles, host, path)
        if not waiting:
            return None
        behaviour, times = waiting.popleft()
        if times > 1:
            waiting.appendleft((behaviour, times - 1))
        return behaviour


def _found(among: Mapping[tuple[str | None, str], T], host: str | None, path: str) -> T | None:
    exact = among.get((host, path))
    if exact is not None:
        return exact
    return next(
        (
            value
            for (whose, pattern), value in among.items()
            if whose == host and pattern.endswith("*") and path.startswith(pattern[:-1])
        ),
        None,
    )


def _response(page: Page, request: web.Request) -> web.StreamResponse:
    headers = dict(page.headers)
    if page.has_etag:
        headers["ETag"] = page.etag
    if page.last_modified is not None:
        headers["Last-Modified"] = format_datetime(page.last_modified.astimezone(UTC), usegmt=True)
    if _is_known(page, request):
        return web.Response(status=304, headers=headers)
    body = page.body
    if page.encoding is not None:
        headers["Content-Encoding"] = page.encoding
        body = gzip.compress(body, mtime=0) if page.encoding == "gzip" else zlib.compress(body)
    headers["Content-Type"] = page.content_type or _UNSAID
    response = web.Response(status=page.status, body=body, headers=headers)
    for cookie in page.cookies:
        response.headers.add("Set-Cookie", cookie)
    return response


async def _leave_unsaid(_: web.Request, response: web.StreamResponse) -> None:
    if response.headers.get("Content-Type") == _UNSAID:
        del response.headers["Content-Type"]


def _is_known(page: Page, request: web.Request) -> bool:
    if page.status != 200:
        return False
    if page.has_etag and (known := request.headers.get("If-None-Match")) is not None:
        return page.etag in [each.strip().removeprefix("W/") for each in known.split(",")]
    since = request.headers.get("If-Modified-Since")
    if page.last_modified is None or since is None:
        return False
    return page.last_modified.replace(microsecond=0) <= parsedate_to_datetime(since)
