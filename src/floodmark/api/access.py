"""Access to the API: tokens and their roles, trust in this machine while there are none, and a limit on guessing.

With a token     a caller may do what its role allows, from anywhere.
With a cookie    a browser that signed in to the dashboard may do what its token may. Requests that change data must
                 come from our own pages.
Without one      a caller on this machine may do everything, as long as there has never been a token. `is_local`
                 excludes web pages that point their own name at this machine, and callers behind a proxy.
"""

import asyncio
import hmac
import math
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import structlog
from fastapi import FastAPI, Request
from sqlalchemy.exc import DBAPIError

from floodmark.errors import InvalidInput
from floodmark.model.audit import Actor
from floodmark.model.tokens import Role, Visitor, is_enough
from floodmark.operations.stored_sessions import DashboardSessions, StoredSession, session_id_in
from floodmark.operations.stored_tokens import USE_NOTED_EVERY, StoredToken, Tokens, digest_of, id_in
from floodmark.wiring.resources import Resources

from .addresses import address_of, cookie_name, ip_address, is_here, is_local
from .edge import OWN_PAGE, SAFE
from .problems import HttpError, request_id_of
from .routing import show_secrets

LOCAL, ANYONE = "local", "anonymous"
# The cookie of a session of the dashboard; `cookie_name` completes it.
SESSION = "floodmark_session"
# How long a token is cached: one that was revoked elsewhere is refused here within a second.
KNOWN_FOR_SECONDS = 0.5
FAILURES_ALLOWED = 10
FAILURES_WITHIN_SECONDS = 60.0
# Cached addresses and tokens; the least recently used are dropped first.
MOST_REMEMBERED = 4096

_HOW_TO_ADD = "floodmark tokens add NAME --role ROLE"
_SEND_ONE = f"send it as `Authorization: Bearer fm_...`; make one on the server with: {_HOW_TO_ADD}"
_CHALLENGE = 'Bearer realm="floodmark"'

T = TypeVar("T")


class BrowserVisitor(Visitor, frozen=True, kw_only=True):
    """A caller with a session of the dashboard."""

    session_id: str


