"""Who may do what: tokens, the trust in this machine while there are none, and a limit on guessing.

With a token     what its role allows, from anywhere.
Without one      everything, from this machine, as long as there has never been a token. What that means, `is_local`
                 says: neither a web page that points its own name at us nor a visitor behind a proxy is this machine.
"""

import asyncio
import ipaddress
import math
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar
from urllib.parse import urlsplit

import structlog
from fastapi import FastAPI, Request
from sqlalchemy.exc import DBAPIError

from floodmark.errors import InvalidInput
from floodmark.model.audit import Actor
from floodmark.model.tokens import Role, Visitor, is_enough
from floodmark.operations.stored_tokens import USE_NOTED_EVERY, StoredToken, Tokens, id_in
from floodmark.wiring.resources import Resources

from .problems import HttpError, request_id_of
from .routing import show_secrets

LOCAL, ANYONE = "local", "anonymous"
# What is known of a token is believed for this long: revoked elsewhere, it is refused here within a second.
KNOWN_FOR_SECONDS = 0.5
FAILURES_ALLOWED = 10
FAILURES_WITHIN_SECONDS = 60.0
# Addresses, and tokens, that are remembered; those that were quiet for longest are forgotten first.
MOST_REMEMBERED = 4096

_HOW_TO_ADD = "floodmark tokens add NAME --role ROLE"
_SEND_ONE = f"send it as `Authorization: Bearer fm_...`; on the server this makes one: {_HOW_TO_ADD}"
_CHALLENGE = 'Bearer realm="floodmark"'
# Any of them says that somebody else stands behind the address we see.
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")

T = TypeVar("T")


class Access:
    """Lets visitors in. One for each process that serves the API; `now` counts seconds."""

    def __init__(self, resources: Resources, now: Callable[[], float] = time.monotonic) -> None:
        self._tokens, self._now = Tokens(resources.database, resources.clock), now
        self._is_public = resources.settings.api_public_without_token
        self._failures = Failures(now)
        self._known = Recent[StoredToken](now, KNOWN_FOR_SECONDS)
        self._open = Recent[bool](now, KNOWN_FOR_SECONDS)
        self._noted = Recent[bool](now, USE_NOTED_EVERY.total_seconds())

    async def admit(self, request: Request, role: Role | None) -> Actor:
        """Who asks, if they may what `role` may; else 401, 403 or 429. An answer without end asks again as it goes."""
        visitor = await self.visitor(request)
        if role is not None and not is_enough(visitor.role, role):
            raise HttpError(
                403,
                f"this needs the role {role}, and {visitor.who} has the role {visitor.role}",
                hint=f"use a token with that role: floodmark tokens add NAME --role {role}",
            )
        show_secrets(to_admin=visitor.role == "admin")
        request.scope["floodmark.role"] = visitor.role
        return Actor(who=visitor.who, via="api", request_id=request_id_of(request))

    async def visitor(self, request: Request) -> Visitor:
        """Who asks; 401 if that cannot be told, 429 for a wrong token after too many wrong ones from there."""
        given = request.headers.get("authorization")
        if given is None:
            return await self._without_token(request)
        scheme, _, text = given.partition(" ")
        if scheme.lower() != "bearer":
            raise _unknown("only tokens are taken, and this is something else")
        return await self._with_token(text.strip(), address_of(request))

    def forget(self) -> None:
        """Look everything up anew: this process has just changed it."""
        self._known.clear()
        self._open.clear()

    async def _without_token(self, request: Request) -> Visitor:
        is_near = is_local(request)
        if (is_near or self._is_public) and await self._never_had_tokens():
            return Visitor(who=LOCAL if is_near else ANYONE, role="admin")
        raise _unknown("a token is needed")

    async def _never_had_tokens(self) -> bool:
        known = self._open.get("")
        return self._open.put("", await self._tokens.is_empty()) if known is None else known

    async def _with_token(self, text: str, address: str) -> Visitor:
        # The token first, whatever came from this address before: others who guess behind the same proxy must not
        # shut out someone with a right one. Only wrong tokens are slowed down; 256 bits cannot be guessed anyway.
        token = await self._found(text)
        trouble = _trouble(token, text)
        if token is None or trouble is not None:
            raise self._refused(address, trouble or "unknown", token)
        await self._note_use(token)
        return Visitor(who=token.name, role=token.role)

    async def _found(self, text: str) -> StoredToken | None:
        token_id = id_in(text)
        if token_id is None:
            return None
        known = self._known.get(token_id)
        if known is not None:
            return known
        found = await self._tokens.find(token_id)
        return None if found is None else self._known.put(token_id, found)

    def _refused(self, address: str, trouble: str, token: StoredToken | None) -> HttpError:
        seconds = self._failures.wait(address)
        if seconds:
            return _too_many(seconds)
        self._failures.add(address)
        is_theirs = token is not None and trouble in ("expired", "revoked")
        who = token.name if token is not None and is_theirs else None
        whose = {} if who is None else {"who": who}
        structlog.get_logger().warning("token refused", address=address, reason=trouble, **whose)
        if who is None:
            return _unknown("this token is not known here")
        was = "has expired" if trouble == "expired" else "was revoked"
        return _unknown(f"the token {who} {was}")

    async def _note_use(self, token: StoredToken) -> None:
        if not token.use_is_due or self._noted.get(token.token_id):
            return
        self._noted.put(token.token_id, True)
        try:
            await self._tokens.note_use(token.token_id)
        except (DBAPIError, OSError) as error:
            # Whoever only reads must not fail because nothing can be written.
            structlog.get_logger().warning("use not noted", who=token.name, error=type(error).__name__)


