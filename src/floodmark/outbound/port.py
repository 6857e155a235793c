"""What calls need of the store: limits and breakers that hold for the whole fleet and survive restarts."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from msgspec import Struct

from floodmark.rules.breaker import Breaker

Move = Callable[[Breaker, datetime], Breaker]
T = TypeVar("T")


class HeldLimit(Struct, frozen=True, kw_only=True, gc=False):
    """Everything under `key` waits for another `rest` (none is left if it is not above 0).

    `rate`: calls a second that it was slowed down to. A length of time, because clocks differ.
    """

    key: str
    rest: timedelta
    reason: str
    rate: float | None = None


class BreakerMove(Struct, frozen=True, kw_only=True):
    """A breaker before and after it was moved, and when that was, by the clock of the store."""

    before: Breaker
    after: Breaker
    now: datetime


class LimitStore(Protocol):
    """Who has to wait."""

    async def set(self, key: str, after: timedelta, reason: str, rate: float | None = None) -> datetime:
        """Let everything under `key` wait, at once and for everyone; until when. Never shortens a limit."""
        ...

    async def recover(self, key: str, rate: float | None, *, before: float) -> bool:
        """Store the calls a second that are regained, None for no pace; False if it is not `before` any more."""
        ...

    async def holding(self, scope: str) -> Sequence[HeldLimit]:
        """The limits on `scope` and on what lies under it that hold, and those past ones that tell a rate."""
        ...


class BreakerStore(Protocol):
    """Who is not called for a while."""

    async def read(self, key: str) -> tuple[Breaker, datetime]:
        """The breaker, a closed one if there is none, and what time it is for the store."""
        ...

    async def change(self, key: str, move: Move) -> BreakerMove:
        """Move a breaker by a pure function of it and the time, one process after the other."""
        ...


class CallTracing(Protocol):
    """Who wants to know how long calls take, one by one."""

    async def request(self, scope: str, method: str, target: str, making: Awaitable[T]) -> T:
        """Make a call, and time it."""
        ...
