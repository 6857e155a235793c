"""GET requests with limits per domain: concurrency, pauses, Retry-After and a circuit breaker.

Concurrency and pauses apply to this process. Rate limits (429, Retry-After) and circuit breakers (V5) are stored and
apply to all processes. Each redirect is a call to the domain it points to.
"""

import asyncio
import copy
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from floodmark.errors import SlowDown, Transient
from floodmark.model.clock import Clock
from floodmark.model.hosts import plain_name
from floodmark.observability.events import BreakersInUse, Events

from .caller import Caller, CallKey, forget_idle
from .client import Follow, Http, HttpAnswer, ResponseLimits, follow_redirects

if TYPE_CHECKING:
    from yarl import URL

LONGEST_WAIT = timedelta(days=1)
# After a 429 without Retry-After.
_USUAL_WAIT = timedelta(seconds=60)
_SHORTEST_WAIT = timedelta(seconds=1)
_MAX_DOMAINS = 1000


class ServerFault(Transient):
    """The server responds with a status of 500 or more. Counts for the breaker of its domain."""

    def __init__(self, host: str, status: int) -> None:
        super().__init__(f"{host} answers with status {status}")
        self.status = status


class PoliteHttp:
    """Sends GET requests within the limits of each domain. Use one per process, so that its jobs share the limits."""

    def __init__(
        self,
        http: Http,
        caller: Caller,
        clock: Clock,
        events: Events,
        *,
        concurrency: int = 4,
        delay: timedelta = timedelta(seconds=0.5),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.http, self._caller, self._clock, self._events = http, caller, clock, events
        self._concurrency, self._delay, self._sleep = concurrency, delay, sleep
        self._domains: OrderedDict[str, _Domain] = OrderedDict()

    def through(self, http: Http) -> "PoliteHttp":
        """Return this client with another connection, such as a proxy. Both share the limits of each domain."""
        made = copy.copy(self)
        made.http = http
        return made

    async def get(
        self,
        url: "str | URL",
        *,
        headers: Mapping[str, str] | None = None,
        limits: ResponseLimits | None = None,
        follow: bool | Follow = True,
        concurrency: int | None = None,
        delay: timedelta | None = None,
    ) -> HttpAnswer:
        """Wait for the domain's turn, then do as `Http.get`. `delay`: from the start of one request to the next.

        Raises `SlowDown` without a key for a domain that is rate-limited or whose breaker is open, `ServerFault` for
        a status of 500 or more; both are stored for all processes. It returns responses of any other status.
        """
        limit, pause = concurrency or self._concurrency, self._delay if delay is None else delay
        if follow is False:
            return await self._get_one(self.http.check(url).with_fragment(None), headers, limits, limit, pause)

        async def get_one(where: "URL", headers: Mapping[str, str] | None) -> HttpAnswer:
            return await self._get_one(where, headers, limits, limit, pause)

        redirects = (limits or self.http.limits).redirects
        return await follow_redirects(self.http.check, get_one, url, headers=headers, limit=redirects, follow=follow)

    async def _get_one(
        self,
        where: "URL",
        headers: Mapping[str, str] | None,
        limits: ResponseLimits | None,
        limit: int,
        pause: timedelta,
    ) -> HttpAnswer:
        domain, attempts, is_answer = self._domain(where), 0, False
        key = domain.key

        async def send() -> HttpAnswer:
            nonlocal attempts, is_answer
            attempts += 1
            # The first attempt took its turn before the limits were checked.
            if attempts > 1 and await self._sleep_until_turn(domain, pause):
                await self._check_limits(key)
            answer = await self.http.get_checked(where, headers=headers, limits=limits)
            if answer.status >= 429:
                try:
                    self._check_status(answer, key)
                except SlowDown:
                    is_answer = True
                    raise
            return answer

        domain.users += 1
        try:
            await domain.enter(limit)
            try:
                await self._sleep_until_turn(domain, pause)
                return await self._caller.call(key, send)
            except SlowDown as wait:
                wait.is_answer = is_answer
                raise
            finally:
                domain.leave()
        finally:
            domain.users -= 1

    async def _check_limits(self, key: CallKey) -> None:
        refusal = await self._caller.wait_of(key.scope, key.method)
        if refusal is not None:
            raise refusal

    def _check_status(self, answer: HttpAnswer, key: CallKey) -> None:
        host = key.target
        if answer.status not in (429, 503):
            if answer.status >= 500:
                raise ServerFault(host, answer.status)
            return
        after = retry_after(answer, self._clock.now())
        if after is None and answer.status == 503:
            raise ServerFault(host, 503)
        raise SlowDown(after or _USUAL_WAIT, key.scope, f"{host} answers with status {answer.status}")

    async def _sleep_until_turn(self, domain: "_Domain", pause: timedelta) -> bool:
        """Wait for our turn and return whether that took any time."""
        rest = domain.take_turn(time.monotonic(), pause.total_seconds())
        if rest > 0:
            await self._sleep(rest)
        return rest > 0

    def _domain(self, where: "URL") -> "_Domain":
        host = plain_name(where.raw_host or "")
        name = host if where.is_default_port() or where.port is None else f"{host}:{where.port}"
        domain = self._domains.get(name)
        if domain is None:
            forget_idle(self._domains, _MAX_DOMAINS, lambda domain: not domain.users)
            domain = self._domains[name] = _Domain(name, host)
            self._events.emit(BreakersInUse([domain.key.scope]))
        self._domains.move_to_end(name)
        return domain


def retry_after(answer: HttpAnswer, now: datetime) -> timedelta | None:
    """Return how long a server asks us to wait, between a second and a day; None without a valid Retry-After."""
    text = answer.headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        # A longer number is beyond the longest wait anyway.
        after = timedelta(seconds=int(text[:9]))
    else:
        until = _parse_date(text)
        if until is None:
            return None
        # Measured by the server's own clock, if it sends the time: its clock may differ from ours.
        after = until - (_parse_date(answer.headers.get("Date", "")) or now)
    return min(max(after, _SHORTEST_WAIT), LONGEST_WAIT)


def _parse_date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found if found.tzinfo is not None else None


class _Domain:
    """The running and waiting requests of one domain, and when the next one may start."""

    def __init__(self, name: str, host: str) -> None:
        # The target is a metric label: a host, since URLs are many and may hold secrets. The scope includes the
        # port, since two servers on one host fail independently.
        self.key = CallKey(scope=f"web:{name}", method="get", target=host)
        self.users = 0
        self._running, self._next_at = 0, 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self, limit: int) -> None:
        """Wait until fewer than `limit` requests are running, then count as one. First come, first served."""
        if self._running >= limit or self._waiting:
            await self._wait(limit)
        self._running += 1

    async def _wait(self, limit: int) -> None:
        while True:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()
                raise
            if self._running < limit:
                return

    def leave(self) -> None:
        """End a request and wake the next one."""
        self._running -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def take_turn(self, now: float, pause: float) -> float:
        """Reserve the start of the next request and return the seconds until then."""
        at = max(now, self._next_at)
        self._next_at = at + pause
        return at - now
