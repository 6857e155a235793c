"""Ports of outgoing calls: rate limits and circuit breakers, which are shared by all processes and survive restarts."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from msgspec import Struct

from floodmark.rules.breaker import Breaker

Move = Callable[[Breaker, datetime], Breaker]
T = TypeVar("T")


class HeldLimit(Struct, frozen=True, kw_only=True, gc=False):
    """A stored limit. `rest`: remaining time, not an instant, because clocks differ; at most 0 once it has ended.

    `rate`: the calls per second that are allowed afterwards.
    """

    key: str
    rest: timedelta
    reason: str
    rate: float | None = None


class BreakerMove(Struct, frozen=True, kw_only=True):
    """A breaker before and after a change, and the time of the change by the clock of the store."""

    before: Breaker
    after: Breaker
    now: datetime


class LimitStore(Protocol):
    """Stores rate limits."""

    async def set(self, key: str, after: timedelta, reason: str, rate: float | None = None) -> datetime:
        """Limit all calls under `key` in all processes and return the end of the limit. Never shortens a limit."""
        ...

    async def recover(self, key: str, rate: float | None, *, before: float) -> bool:
        """Store a recovered rate, None for no limit; return False if the stored rate is no longer `before`."""
        ...

    async def holding(self, scope: str) -> Sequence[HeldLimit]:
        """Return the current limits on `scope` and its methods, and past ones that still have a rate."""
        ...


class BreakerStore(Protocol):
    """Stores circuit breakers."""

    async def read(self, key: str) -> tuple[Breaker, datetime]:
        """Return the breaker (a closed one if none is stored) and the time of the store."""
        ...

    async def change(self, key: str, move: Move) -> BreakerMove:
        """Change a breaker by a pure function of the breaker and the time; changes are serialized between processes."""
        ...


class CallTracing(Protocol):
    """Traces single calls."""

    async def request(self, scope: str, method: str, target: str, making: Awaitable[T]) -> T:
        """Await `making` inside a trace span and return its result."""
        ...
