"""HTTP requests with limits on time, speed, redirects, headers, and size before and after decompression.

Neither the server nor the person who chose its URL is trusted. Requests share nothing but open connections: no
cookies, no proxy from the environment.
"""

import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from floodmark.errors import Permanent, SourceError, Transient
from floodmark.model.proxies import ProxyAddress
from floodmark.observability.events import Events, HttpRequested
from floodmark.security.masking import mask_text

from .guard import AddressRefused, Guard

if TYPE_CHECKING:
    # Slow to import, and most processes send nothing.
    from multidict import CIMultiDictProxy
    from yarl import URL

    from .aiohttp_client import Sender

REDIRECTED = frozenset({301, 302, 303, 307, 308})
_PERMANENT = frozenset({301, 308})
# Removed when a redirect leads to another origin.
_PRIVATE_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization"})

Follow = Callable[["URL", "URL"], None]
"""Checks a redirect, given its source and target, before it is followed; an error it raises ends the request."""


class TooLarge(Permanent):
    """The headers, the body or the decompressed body exceed their limit."""


class TooSlow(Transient):
    """The response did not arrive in time."""


class ResponseLimits(Struct, frozen=True, kw_only=True):
    """Limits of one response."""

    redirects: int = 5
    header_bytes: int = 32 * 1024
    """Total size of all headers."""
    body_bytes: int = 10 * 1024 * 1024
    """Size as sent, before decompression."""
    unpacked_bytes: int = 20 * 1024 * 1024
    total: timedelta = timedelta(seconds=60)
    """Longest time for the whole request, redirects included."""
    head: timedelta = timedelta(seconds=60)
    """Longest time until the headers have arrived."""
    grace: timedelta = timedelta(seconds=10)
    """Time that any body may take; after it `slowest` applies."""
    slowest: int = 1024
    """Lowest accepted speed of a body, in bytes per second."""


class HttpAnswer(Struct, frozen=True, kw_only=True):
    """The response at the end of the redirects."""

    status: int
    url: str
    headers: "CIMultiDictProxy[str]"
    """Case-insensitive; `getall` returns all values of a repeated header."""
    body: bytes
    """Decompressed."""
    redirects: tuple[str, ...] = ()
    """The URLs that redirected, oldest first."""
    wire_bytes: int = 0
    seconds: float = 0.0
    is_permanent_redirect: bool = False
    """Whether there were redirects, all of them permanent (301 or 308)."""

    @property
    def media_type(self) -> str:
        """The media type, such as `text/html`; empty if the server does not send one."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def charset(self) -> str | None:
        """The charset that the headers declare, in lower case. It may be wrong or unknown to Python."""
        for parameter in self.headers.get("Content-Type", "").split(";")[1:]:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "charset":
                return value.strip().strip("\"'").lower() or None
        return None


class Http:
    """Sends requests. Use one per process, with `async with` or `close`.

    Raises `AddressRefused` when the guard refuses, `TooLarge` and `TooSlow` beyond the limits, `Transient` when the
    connection fails, `Permanent` for a bad redirect or certificate or invalid HTTP. It returns responses of any status.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        user_agent: str,
        limits: ResponseLimits | None = None,
        resolve: Mapping[str, Sequence[str]] | None = None,
        lookup: Callable[[str], Awaitable[Sequence[str]]] | None = None,
        events: Events | None = None,
        proxy: ProxyAddress | None = None,
        proxy_guard: Guard | None = None,
    ) -> None:
        self._proxy, self._proxy_guard = proxy, proxy_guard
        self.guard, self.limits, self.resolve, self.lookup = guard, limits or ResponseLimits(), resolve or {}, lookup
        self._user_agent, self._events = user_agent, events or Events()
        self._sender: Sender | None = None
        self._is_closed = False

    async def __aenter__(self) -> "Http":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def through(self, proxy: ProxyAddress, *, is_trusted: bool = False) -> "Http":
        """Return a client that connects through a proxy; the caller closes it.

        The guard checks the address of the proxy as it checks targets, unless the operator has chosen it.
        """
        return Http(
            self.guard,
            user_agent=self._user_agent,
            limits=self.limits,
            resolve=self.resolve,
            lookup=self.lookup,
            events=self._events,
            proxy=proxy,
            proxy_guard=self.guard.also_allowing(proxy.host) if is_trusted else self.guard,
        )

    async def close(self) -> None:
        """Close all connections. Running requests fail."""
        self._is_closed = True
        if self._sender is not None:
            sender, self._sender = self._sender, None
            await sender.close()

    async def get(
        self,
        url: "str | URL",
        *,
        headers: Mapping[str, str] | None = None,
        limits: ResponseLimits | None = None,
        follow: bool | Follow = True,
    ) -> HttpAnswer:
        """Send a GET and follow redirects: all, none, or those for which `follow` raises nothing."""
        limits = limits or self.limits
        until = self._open_sender().now() + limits.total.total_seconds()

        async def get_one(where: "URL", headers: Mapping[str, str] | None) -> HttpAnswer:
            return await self.get_checked(where, headers=headers, limits=limits, until=until)

        return await follow_redirects(self.check, get_one, url, headers=headers, limit=limits.redirects, follow=follow)

    async def get_checked(
        self,
        url: "URL",
        *,
        headers: Mapping[str, str] | None,
        limits: ResponseLimits | None = None,
        until: float | None = None,
    ) -> HttpAnswer:
        """Send one GET to a URL that `check` returned; follow no redirect. `until` is a time of the event loop."""
        limits, sender = limits or self.limits, self._open_sender()
        until = sender.now() + limits.total.total_seconds() if until is None else until
        return await self._count(sender.send("GET", url, headers=headers, limits=limits, until=until))

    async def post(
        self,
        url: "str | URL",
        *,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        limits: ResponseLimits | None = None,
    ) -> HttpAnswer:
        """Send a POST. Redirects are not followed, so that no server can redirect the message elsewhere."""
        return await self.send("POST", url, body=body, headers=headers, limits=limits)

    async def send(
        self,
        method: str,
        url: "str | URL",
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        limits: ResponseLimits | None = None,
    ) -> HttpAnswer:
        """Send a request of any method, without following redirects."""
        limits, sender = limits or self.limits, self._open_sender()
        until, where = sender.now() + limits.total.total_seconds(), self.check(url)
        return await self._count(sender.send(method, where, body=body, headers=headers, limits=limits, until=until))

    def check(self, url: "str | URL") -> "URL":
        """Return the URL as the guard parses it; count refused ones."""
        try:
            return self.guard.check_url(url)
        except AddressRefused:
            self._events.emit(HttpRequested("refused"))
            raise

    async def _count(self, sending: Awaitable[HttpAnswer]) -> HttpAnswer:
        try:
            answer = await sending
        except SourceError as error:
            self._events.emit(HttpRequested("refused" if isinstance(error, AddressRefused) else "failed"))
            raise
        self._events.emit(HttpRequested(f"{answer.status // 100}xx"))
        return answer

    def _open_sender(self) -> "Sender":
        if self._is_closed:
            raise Transient("this process is shutting down and sends no more requests")
        if self._sender is None:
            from .aiohttp_client import Sender  # noqa: PLC0415 - slow to import

            self._sender = Sender(
                self.guard,
                user_agent=self._user_agent,
                resolve=self.resolve,
                lookup=self.lookup,
                proxy=self._proxy,
                proxy_guard=self._proxy_guard,
            )
        return self._sender