class Access:
    """Decides who may use the API. One for each process that serves it; `now` counts seconds.

    `is_public`: while there has never been a token, callers on other machines may do everything, too.
    """

    def __init__(
        self,
        tokens: Tokens,
        sessions: DashboardSessions,
        *,
        is_public: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens, self._sessions, self._is_public = tokens, sessions, is_public
        self._failures = Failures(now)
        self._known = Recent[StoredToken](now, KNOWN_FOR_SECONDS)
        self._signed_in = Recent[StoredSession](now, KNOWN_FOR_SECONDS)
        self._open = Recent[bool](now, KNOWN_FOR_SECONDS)
        self._noted = Recent[bool](now, USE_NOTED_EVERY.total_seconds())

    async def admit(self, request: Request, role: Role | None) -> Actor:
        """Return the caller if its role includes `role`; else raise 401, 403 or 429. An endless response asks again."""
        visitor = await self.visitor(request)
        is_browser = isinstance(visitor, BrowserVisitor)
        if is_browser and request.method not in SAFE and not request.scope.get(OWN_PAGE):
            # A form of the dashboard proves where it is from; here only the browser can say it.
            raise HttpError(
                403,
                "the cookie of the dashboard changes data only from the pages of the dashboard",
                hint=f"send a token instead: {_SEND_ONE}",
            )
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
        """Return the caller; raise 401 for an unknown one, 429 for a wrong token after too many from that address."""
        given = request.headers.get("authorization")
        if given is None:
            session = await self.session(request)
            if session is None:
                return await self._without_token(request)
            return BrowserVisitor(who=session.token, role=session.role, session_id=session.session_id)
        scheme, _, text = given.partition(" ")
        if scheme.lower() != "bearer":
            raise _unauthorized("the Authorization header is not a bearer token")
        return await self._with_token(text.strip(), address_of(request))

    def forget(self) -> None:
        """Clear the cache: this process has just changed a token or a session."""
        self._known.clear()
        self._signed_in.clear()
        self._open.clear()

    async def verify(self, text: str, request: Request) -> StoredToken:
        """Return the token with this text; raise 401 or 429 for a wrong one."""
        await self._with_token(text, address_of(request))
        token = await self._find(text)
        assert token is not None
        return token

    async def session(self, request: Request) -> StoredSession | None:
        """Return the valid session of a browser, if there is one."""
        cookie = request.cookies.get(cookie_name(request, SESSION), "")
        session_id = session_id_in(cookie)
        if session_id is None:
            return None
        found = await self._signed_in.read(session_id, lambda: self._sessions.find(session_id))
        if found is None or not hmac.compare_digest(found.digest, digest_of(cookie)):
            return None
        if found.use_is_due:
            await self._note(session_id, found.token, self._sessions.note_use)
        return found

    async def _without_token(self, request: Request) -> Visitor:
        is_near = is_local(request)
        if (is_near or self._is_public) and await self._never_had_tokens():
            return Visitor(who=LOCAL if is_near else ANYONE, role="admin")
        raise _unauthorized("a token is needed")

    async def _never_had_tokens(self) -> bool:
        return bool(await self._open.read("", self._tokens.is_empty))

    async def _with_token(self, text: str, address: str) -> Visitor:
        # The token is checked first: those who guess behind the same proxy must not lock out a valid token. Only wrong
        # tokens are slowed down; 256 bits cannot be guessed anyway.
        token = await self._find(text)
        trouble = _trouble(token, text)
        if token is None or trouble is not None:
            raise self._refuse(address, trouble or "unknown", token)
        await self._note_use(token)
        return Visitor(who=token.name, role=token.role)

    async def _find(self, text: str) -> StoredToken | None:
        token_id = id_in(text)
        return None if token_id is None else await self._known.read(token_id, lambda: self._tokens.find(token_id))

    def _refuse(self, address: str, trouble: str, token: StoredToken | None) -> HttpError:
        seconds = self._failures.wait(address)
        if seconds:
            return _too_many(seconds)
        self._failures.add(address)
        is_theirs = token is not None and trouble in ("expired", "revoked")
        who = token.name if token is not None and is_theirs else None
        whose = {} if who is None else {"who": who}
        structlog.get_logger().warning("token refused", address=address, reason=trouble, **whose)
        if who is None:
            return _unauthorized("this token is not known here")
        was = "has expired" if trouble == "expired" else "was revoked"
        return _unauthorized(f"the token {who} {was}")

    async def _note_use(self, token: StoredToken) -> None:
        if token.use_is_due:
            await self._note(token.token_id, token.name, self._tokens.note_use)

    async def _note(self, key: str, who: str, note: Callable[[str], Awaitable[None]]) -> None:
        if self._noted.get(key):
            return
        self._noted.put(key, True)
        try:
            await note(key)
        except (DBAPIError, OSError) as error:
            # A read must not fail because the database cannot be written.
            structlog.get_logger().warning("use not noted", who=who, error=type(error).__name__)


def _trouble(token: StoredToken | None, text: str) -> str | None:
    if token is None:
        return "unknown" if id_in(text) else "malformed"
    if not token.fits(text):
        return "wrong"
    return None if token.state == "active" else token.state


def _unauthorized(detail: str) -> HttpError:
    return HttpError(401, detail, hint=_SEND_ONE, headers={"WWW-Authenticate": _CHALLENGE})


def _too_many(seconds: float) -> HttpError:
    wait = math.ceil(seconds)
    return HttpError(
        429,
        f"too many tokens from this address were wrong, and this one is wrong too; try again in {wait} s",
        hint=f"wait, and check the token; {_HOW_TO_ADD} makes another",
        headers={"Retry-After": str(wait)},
    )


class Recent(Generic[T]):
    """A cache of a bounded number of values, each valid for some seconds."""

    def __init__(self, now: Callable[[], float], seconds: float, most: int = MOST_REMEMBERED) -> None:
        self._now, self._seconds, self._most = now, seconds, most
        self._held: OrderedDict[str, tuple[float, T]] = OrderedDict()
        self._reading: dict[str, asyncio.Task[T | None]] = {}

    async def read(self, key: str, load: Callable[[], Awaitable[T | None]]) -> T | None:
        """Return the cached value, or the one that `load` returns. Callers at the same time share one `load`.

        None is not cached. `load` continues if its caller goes away: a cancelled query costs a connection.
        """
        known = self.get(key)
        if known is not None:
            return known
        reading = self._reading.get(key)
        if reading is None:
            reading = self._reading[key] = asyncio.create_task(self._load(key, load))
        return await asyncio.shield(reading)

    async def _load(self, key: str, load: Callable[[], Awaitable[T | None]]) -> T | None:
        task = asyncio.current_task()
        try:
            found = await load()
            # A value that was read before `clear` may be out of date.
            is_current = self._reading.get(key) is task
            return found if found is None or not is_current else self.put(key, found)
        finally:
            if self._reading.get(key) is task:
                del self._reading[key]

    def get(self, key: str) -> T | None:
        """Return the value; None if it is too old."""
        found = self._held.get(key)
        return None if found is None or self._now() - found[0] >= self._seconds else found[1]

    def put(self, key: str, value: T) -> T:
        """Cache a value; drop the oldest if there are too many."""
        self._held[key] = (self._now(), value)
        self._held.move_to_end(key)
        if len(self._held) > self._most:
            self._held.popitem(last=False)
        return value

    def clear(self) -> None:
        """Drop all values."""
        self._held.clear()
        self._reading.clear()

    def __len__(self) -> int:
        return len(self._held)


class Failures:
    """Counts wrong tokens by address: after ten in a minute, further wrong ones get 429 for a while."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._recent = now, Recent[deque[float]](now, FAILURES_WITHIN_SECONDS)

    def add(self, address: str) -> None:
        """Count a wrong token."""
        at = self._recent.get(address) or deque(maxlen=FAILURES_ALLOWED)
        at.append(self._now())
        self._recent.put(address, at)

    def wait(self, address: str) -> float:
        """Return the seconds until a wrong token from there gets 401 again; 0 if it does now."""
        at = self._recent.get(address)
        if at is None or len(at) < FAILURES_ALLOWED:
            return 0.0
        return max(0.0, at[0] + FAILURES_WITHIN_SECONDS - self._now())

    def __len__(self) -> int:
        return len(self._recent)


def resources_of(request: Request) -> Resources:
    """Return the open resources of the process that serves a request."""
    found = request.app.state.resources
    assert isinstance(found, Resources)
    return found


def access_of(app: FastAPI) -> Access:
    """Return the access of the process that serves this application."""
    found = getattr(app.state, "access", None)
    if found is None:
        resources = app.state.resources
        database, clock, settings = resources.database, resources.clock, resources.settings
        found = app.state.access = Access(
            Tokens(database, clock), DashboardSessions(database, clock), is_public=settings.api_public_without_token
        )
    assert isinstance(found, Access)
    return found


def require(role: Role | None, *, unless_local: bool = False) -> Callable[[Request], Awaitable[Actor]]:
    """Return a FastAPI dependency: the caller, refused unless its role includes `role`.

    With `unless_local`, callers on this machine need no token: for health and metrics.
    """

    async def actor(request: Request) -> Actor:
        if unless_local and is_local(request):
            return Actor(who=LOCAL, via="api", request_id=request_id_of(request))
        return await access_of(request.app).admit(request, role)

    actor.__name__ = f"require_{role or 'any_role'}"
    return actor


async def require_token_to_listen(resources: Resources, host: str) -> None:
    """Refuse to serve other machines while no token is needed, unless API_PUBLIC_WITHOUT_TOKEN allows it."""
    if resources.settings.api_public_without_token or await _is_loopback(host):
        return
    if not await Tokens(resources.database, resources.clock).has_active():
        raise InvalidInput(
            f"the API is not served on {host or 'every address'} without a token: other machines can reach it",
            hint="add one with: floodmark tokens add NAME --role admin; or serve this machine only: "
            "--set HOST=127.0.0.1; or allow everyone everything: --set API_PUBLIC_WITHOUT_TOKEN=true",
        )


async def _is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address. Names are resolved; an unknown one fails later, at bind."""
    if not host or ip_address(host) is not None:
        return is_here(host)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(is_here(str(address[0])) for *_, address in found)
