"""One request and its answer, bounded in every way: time, speed, redirects, headers, size on the wire and unpacked.

Whoever answers is not trusted, and may be chosen by someone who is not either. Nothing is kept from one request to
the next but open connections: no cookies, no proxy from the environment.
"""

import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from floodmark.errors import Permanent, SourceError, Transient
from floodmark.observability.events import Events, HttpRequested
from floodmark.security.masking import mask_text

from .guard import AddressRefused, Guard

if TYPE_CHECKING:
    # Heavy, and most processes send nothing.
    from multidict import CIMultiDictProxy
    from yarl import URL

    from .aiohttp_client import Sender

REDIRECTED = frozenset({301, 302, 303, 307, 308})
_FOR_GOOD = frozenset({301, 308})
# Sent to whoever was asked, never to whom they redirect.
_PRIVATE_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization"})

Follow = Callable[["URL", "URL"], None]
"""Looks at a redirect, from where to where, before it is followed; what it raises ends the request."""


class TooLarge(Permanent):
    """The answer is larger than it may be: its headers, its body, or what its body unpacks to."""


class TooSlow(Transient):
    """The answer did not come in time."""


class ResponseLimits(Struct, frozen=True, kw_only=True):
    """How much of whoever answers is borne."""

    redirects: int = 5
    header_bytes: int = 32 * 1024
    """Of all headers together."""
    body_bytes: int = 10 * 1024 * 1024
    """As it is sent."""
    unpacked_bytes: int = 20 * 1024 * 1024
    total: timedelta = timedelta(seconds=60)
    """From beginning to end, redirects included."""
    head: timedelta = timedelta(seconds=60)
    """Until the headers of an answer are there."""
    grace: timedelta = timedelta(seconds=10)
    """A body may take so long, whatever its size; then it has to keep the pace."""
    slowest: int = 1024
    """Bytes a second."""


