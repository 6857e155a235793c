"""Limits and circuit breakers."""

from datetime import timedelta

from floodmark.model.limits import BreakerRow, LimitRow
from floodmark.operations.limits import LimitOperations
from floodmark.outbound.breakers import Breakers
from floodmark.outbound.limits import Limits

from .base import Handlers


class LimitHandlers(LimitOperations, Handlers):
    """Limits and circuit breakers in the store."""

    async def limits(self, *, with_past: bool = False, limit: int = 100) -> list[LimitRow]:
        return await self._limits.page(with_past=with_past, limit=limit)

    async def set_limit(self, key: str, seconds: float, reason: str) -> LimitRow:
        async with self.changing():
            await self._limits.set(key, timedelta(seconds=seconds), reason)
            limit = await self._limits.show(key)
            await self.note("limit.set", f"limit:{key}", after={"until": limit.until, "reason": limit.reason})
        return limit

    async def clear_limit(self, key: str) -> LimitRow:
        async with self.changing():
            limit = await self._limits.clear(key)
            await self.note("limit.cleared", f"limit:{key}", before={"until": limit.until, "reason": limit.reason})
        return limit

    async def breakers(self, *, limit: int = 100) -> list[BreakerRow]:
        return await self._breakers.page(limit=limit)

    async def reset_breaker(self, key: str) -> BreakerRow:
        async with self.changing():
            before = await self._breakers.reset(key)
            was, now = {"state": before.state}, {"state": "closed"}
            await self.note("breaker.reset", f"breaker:{key}", before=was, after=now)
        return before

    @property
    def _limits(self) -> Limits:
        return self.resources.repositories.limits

    @property
    def _breakers(self) -> Breakers:
        return self.resources.repositories.breakers
