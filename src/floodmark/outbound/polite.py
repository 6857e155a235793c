"""Requests that keep to what a domain bears: few at a time, with pauses, and none while it asks to be left alone.

Concurrency and pauses are this process's. What a domain says itself (429, Retry-After) and that it is broken (V5) is
stored, and holds for the fleet. Each redirect is a call of the domain it leads to.
"""

import asyncio
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

from .caller import Caller, CallKey
from .client import Follow, Http, HttpAnswer, ResponseLimits, followed

if TYPE_CHECKING:
    from yarl import URL

LONGEST_WAIT = timedelta(days=1)
# For a domain that says "too many requests", and not until when.
USUAL_WAIT = timedelta(seconds=60)
_SHORTEST_WAIT = timedelta(seconds=1)
_MOST_DOMAINS = 1000


class ServerFault(Transient):
    """The server answers that it is in trouble: a status of 500 or more. Counts for the breaker of its domain."""

    def __init__(self, host: str, status: int) -> None:
        super().__init__(f"{host} answers with status {status}")
        self.status = status


class PoliteHttp:
    """GET for whoever reads many pages. One for each process, so that all its jobs share what a domain bears."""

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
        """As `Http.get`, when it is this domain's turn. `delay`: from the begin of one request to that of the next.

        Raises `SlowDown` without a key for a domain that is to be left alone, `ServerFault` for a status of 500 or
        more; both are stored for the fleet. Every other status is an answer.
        """
        most, pause = concurrency or self._concurrency, self._delay if delay is None else delay
        if follow is False:
            return await self._one(self.http.check(url).with_fragment(None), headers, limits, most, pause)

        async def one(where: "URL", headers: Mapping[str, str] | None) -> HttpAnswer:
            return await self._one(where, headers, limits, most, pause)

        redirects = (limits or self.http.limits).redirects
        return await followed(self.http.check, one, url, headers=headers, most=redirects, follow=follow)

    async def _one(
        self,
        where: "URL",
        headers: Mapping[str, str] | None,
        limits: ResponseLimits | None,
        most: int,
        pause: timedelta,
    ) -> HttpAnswer:
        domain, attempts, is_answer = self._domain(_place(where)), 0, False
        key = domain.key

        async def send() -> HttpAnswer:
            nonlocal attempts, is_answer
            attempts += 1
            # The turn for the first one was taken before the limits were looked at.
            if attempts > 1 and await self._sleep_until_turn(domain, pause):
                await self._refuse(key)
            answer = await self.http.get_checked(where, headers=headers, limits=limits)
            if answer.status >= 429:
                try:
                    self._judge(answer, key)
                except SlowDown:
                    is_answer = True
                    raise
            return answer

        domain.users += 1
        try:
            await domain.enter(most)
            try:
                await self._sleep_until_turn(domain, pause)
                return await self._caller.call(key, send)
            except SlowDown as told:
                told.is_answer = is_answer
                raise
            finally:
                domain.leave()
        finally:
            domain.users -= 1

    async def _refuse(self, key: CallKey) -> None:
        refusal = await self._caller.wait_of(key.scope, key.method)
        if refusal is not None:
            raise refusal

    def _judge(self, answer: HttpAnswer, key: CallKey) -> None:
        host = key.target
        if answer.status not in (429, 503):
            if answer.status >= 500:
                raise ServerFault(host, answer.status)
            return
        after = retry_after(answer, self._clock.now())
        if after is None and answer.status == 503:
            raise ServerFault(host, 503)
        raise SlowDown(after or USUAL_WAIT, key.scope, f"{host} answers with status {answer.status}")

    async def _sleep_until_turn(self, domain: "_Domain", pause: timedelta) -> bool:
        """Wait for our turn; whether that took any time."""
        rest = domain.turn(time.monotonic(), pause.total_seconds())
        if rest > 0:
            await self._sleep(rest)
        return rest > 0

    def _domain(self, place: tuple[str, str]) -> "_Domain":
        name, host = place
        domain = self._domains.get(name)
        if domain is None:
            self._forget_some()
            domain = self._domains[name] = _Domain(name, host)
            self._events.emit(BreakersInUse([domain.key.scope]))
        self._domains.move_to_end(name)
        return domain

    def _forget_some(self) -> None:
        while len(self._domains) >= _MOST_DOMAINS:
            idle = next((host for host, domain in self._domains.items() if not domain.users), None)
            if idle is None:
                return
            del self._domains[idle]


def retry_after(answer: HttpAnswer, now: datetime) -> timedelta | None:
    """How long a server asks us to wait, within reason; None if it does not say, or nothing sensible."""
    text = answer.headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        # Of a number with more digits only the first ones matter: it is beyond the longest wait.
        after = timedelta(seconds=int(text[:9]))
    else:
        until = _date(text)
        if until is None:
            return None
        # By the server's own clock, if it tells it: only then the difference is one.
        after = until - (_date(answer.headers.get("Date", "")) or now)
    return min(max(after, _SHORTEST_WAIT), LONGEST_WAIT)


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found if found.tzinfo is not None else None


def _place(where: "URL") -> tuple[str, str]:
    """The name of a server, with its port unless that is the usual one; and its host alone."""
    host = plain_name(where.raw_host or "")
    return (host if where.is_default_port() or where.port is None else f"{host}:{where.port}"), host


class _Domain:
    """Who is inside, who waits outside, and when the next request may begin."""

    def __init__(self, name: str, host: str) -> None:
        # Not the whole address: what is called is a label of metrics, and addresses are many and may hold secrets.
        # With its port: two servers on one host fail on their own.
        self.key = CallKey(scope=f"web:{name}", method="get", target=host)
        self.users = 0
        self._inside, self._next_at = 0, 0.0
        self._outside: deque[asyncio.Future[None]] = deque()

    async def enter(self, most: int) -> None:
        """Wait until fewer than `most` are inside, then be one of them. First come, first served."""
        if self._inside >= most or self._outside:
            await self._wait(most)
        self._inside += 1

    async def _wait(self, most: int) -> None:
        while True:
            waiter = asyncio.get_running_loop().create_future()
            self._outside.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()
                raise
            if self._inside < most:
                return

    def leave(self) -> None:
        """Let the next one in."""
        self._inside -= 1
        self._wake()

    def _wake(self) -> None:
        while self._outside:
            waiter = self._outside.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def turn(self, now: float, pause: float) -> float:
        """How long to wait before the next request begins. Asking takes the turn."""
        at = max(now, self._next_at)
        self._next_at = at + pause
        return at - now