async def follow_redirects(
    check: "Callable[[str | URL], URL]",
    get_one: "Callable[[URL, Mapping[str, str] | None], Awaitable[HttpAnswer]]",
    url: "str | URL",
    *,
    headers: Mapping[str, str] | None,
    limit: int,
    follow: bool | Follow,
) -> HttpAnswer:
    """Return the response at the end of the redirects. `get_one` requests each URL after `check` has accepted it."""
    where = check(url).with_fragment(None)
    passed: list[str] = []
    is_permanent = True
    while True:
        answer = await get_one(where, headers)
        to = _redirect_target(answer, where) if follow is not False and answer.status in REDIRECTED else None
        if to is None:
            break
        passed.append(answer.url)
        is_permanent = is_permanent and answer.status in _PERMANENT
        if str(to) in passed:
            raise Permanent(f"{where.host} redirects in a loop", hint=_curl_hint(passed[0]))
        if len(passed) > limit:
            raise Permanent(f"{where.host} redirects more than {limit} times", hint=_curl_hint(passed[0]))
        check(to)
        if callable(follow):
            follow(where, to)
        if headers and not _may_get_private_headers(where, to):
            headers = {name: value for name, value in headers.items() if name.lower() not in _PRIVATE_HEADERS}
        where = to
    if not passed:
        return answer
    return replace(answer, redirects=tuple(passed), is_permanent_redirect=is_permanent)


def _curl_hint(url: str) -> str:
    # URLs may hold secrets and characters that a shell interprets.
    return f"see the redirects: curl -sIL {shlex.quote(mask_text(url))}"


def _may_get_private_headers(where: "URL", to: "URL") -> bool:
    is_upgrade = (where.scheme, where.port, to.scheme, to.port) == ("http", 80, "https", 443) and where.host == to.host
    return is_upgrade or to.origin() == where.origin()


def _redirect_target(answer: HttpAnswer, where: "URL") -> "URL | None":
    from yarl import URL  # noqa: PLC0415 - slow to import

    location = answer.headers.get("Location", "").strip()
    if answer.status not in REDIRECTED or not location:
        return None
    try:
        return where.join(URL(location)).with_fragment(None)
    except ValueError as error:
        raise Permanent(f"{where.host} redirects to an invalid URL: {error}") from None
