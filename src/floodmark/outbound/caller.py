"""One call to the outside, from beginning to end: may it be made now, when, how often, and what follows from it.

What is known here is what the store said at most a second ago, and at once whatever this process was told itself.
A call that goes well through a closed breaker therefore costs no trip to the store of its own.
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

# What another process was told is known here after this long.
_FRESH, _NO_TIME = timedelta(seconds=1), timedelta()
# Somebody who is cancelled, or was just told to wait, is not kept longer than this by a store that does not answer.
_LAST_WORDS_SECONDS = 5.0
_MOST_SCOPES, _MOST_METHODS = 1000, 200
_UNPACED = Pace()

T = TypeVar("T")


class CallKey(Struct, frozen=True, kw_only=True, gc=False):
    """What is called. `scope` is the key of its breaker, as in `telegram:reader1`; `target` is for logs and metrics."""

    scope: str
    method: str
    target: str = ""

    @property
    def limit(self) -> str:
        """The key of its limit."""
        return f"{self.scope}:{self.method}"


class CallPolicy(Struct, frozen=True, kw_only=True):
    """How calls are made. `others`, `timeouts` and `retries`: what differs for one source, by its name.

    The time-out is None for a source whose calls end by themselves.
    """

    call_timeout: timedelta = timedelta(seconds=30)
    retry: RetryPolicy = RetryPolicy()
    breaker: Thresholds = Thresholds()
    others: Mapping[str, Thresholds] = field(default_factory=dict)
    timeouts: Mapping[str, timedelta | None] = field(default_factory=dict)
    retries: Mapping[str, RetryPolicy] = field(default_factory=dict)
    is_adaptive: bool = True

    def thresholds(self, scope: str) -> Thresholds:
        """When the breaker of this scope opens."""
        return self.others.get(source_of(scope), self.breaker)

    def timeout(self, scope: str) -> timedelta | None:
        """How long a call of this scope may take; None: it knows itself when to end."""
        return self.timeouts.get(source_of(scope), self.call_timeout)


def source_of(scope: str) -> str:
    """The source a scope belongs to: `telegram` of `telegram:reader1`."""
    return scope.partition(":")[0]


class _HeldLimit(Struct):
    """A limit, by our own clock. `is_saved`: the store has it, so it is gone when the store says so."""

    until: datetime
    reason: str
    is_saved: bool = False
    is_being_saved: bool = False


class _Scope(Struct):
    """What is known of one scope."""

    name: str
    thresholds: Thresholds
    patience: float | None
    """How many seconds a call may take; None: it ends by itself."""
    retrying: Retrying
    limits: dict[str, _HeldLimit] = field(default_factory=dict)
    paces: dict[str, Pace] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    """The rates that are stored: one that differs from what we know was stored by someone else."""
    breaker: Breaker = Breaker()
    moves: int = 0
    """How often this process has moved the breaker."""
    ahead: timedelta = timedelta()
    """How far the clock of the store is ahead of ours."""
    read_at: datetime | None = None
    in_use: int = 0
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


class Caller:
    """Makes calls. One for each process; everything it knows can be read from the store again."""

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
        """Make a call, if it may be made now, and again if it meets a passing fault.

        Raises `SlowDown` without calling while a limit holds, the breaker is open or its turn is not soon. What it
        raises is stored already wherever that is possible, and then has no key.
        """
        scope, target = self._scope(key.scope), key.target or key.scope
        scope.in_use += 1
        try:
            making = scope.retrying.call(
                lambda: self._attempt(scope, key, send), target=target, method=key.method, scope=key.scope
            )
            if self._tracing is None:
                return await making
            return await self._tracing.request(key.scope, key.method, target, making)
        finally:
            scope.in_use -= 1

    async def load(self, scope: str) -> None:
        """Read the stored limits, paces and breaker of a scope, as when a session is opened."""
        with self._using(scope) as known:
            async with known.reading:
                await self._read(known)

    async def wait_of(self, scope: str, method: str) -> SlowDown | None:
        """What holds right now, without calling."""
        with self._using(scope) as known:
            await self._refresh(known)
            return self._refusal(known, CallKey(scope=scope, method=method), self._clock.now())

    async def step(self) -> None:
        """Look again at those breakers that are not closed, so that what is shown of them is true when nobody calls."""
        for name in [s.name for s in self._scopes.values() if s.breaker.state is not BreakerState.CLOSED]:
            with self._using(name) as scope:
                await self._refresh(scope)

    async def _attempt(self, scope: _Scope, key: CallKey, send: Callable[[], Awaitable[T]]) -> T:
        # Most calls find nothing to wait for, and there are thousands a second: those wait for nothing here either.
        began = self._clock.now()
        if not _is_fresh(scope, began):
            await self._refresh(scope)
            began = self._clock.now()
        self._refuse(scope, key, began)
        rest, ticket = self._take_turn(scope, key, began), None
        if rest > 0:
            await self._sleep(rest)
            began = self._clock.now()
        if scope.breaker.state is not BreakerState.CLOSED:
            ticket = await self._admit(scope)
            began = self._clock.now()
        try:
            # Someone may have been told to wait while we asked for our turn.
            self._refuse_if_held(scope, key, began)
            answer = await (send() if scope.patience is None else self._answer(scope.patience, key, send))
        except SlowDown as told:
            if told.key is None:
                await self._release(scope, ticket)
                raise
            raise await self._told(scope, key, told, ticket, began) from told
        except PASSING as error:
            await self._fail(scope, name_of(error), ticket)
            raise
        except SourceError:
            # An answer we did not want is still an answer.
            await self._report(scope, ticket)
            raise
        except BaseException:
            await self._release(scope, ticket)
            raise
        if ticket is not None or scope.breaker.failed_at:
            await self._report(scope, ticket)
        if self._policy.is_adaptive and (pace := scope.paces.get(key.limit)) is not None and pace.rate is not None:
            scope.paces[key.limit] = paces.went_well(pace, self._clock.now(), began=began)
        return answer

    async def _answer(self, patience: float, key: CallKey, send: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(patience):
                return await send()
        except TimeoutError as error:
            # By itself it says nothing, and this is what the history shows.
            why = str(error) or f"nothing came for {patience:g} s"
            raise Transient(f"{key.method} was not answered: {why}") from error

    # May it be made now?

    def _refuse(self, scope: _Scope, key: CallKey, now: datetime) -> None:
        refusal = self._refusal(scope, key, now)
        if refusal is not None:
            raise refusal

    def _refuse_if_held(self, scope: _Scope, key: CallKey, now: datetime) -> None:
        refusal = self._held(scope, key, now)
        if refusal is not None:
            raise refusal

    def _refusal(self, scope: _Scope, key: CallKey, now: datetime) -> SlowDown | None:
        is_closed = scope.breaker.state is BreakerState.CLOSED
        return self._held(scope, key, now) or (None if is_closed else self._broken(scope, now))

    def _held(self, scope: _Scope, key: CallKey, now: datetime) -> SlowDown | None:
        if not scope.limits:
            return None
        for name in (key.limit, key.scope):
            held = scope.limits.get(name)
            if held is not None and held.until > now:
                # No key: the limit is known, and must not be drawn out by those who ask.
                return SlowDown(held.until - now, None, held.reason)
        return None

    def _broken(self, scope: _Scope, now: datetime) -> SlowDown | None:
        until = breakers.refused_until(scope.breaker, now + scope.ahead)
        if until is None:
            return None
        what = f"open until {until:%H:%M:%S} UTC" if scope.breaker.state is BreakerState.OPEN else "being probed"
        because = f" ({scope.breaker.reason})" if scope.breaker.reason else ""
        return SlowDown(until - now - scope.ahead, None, f"{breakers.refusal_of(scope.name)}{what}{because}")

    def _take_turn(self, scope: _Scope, key: CallKey, now: datetime) -> float:
        """How many seconds to wait for our turn, which is taken by asking."""
        if not self._policy.is_adaptive:
            return 0.0
        pace = scope.paces.get(key.limit, _UNPACED)
        rest = paces.wait(pace, now)
        if rest > paces.PATIENCE_SECONDS:
            assert pace.rate is not None
            raise SlowDown(
                timedelta(seconds=rest), None, f"{key.limit} is slowed down to a call every {1 / pace.rate:.2g} s"
            )
        self._remember(scope, key.limit, paces.called(pace, now))
        return rest

    def _remember(self, scope: _Scope, key: str, pace: Pace) -> None:
        scope.paces[key] = pace
        if len(scope.paces) > _MOST_METHODS:
            # The one that was called first, unless it is held back; those can be read again.
            del scope.paces[next((name for name, p in scope.paces.items() if p.rate is None), next(iter(scope.paces)))]

    async def _admit(self, scope: _Scope) -> datetime | None:
        """A ticket, if this is a probe; None if the breaker is closed after all."""
        thresholds = scope.thresholds
        moved = await self._move(scope, lambda breaker, now: breakers.admitted(breaker, now, thresholds))
        if moved.after.state is BreakerState.CLOSED:
            return None
        if moved.after.probe_until != moved.before.probe_until:
            return moved.after.probe_until
        refusal = self._broken(scope, self._clock.now())
        raise refusal or SlowDown(timedelta(seconds=1), None, f"{breakers.refusal_of(scope.name)}being probed")

    # What follows from it?

    async def _told(
        self, scope: _Scope, key: CallKey, told: SlowDown, ticket: datetime | None, began: datetime
    ) -> SlowDown:
        """The limit holds from here on: first in this process, then for the fleet."""
        now, name, rate = self._clock.now(), told.key or key.limit, None
        until = now + told.after
        held = scope.limits.get(name)
        if held is None or held.until < until:
            scope.limits[name] = held = _HeldLimit(until=until, reason=told.reason)
        if self._policy.is_adaptive:
            pace = paces.told(scope.paces.get(key.limit, Pace()), now, began=began)
            self._remember(scope, key.limit, pace)
            rate = pace.rate if name == key.limit else None
        self._events.emit(
            RateLimited(
                source=source_of(key.scope),
                scope=key.scope,
                method=key.method,
                target=key.target,
                seconds=told.after.total_seconds(),
                reason=type(told.__cause__ or told).__name__,
            )
        )
        is_stored = await self._save(scope, name, held, told.after, rate)
        await self._report(scope, ticket)
        return SlowDown(told.after, None if is_stored else told.key, told.reason)

    async def _save(
        self, scope: _Scope, name: str, held: _HeldLimit, after: timedelta, rate: float | None = None
    ) -> bool:
        held.is_being_saved = True
        try:
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                until = await self._limits.set(name, after, held.reason, rate)
        except Exception as error:  # noqa: BLE001 - it holds here all the same, and is stored at the next occasion
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
        await self._note(scope, lambda b, now: breakers.failed(b, now, thresholds, reason=reason, ticket=ticket))

    async def _report(self, scope: _Scope, ticket: datetime | None) -> None:
        """It was answered. Nothing is written, unless that changes something."""
        thresholds = scope.thresholds
        if ticket is not None or (thresholds.window is None and scope.breaker.failed_at):
            await self._note(scope, lambda b, _: breakers.succeeded(b, thresholds, ticket=ticket))

    async def _release(self, scope: _Scope, ticket: datetime | None) -> None:
        if ticket is not None:
            await self._note(scope, lambda b, _: breakers.released(b, ticket=ticket))

    async def _note(self, scope: _Scope, move: Move) -> None:
        """Move the breaker; should the store not answer, at least here."""
        try:
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                await self._move(scope, move)
        except Exception as error:  # noqa: BLE001 - how the call went matters more; it is reported
            self._events.emit(StepFailed(step="breakers", error=f"{type(error).__name__}: {error}"))
            now = self._clock.now() + scope.ahead
            self._see(scope, move(scope.breaker, now), now)

    async def _move(self, scope: _Scope, move: Move) -> BreakerMove:
        moved = await self._breakers.change(scope.name, move)
        scope.moves += 1
        # What others did came first, in case we have not read it yet.
        self._see(scope, moved.before, moved.now, elsewhere=True)
        self._see(scope, moved.after, moved.now)
        return moved

    # What is known

    async def _refresh(self, scope: _Scope) -> None:
        """Read again what is older than a second; those who come meanwhile wait for the same reading."""
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
        await self._store_recovery(scope)
        # What happens while we read is newer than what we read.
        saved = {name: held for name, held in scope.limits.items() if held.is_saved}
        rates, moves = dict(scope.rates), scope.moves
        stored = await self._limits.holding(scope.name)
        breaker, store_now = await self._breakers.read(scope.name)
        self._see_limits(scope, stored, saved)
        if self._policy.is_adaptive:
            self._see_rates(scope, {limit.key: limit.rate for limit in stored if limit.rate is not None}, rates)
        if scope.moves == moves:
            self._see(scope, breaker, store_now, elsewhere=True)
        scope.read_at = self._clock.now()

    async def _store_recovery(self, scope: _Scope) -> None:
        """Let the next process begin with the pace that this one has regained."""
        for name, before in list(scope.rates.items()):
            pace = scope.paces.get(name)
            if pace is None or not paces.has_recovered(pace, before):
                continue
            if not await self._limits.recover(name, pace.rate, before=before):
                # Another process was told something meanwhile: that is read next.
                continue
            if pace.rate is None:
                del scope.rates[name]
            else:
                scope.rates[name] = pace.rate

    def _see_limits(self, scope: _Scope, stored: Sequence[HeldLimit], saved: Mapping[str, _HeldLimit]) -> None:
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

    def _see_rates(self, scope: _Scope, stored: Mapping[str, float], known: Mapping[str, float]) -> None:
        """Take over what another process was slowed down to, or that someone has lifted the limit."""
        for name in {*stored, *known}:
            rate = stored.get(name)
            if rate == known.get(name) or scope.rates.get(name) != known.get(name):
                continue
            if rate is None:
                del scope.rates[name]
                scope.paces.pop(name, None)
            else:
                scope.rates[name] = rate
                self._remember(scope, name, replace(scope.paces.get(name, Pace()), rate=rate, next_at=None))

    def _see(self, scope: _Scope, breaker: Breaker, store_now: datetime, *, elsewhere: bool = False) -> None:
        before, scope.breaker = scope.breaker.state, breaker
        scope.ahead = store_now - self._clock.now()
        if breaker.state is not before:
            self._events.emit(BreakerMoved(scope.name, breaker.state.value, breaker.reason, elsewhere))

    @contextmanager
    def _using(self, name: str) -> Iterator[_Scope]:
        """What is known of a scope; while it is in use it is not forgotten."""
        scope = self._scope(name)
        scope.in_use += 1
        try:
            yield scope
        finally:
            scope.in_use -= 1

    def _scope(self, name: str) -> _Scope:
        scope = self._scopes.get(name)
        if scope is None:
            self._forget()
            patience = self._policy.timeout(name)
            scope = self._scopes[name] = _Scope(
                name=name,
                thresholds=self._policy.thresholds(name),
                patience=None if patience is None else patience.total_seconds(),
                retrying=self._retrying_of.get(source_of(name), self._retrying),
            )
        self._scopes.move_to_end(name)
        return scope

    def _forget(self) -> None:
        while len(self._scopes) >= _MOST_SCOPES:
            idle = next((s.name for s in self._scopes.values() if s.in_use == 0 and _can_be_read_again(s)), None)
            if idle is None:
                return
            del self._scopes[idle]


def _can_be_read_again(scope: _Scope) -> bool:
    return all(held.is_saved for held in scope.limits.values())


def _is_fresh(scope: _Scope, now: datetime) -> bool:
    # Neither too old nor, by a clock that was put back, from the future.
    return scope.read_at is not None and _NO_TIME <= now - scope.read_at < _FRESH
