"""One outgoing call with rate limit, pace, circuit breaker, timeout and retries.

Limits and breakers are cached for a second; this process's own changes apply at once. A successful call through a
closed breaker therefore needs no query of its own.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from floodmark.errors import SlowDown, SourceError, Transient
from floodmark.model.clock import Clock
from floodmark.observability.events import BreakerMoved, Events, LimitSet, RateLimited, StepFailed
from floodmark.rules import breaker as breakers
from floodmark.rules import pace as paces
from floodmark.rules.breaker import Breaker, BreakerState, Thresholds
from floodmark.rules.pace import Pace

from .port import BreakerMove, BreakerStore, CallTracing, HeldLimit, LimitStore, Move
from .retrying import PASSING, Retrying, RetryPolicy, Sleep, name_of
from .spending import spend_request

# Changes by other processes are seen after this long.
_FRESH, _NO_TIME = timedelta(seconds=1), timedelta()
# A call that was cancelled or rate-limited waits no longer than this for the store.
_STORE_SECONDS = 5.0
_MAX_SCOPES, _MAX_METHODS = 1000, 200
_UNPACED = Pace()

T = TypeVar("T")
E = TypeVar("E")


class CallKey(Struct, frozen=True, kw_only=True, gc=False):
    """Names a call. `scope` is the key of its breaker, such as `telegram:reader1`; `target` is for logs and metrics."""

    scope: str
    method: str
    target: str = ""

    @property
    def limit(self) -> str:
        """The key of its rate limit."""
        return f"{self.scope}:{self.method}"


class CallPolicy(Struct, frozen=True, kw_only=True):
    """Settings of calls. `others`, `timeouts` and `retries` override `breaker`, `call_timeout` and `retry` by source.

    A timeout of None is for a source that has its own.
    """

    call_timeout: timedelta = timedelta(seconds=30)
    retry: RetryPolicy = RetryPolicy()
    breaker: Thresholds = Thresholds()
    others: Mapping[str, Thresholds] = field(default_factory=dict)
    timeouts: Mapping[str, timedelta | None] = field(default_factory=dict)
    retries: Mapping[str, RetryPolicy] = field(default_factory=dict)
    is_adaptive: bool = True

    def thresholds(self, scope: str) -> Thresholds:
        """Return the thresholds of a scope's breaker."""
        return self.others.get(source_of(scope), self.breaker)

    def timeout(self, scope: str) -> timedelta | None:
        """Return how long a call of this scope may take; None for no limit."""
        return self.timeouts.get(source_of(scope), self.call_timeout)


def source_of(scope: str) -> str:
    """Return the source of a scope: `telegram` for `telegram:reader1`."""
    return scope.partition(":")[0]


class _HeldLimit(Struct):
    """A limit, by our own clock. `is_saved`: it is in the store, so it ends when the store no longer has it."""

    until: datetime
    reason: str
    is_saved: bool = False
    is_being_saved: bool = False


class _Scope(Struct):
    """The cached state of one scope."""

    name: str
    thresholds: Thresholds
    timeout: float | None
    """Seconds that a call may take; None for no limit."""
    retrying: Retrying
    limits: dict[str, _HeldLimit] = field(default_factory=dict)
    paces: dict[str, Pace] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    """The stored rates as last seen; a different one was stored by another process."""
    breaker: Breaker = Breaker()
    moves: int = 0
    """How often this process has changed the breaker."""
    ahead: timedelta = timedelta()
    """The store's clock minus ours."""
    read_at: datetime | None = None
    in_use: int = 0
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