def _trouble(token: StoredToken | None, text: str) -> str | None:
    if token is None:
        return "unknown" if id_in(text) else "malformed"
    if not token.fits(text):
        return "wrong"
    return None if token.state == "active" else token.state


def _unknown(detail: str) -> HttpError:
    return HttpError(401, detail, hint=_SEND_ONE, headers={"WWW-Authenticate": _CHALLENGE})


def _too_many(seconds: float) -> HttpError:
    wait = math.ceil(seconds)
    return HttpError(
        429,
        f"too many tokens from this address were wrong, and this one is wrong too; try again in {wait} s",
        hint=f"wait, and check the token; {_HOW_TO_ADD} makes another",
        headers={"Retry-After": str(wait)},
    )


# What is remembered


class Recent(Generic[T]):
    """Values that are believed for some seconds; a bounded number of them."""

    def __init__(self, now: Callable[[], float], seconds: float, most: int = MOST_REMEMBERED) -> None:
        self._now, self._seconds, self._most = now, seconds, most
        self._held: OrderedDict[str, tuple[float, T]] = OrderedDict()

    def get(self, key: str) -> T | None:
        """The value, unless it is too old."""
        found = self._held.get(key)
        return None if found is None or self._now() - found[0] >= self._seconds else found[1]

    def put(self, key: str, value: T) -> T:
        """Remember a value, and forget the oldest if there are too many."""
        self._held[key] = (self._now(), value)
        self._held.move_to_end(key)
        if len(self._held) > self._most:
            self._held.popitem(last=False)
        return value

    def clear(self) -> None:
        """Forget all of them."""
        self._held.clear()

    def __len__(self) -> int:
        return len(self._held)


class Failures:
    """Counts wrong tokens by address: after ten in a minute, further wrong ones are answered with 429 for a while."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._recent = now, Recent[deque[float]](now, FAILURES_WITHIN_SECONDS)

    def add(self, address: str) -> None:
        """One more."""
        at = self._recent.get(address) or deque(maxlen=FAILURES_ALLOWED)
        at.append(self._now())
        self._recent.put(address, at)

    def wait(self, address: str) -> float:
        """Seconds until a wrong token from there is answered with 401 again; 0 for now."""
        at = self._recent.get(address)
        if at is None or len(at) < FAILURES_ALLOWED:
            return 0.0
        return max(0.0, at[0] + FAILURES_WITHIN_SECONDS - self._now())

    def __len__(self) -> int:
        return len(self._recent)


# Where a request comes from


def is_local(request: Request) -> bool:
    """Whether it was made on this machine, for this machine, and not passed on by anyone.

    The name it asks for counts too: a web page can let its own name point here, but then that name is in `Host`.
    """
    if any(name in request.headers for name in _FORWARDED):
        return False
    return _is_here(request.client.host if request.client else "") and _is_here(_host(request))


def is_private(request: Request) -> bool:
    """Whether nobody could read it on its way: it came by https, as a proxy tells us, or never left this machine."""
    told = request.headers.get("x-forwarded-proto")
    if told is not None:
        return told.partition(",")[0].strip().lower() == "https"
    return request.url.scheme == "https" or _is_here(request.client.host if request.client else "")


def address_of(request: Request) -> str:
    """Whom to blame. Of IPv6 the network: one customer has as many addresses in it as they like."""
    host = request.client.host if request.client else ""
    address = _ip(host)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address or "unknown")


def _host(request: Request) -> str:
    try:
        return urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def _is_here(host: str) -> bool:
    address = _ip(host)
    return host == "localhost" if address is None else address.is_loopback


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


# For routes and for whoever starts the server


def resources_of(request: Request) -> Resources:
    """Return the open resources of the process that serves a request."""
    found = request.app.state.resources
    assert isinstance(found, Resources)
    return found


def access_of(app: FastAPI) -> Access:
    """The access of the process that serves this application."""
    found = getattr(app.state, "access", None)
    if found is None:
        found = app.state.access = Access(app.state.resources)
    assert isinstance(found, Access)
    return found


def require(role: Role | None, *, unless_local: bool = False) -> Callable[[Request], Awaitable[Actor]]:
    """A dependency: who asks. Refuses those who may not do what `role` may.

    With `unless_local` this machine may always, also when there are tokens: for health and metrics.
    """

    async def actor(request: Request) -> Actor:
        if unless_local and is_local(request):
            return Actor(who=LOCAL, via="api", request_id=request_id_of(request))
        return await access_of(request.app).admit(request, role)

    actor.__name__ = f"require_{role or 'any_role'}"
    return actor


async def require_token_to_listen(resources: Resources, host: str) -> None:
    """Refuse to serve the API to others while nobody needs a token, unless API_PUBLIC_WITHOUT_TOKEN says so."""
    if resources.settings.api_public_without_token or await _is_loopback(host):
        return
    if not await Tokens(resources.database, resources.clock).has_active():
        raise InvalidInput(
            f"the API is not served on {host or 'every address'} without a token: others can reach it there",
            hint="add one with: floodmark tokens add NAME --role admin; or serve this machine only: "
            "--set HOST=127.0.0.1; or let everyone do everything: --set API_PUBLIC_WITHOUT_TOKEN=true",
        )


async def _is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address. A name is what it stands for; one that stands for nothing fails
    when it is listened on."""
    if not host or _ip(host) is not None:
        return _is_here(host)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(_is_here(str(address[0])) for *_, address in found)