class HttpAnswer(Struct, frozen=True, kw_only=True):
    """What came back, from the end of the redirects."""

    status: int
    url: str
    headers: "CIMultiDictProxy[str]"
    """By name in any spelling; `getall` tells those that come several times."""
    body: bytes
    """Unpacked."""
    redirects: tuple[str, ...] = ()
    """The addresses that led on, oldest first."""
    wire_bytes: int = 0
    seconds: float = 0.0
    is_permanent_redirect: bool = False
    """Whether it was redirected, and every step said: for good."""

    @property
    def media_type(self) -> str:
        """As in `text/html`; empty if it is not said."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def charset(self) -> str | None:
        """What the headers say of it, in small letters. It need not be true, nor known to Python."""
        for parameter in self.headers.get("Content-Type", "").split(";")[1:]:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "charset":
                return value.strip().strip("\"'").lower() or None
        return None


class Http:
    """Sends requests. One for each process; `async with`, or `close` in the end.

    `AddressRefused`: the guard says no. `TooLarge`, `TooSlow`: beyond the limits. `Transient`: nobody is there, or the
    connection was lost. `Permanent`: a bad redirect or certificate, or no HTTP at all. Every status is an answer.
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
    ) -> None:
        self.guard, self.limits, self.resolve, self.lookup = guard, limits or ResponseLimits(), resolve or {}, lookup
        self._user_agent, self._events = user_agent, events or Events()
        self._sender: Sender | None = None
        self._is_closed = False

    async def __aenter__(self) -> "Http":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Requests under way fail."""
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
        """GET, and follow redirects: all, none, or those that `follow` lets pass."""
        limits = limits or self.limits
        until = self._opened().now() + limits.total.total_seconds()

        async def one(where: "URL", headers: Mapping[str, str] | None) -> HttpAnswer:
            return await self.get_checked(where, headers=headers, limits=limits, until=until)

        return await followed(self.check, one, url, headers=headers, most=limits.redirects, follow=follow)

    async def get_checked(
        self,
        url: "URL",
        *,
        headers: Mapping[str, str] | None,
        limits: ResponseLimits | None = None,
        until: float | None = None,
    ) -> HttpAnswer:
        """One GET to what `check` has let pass; a redirect is an answer. `until` is by the clock of the loop."""
        limits, sender = limits or self.limits, self._opened()
        until = sender.now() + limits.total.total_seconds() if until is None else until
        return await self._counted(sender.send("GET", url, headers=headers, limits=limits, until=until))

    async def post(
        self,
        url: "str | URL",
        *,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        limits: ResponseLimits | None = None,
    ) -> HttpAnswer:
        """POST. A redirect is an answer and is not followed: nobody may send our message elsewhere."""
        return await self._send("POST", url, body, headers, limits)

    async def put(
        self,
        url: "str | URL",
        *,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        limits: ResponseLimits | None = None,
    ) -> HttpAnswer:
        """PUT; as `post`."""
        return await self._send("PUT", url, body, headers, limits)

    async def delete(
        self, url: "str | URL", *, headers: Mapping[str, str] | None = None, limits: ResponseLimits | None = None
    ) -> HttpAnswer:
        """DELETE; as `post`."""
        return await self._send("DELETE", url, None, headers, limits)

    def check(self, url: "str | URL") -> "URL":
        """As the guard reads it; what it refuses is counted."""
        try:
            return self.guard.check_url(url)
        except AddressRefused:
            self._events.emit(HttpRequested("refused"))
            raise

    async def _send(
        self,
        method: str,
        url: "str | URL",
        body: bytes | None,
        headers: Mapping[str, str] | None,
        limits: ResponseLimits | None,
    ) -> HttpAnswer:
        limits, sender = limits or self.limits, self._opened()
        until, where = sender.now() + limits.total.total_seconds(), self.check(url)
        return await self._counted(sender.send(method, where, body=body, headers=headers, limits=limits, until=until))

    async def _counted(self, sending: Awaitable[HttpAnswer]) -> HttpAnswer:
        try:
            answer = await sending
        except SourceError as error:
            self._events.emit(HttpRequested("refused" if isinstance(error, AddressRefused) else "failed"))
            raise
        self._events.emit(HttpRequested(f"{answer.status // 100}xx"))
        return answer

    def _opened(self) -> "Sender":
        if self._is_closed:
            raise Transient("this process is leaving, and asks for nothing more")
        if self._sender is None:
            from .aiohttp_client import Sender  # noqa: PLC0415 - heavy

            self._sender = Sender(self.guard, user_agent=self._user_agent, resolve=self.resolve, lookup=self.lookup)
        return self._sender


async def followed(
    check: "Callable[[str | URL], URL]",
    one: "Callable[[URL, Mapping[str, str] | None], Awaitable[HttpAnswer]]",
    url: "str | URL",
    *,
    headers: Mapping[str, str] | None,
    most: int,
    follow: bool | Follow,
) -> HttpAnswer:
    """The answer at the end of the redirects; `one` makes each request to what `check` has let pass."""
    where = check(url).with_fragment(None)
    passed: list[str] = []
    for_good = True
    while True:
        answer = await one(where, headers)
        to = redirect_of(answer, where) if follow is not False and answer.status in REDIRECTED else None
        if to is None:
            break
        passed.append(answer.url)
        for_good = for_good and answer.status in _FOR_GOOD
        if str(to) in passed:
            raise Permanent(f"{where.host} redirects in a circle", hint=_look_at(passed[0]))
        if len(passed) > most:
            raise Permanent(f"{where.host} redirects more than {most} times", hint=_look_at(passed[0]))
        check(to)
        if callable(follow):
            follow(where, to)
        if headers and not _may_know(where, to):
            headers = {name: value for name, value in headers.items() if name.lower() not in _PRIVATE_HEADERS}
        where = to
    if not passed:
        return answer
    return replace(answer, redirects=tuple(passed), is_permanent_redirect=for_good)


def _look_at(url: str) -> str:
    # Addresses hold secrets, and what is asked for may not be meant for a shell.
    return f"look at it: curl -sIL {shlex.quote(mask_text(url))}"


def _may_know(where: "URL", to: "URL") -> bool:
    """Whether the server that is redirected to may be told what was meant for this one."""
    is_safer = (where.host, where.scheme, where.port) == (to.host, "http", 80) and (to.scheme, to.port) == (
        "https",
        443,
    )
    return is_safer or to.origin() == where.origin()


def redirect_of(answer: HttpAnswer, where: "URL") -> "URL | None":
    """Where an answer leads on to; None if it does not."""
    from yarl import URL  # noqa: PLC0415 - heavy

    location = answer.headers.get("Location", "").strip()
    if answer.status not in REDIRECTED or not location:
        return None
    try:
        return where.join(URL(location)).with_fragment(None)
    except ValueError as error:
        raise Permanent(f"{where.host} redirects to what is no address: {error}") from None