class Caller:
    """Makes calls. Use one per process; its cached state can be read from the store again."""

    def __init__(
        self,
        limits: LimitStore,
        breakers: BreakerStore,
        policy: CallPolicy,
        clock: Clock,
        events: Events,
        *,
        sleep: Sleep = asyncio.sleep,
        tracing: CallTracing | None = None,
    ) -> None:
        self._limits, self._breakers, self._policy, self._tracing = limits, breakers, policy, tracing
        self._clock, self._events, self._sleep = clock, events, sleep
        self._retrying = Retrying(policy.retry, events, sleep=sleep)
        self._retrying_of = {source: Retrying(retry, events, sleep=sleep) for source, retry in policy.retries.items()}
        self._scopes: OrderedDict[str, _Scope] = OrderedDict()

    async def call(self, key: CallKey, send: Callable[[], Awaitable[T]]) -> T:
        """Make a call if it is allowed now, and retry it after a transient error.

        Raises `SlowDown` without calling while a limit applies, the breaker is open or the next turn is far away. A
        `SlowDown` without a key needs no more storing.
        """
        scope, target = self._scope(key.scope), key.target or key.scope
        scope.in_use += 1
        try:
            call = scope.retrying.call(
                lambda: self._attempt(scope, key, send), target=target, method=key.method, scope=key.scope
            )
            if self._tracing is None:
                return await call
            return await self._tracing.request(key.scope, key.method, target, call)
        finally:
            scope.in_use -= 1

    async def load(self, scope: str) -> None:
        """Read the stored limits, paces and breaker of a scope."""
        with self._use(scope) as known:
            async with known.reading:
                await self._read(known)

    async def wait_of(self, scope: str, method: str) -> SlowDown | None:
        """Return the limit or open breaker that applies now, without calling."""
        with self._use(scope) as known:
            await self._refresh(known)
            return self._refusal(known, CallKey(scope=scope, method=method), self._clock.now())

    async def step(self) -> None:
        """Read breakers that are not closed again, so that their metrics are right while no calls are made."""
        for name in [s.name for s in self._scopes.values() if s.breaker.state is not BreakerState.CLOSED]:
            with self._use(name) as scope:
                await self._refresh(scope)

    async def _attempt(self, scope: _Scope, key: CallKey, send: Callable[[], Awaitable[T]]) -> T:
        # Hot path, thousands of calls per second: without a limit nothing here awaits.
        began = self._clock.now()
        if not _is_fresh(scope, began):
            await self._refresh(scope)
            began = self._clock.now()
        _raise_refusal(self._refusal(scope, key, began))
        rest, ticket = self._take_turn(scope, key, began), None
        if rest > 0:
            await self._sleep(rest)
            began = self._clock.now()
        if scope.breaker.state is not BreakerState.CLOSED:
            ticket = await self._admit(scope)
            began = self._clock.now()
        try:
            await spend_request()
            # Another call may have been rate-limited while this one waited for its turn.
            _raise_refusal(self._limit_refusal(scope, key, began))
            answer = await (send() if scope.timeout is None else self._send_in_time(scope.timeout, key, send))
        except SlowDown as wait:
            if wait.key is None:
                await self._release(scope, ticket)
                raise
            raise await self._apply_limit(scope, key, wait, ticket, began) from wait
        except PASSING as error:
            await self._fail(scope, name_of(error), ticket)
            raise
        except SourceError:
            # An error of the call is still a response: the other side works.
            await self._succeed(scope, ticket)
            raise
        except BaseException:
            await self._release(scope, ticket)
            raise
        if ticket is not None or scope.breaker.failed_at:
            await self._succeed(scope, ticket)
        if self._policy.is_adaptive and (pace := scope.paces.get(key.limit)) is not None and pace.rate is not None:
            scope.paces[key.limit] = paces.speed_up(pace, self._clock.now(), began=began)
        return answer

    async def _send_in_time(self, timeout: float, key: CallKey, send: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(timeout):
                return await send()
        except TimeoutError as error:
            why = str(error) or f"no response within {timeout:g} s"
            raise Transient(f"{key.method} failed: {why}") from error

    # Before the call: limit, breaker, pace

    def _refusal(self, scope: _Scope, key: CallKey, now: datetime) -> SlowDown | None:
        is_closed = scope.breaker.state is BreakerState.CLOSED
        return self._limit_refusal(scope, key, now) or (None if is_closed else self._breaker_refusal(scope, now))

    def _limit_refusal(self, scope: _Scope, key: CallKey, now: datetime) -> SlowDown | None:
        if not scope.limits:
            return None
        for name in (key.limit, key.scope):
            held = scope.limits.get(name)
            if held is not None and held.until > now:
                # No key: the limit is stored already, and a refused call must not extend it.
                return SlowDown(held.until - now, None, held.reason)
        return None

    def _breaker_refusal(self, scope: _Scope, now: datetime) -> SlowDown | None:
        until = breakers.refused_until(scope.breaker, now + scope.ahead)
        if until is None:
            return None
        what = f"open until {until:%H:%M:%S} UTC" if scope.breaker.state is BreakerState.OPEN else "being probed"
        because = f" ({scope.breaker.reason})" if scope.breaker.reason else ""
        return SlowDown(until - now - scope.ahead, None, f"{breakers.refusal_of(scope.name)}{what}{because}")

    def _take_turn(self, scope: _Scope, key: CallKey, now: datetime) -> float:
        """Reserve the next turn and return the seconds until then."""
        if not self._policy.is_adaptive:
            return 0.0
        pace = scope.paces.get(key.limit, _UNPACED)
        rest = paces.seconds_to_wait(pace, now)
        if rest > paces.PATIENCE_SECONDS:
            assert pace.rate is not None
            raise SlowDown(
                timedelta(seconds=rest), None, f"{key.limit} is limited to one call every {1 / pace.rate:.2g} s"
            )
        self._set_pace(scope, key.limit, paces.record_call(pace, now))
        return rest

    def _set_pace(self, scope: _Scope, key: str, pace: Pace) -> None:
        scope.paces[key] = pace
        if len(scope.paces) > _MAX_METHODS:
            # Prefer the oldest one without a rate.
            del scope.paces[next((name for name, p in scope.paces.items() if p.rate is None), next(iter(scope.paces)))]

    async def _admit(self, scope: _Scope) -> datetime | None:
        """Return a ticket if this call is a probe, None if the breaker is closed; raise `SlowDown` if it is refused."""
        thresholds = scope.thresholds
        moved = await self._move(scope, lambda breaker, now: breakers.admit_call(breaker, now, thresholds))
        if moved.after.state is BreakerState.CLOSED:
            return None
        if moved.after.probe_until != moved.before.probe_until:
            return moved.after.probe_until
        refusal = self._breaker_refusal(scope, self._clock.now())
        raise refusal or SlowDown(timedelta(seconds=1), None, f"{breakers.refusal_of(scope.name)}being probed")

    # After the call: store the result

    async def _apply_limit(
        self, scope: _Scope, key: CallKey, wait: SlowDown, ticket: datetime | None, began: datetime
    ) -> SlowDown:
        """Apply a limit, first in this process and then in the store."""
        now, name, rate = self._clock.now(), wait.key or key.limit, None
        until = now + wait.after
        held = scope.limits.get(name)
        if held is None or held.until < until:
            scope.limits[name] = held = _HeldLimit(until=until, reason=wait.reason)
        if self._policy.is_adaptive:
            pace = paces.slow_down(scope.paces.get(key.limit, Pace()), now, began=began)
            self._set_pace(scope, key.limit, pace)
            rate = pace.rate if name == key.limit else None
        self._events.emit(
            RateLimited(
                source=source_of(key.scope),
                scope=key.scope,
                method=key.method,
                target=key.target,
                seconds=wait.after.total_seconds(),
                reason=type(wait.__cause__ or wait).__name__,
            )
        )
        is_stored = await self._save(scope, name, held, wait.after, rate)
        await self._succeed(scope, ticket)
        return SlowDown(wait.after, None if is_stored else wait.key, wait.reason)

    async def _save(
        self, scope: _Scope, name: str, held: _HeldLimit, after: timedelta, rate: float | None = None
    ) -> bool:
        held.is_being_saved = True
        try:
            async with asyncio.timeout(_STORE_SECONDS):
                until = await self._limits.set(name, after, held.reason, rate)
        except Exception as error:  # noqa: BLE001 - reported; the limit applies here and is saved with the next read
            self._events.emit(StepFailed(step="limits", error=f"{type(error).__name__}: {error}"))
            return False
        finally:
            held.is_being_saved = False
        held.is_saved = True
        if rate is not None:
            scope.rates[name] = rate
        self._events.emit(LimitSet(key=name, until=until, reason=held.reason))
        return True

    async def _fail(self, scope: _Scope, reason: str, ticket: datetime | None) -> None:
        thresholds = scope.thresholds
        await self._try_move(
            scope, lambda b, now: breakers.record_failure(b, now, thresholds, reason=reason, ticket=ticket)
        )

    async def _succeed(self, scope: _Scope, ticket: datetime | None) -> None:
        """Record a response in the breaker; write nothing if that would not change it."""
        thresholds = scope.thresholds
        if ticket is not None or (thresholds.window is None and scope.breaker.failed_at):
            await self._try_move(scope, lambda b, _: breakers.record_success(b, thresholds, ticket=ticket))

    async def _release(self, scope: _Scope, ticket: datetime | None) -> None:
        if ticket is not None:
            await self._try_move(scope, lambda b, _: breakers.release_probe(b, ticket=ticket))

    async def _try_move(self, scope: _Scope, move: Move) -> None:
        """Change the breaker in the store, or only in this process if the store does not respond."""
        try:
            async with asyncio.timeout(_STORE_SECONDS):
                await self._move(scope, move)
        except Exception as error:  # noqa: BLE001 - reported; the result of the call matters more
            self._events.emit(StepFailed(step="breakers", error=f"{type(error).__name__}: {error}"))
            now = self._clock.now() + scope.ahead
            self._set_breaker(scope, move(scope.breaker, now), now)

    async def _move(self, scope: _Scope, move: Move) -> BreakerMove:
        moved = await self._breakers.change(scope.name, move)
        scope.moves += 1
        # First what other processes have changed since the last read.
        self._set_breaker(scope, moved.before, moved.now, elsewhere=True)
        self._set_breaker(scope, moved.after, moved.now)
        return moved

    # The cached state

    async def _refresh(self, scope: _Scope) -> None:
        """Read the state again if it is older than a second; concurrent calls share one read."""
        if _is_fresh(scope, self._clock.now()):
            return
        async with scope.reading:
            if not _is_fresh(scope, self._clock.now()):
                await self._read(scope)

    async def _read(self, scope: _Scope) -> None:
        for name, held in list(scope.limits.items()):
            rest = held.until - self._clock.now()
            if not held.is_saved and not held.is_being_saved and rest > timedelta():
                await self._save(scope, name, held, rest)
        await self._save_recovered_rates(scope)
        # Changes that this process makes during the read are newer than its result.
        saved = {name: held for name, held in scope.limits.items() if held.is_saved}
        rates, moves = dict(scope.rates), scope.moves
        stored = await self._limits.holding(scope.name)
        breaker, store_now = await self._breakers.read(scope.name)
        self._merge_limits(scope, stored, saved)
        if self._policy.is_adaptive:
            self._merge_rates(scope, {limit.key: limit.rate for limit in stored if limit.rate is not None}, rates)
        if scope.moves == moves:
            self._set_breaker(scope, breaker, store_now, elsewhere=True)
        scope.read_at = self._clock.now()

    async def _save_recovered_rates(self, scope: _Scope) -> None:
        """Store the rates that have risen, so that the next process starts with them."""
        for name, before in list(scope.rates.items()):
            pace = scope.paces.get(name)
            if pace is None or not paces.has_recovered(pace, before):
                continue
            if not await self._limits.recover(name, pace.rate, before=before):
                # Another process has stored a new rate: it is read next.
                continue
            if pace.rate is None:
                del scope.rates[name]
            else:
                scope.rates[name] = pace.rate

    def _merge_limits(self, scope: _Scope, stored: Sequence[HeldLimit], saved: Mapping[str, _HeldLimit]) -> None:
        now = self._clock.now()
        newer = {name: held for name, held in scope.limits.items() if saved.get(name) is not held and held.until > now}
        scope.limits = {
            limit.key: _HeldLimit(until=now + limit.rest, reason=limit.reason, is_saved=True)
            for limit in stored
            if limit.rest > timedelta()
        }
        for name, held in newer.items():
            if name not in scope.limits or scope.limits[name].until < held.until:
                scope.limits[name] = held

    def _merge_rates(self, scope: _Scope, stored: Mapping[str, float], known: Mapping[str, float]) -> None:
        """Take over rates that other processes have stored, and drop those of cleared limits."""
        for name in {*stored, *known}:
            rate = stored.get(name)
            if rate == known.get(name) or scope.rates.get(name) != known.get(name):
                continue
            if rate is None:
                del scope.rates[name]
                scope.paces.pop(name, None)
            else:
                scope.rates[name] = rate
                self._set_pace(scope, name, replace(scope.paces.get(name, Pace()), rate=rate, next_at=None))

    def _set_breaker(self, scope: _Scope, breaker: Breaker, store_now: datetime, *, elsewhere: bool = False) -> None:
        before, scope.breaker = scope.breaker.state, breaker
        scope.ahead = store_now - self._clock.now()
        if breaker.state is not before:
            self._events.emit(BreakerMoved(scope.name, breaker.state.value, breaker.reason, elsewhere))

    @contextmanager
    def _use(self, name: str) -> Iterator[_Scope]:
        """Yield the state of a scope and keep it cached meanwhile."""
        scope = self._scope(name)
        scope.in_use += 1
        try:
            yield scope
        finally:
            scope.in_use -= 1

    def _scope(self, name: str) -> _Scope:
        scope = self._scopes.get(name)
        if scope is None:
            forget_idle(self._scopes, _MAX_SCOPES, _is_idle)
            timeout = self._policy.timeout(name)
            scope = self._scopes[name] = _Scope(
                name=name,
                thresholds=self._policy.thresholds(name),
                timeout=None if timeout is None else timeout.total_seconds(),
                retrying=self._retrying_of.get(source_of(name), self._retrying),
            )
        self._scopes.move_to_end(name)
        return scope


def forget_idle(entries: dict[str, E], limit: int, is_idle: Callable[[E], bool]) -> None:
    """Delete the oldest idle entries until there is room for one more below `limit`."""
    while len(entries) >= limit:
        idle = next((name for name, entry in entries.items() if is_idle(entry)), None)
        if idle is None:
            return
        del entries[idle]


def _is_idle(scope: _Scope) -> bool:
    return scope.in_use == 0 and all(held.is_saved for held in scope.limits.values())


def _raise_refusal(refusal: SlowDown | None) -> None:
    if refusal is not None:
        raise refusal


def _is_fresh(scope: _Scope, now: datetime) -> bool:
    # A read time in the future means that the clock was set back.
    return scope.read_at is not None and _NO_TIME <= now - scope.read_at < _FRESH
