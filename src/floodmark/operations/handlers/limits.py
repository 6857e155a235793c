"""Handlers of limits and circuit breakers."""

from datetime import timedelta

from floodmark.model.limits import BreakerRow, LimitRow
from floodmark.operations.limits import LimitOperations

from .base import Handlers


class LimitHandlers(LimitOperations, Handlers):
    """Limits and circuit breakers in the store."""

    async def limits(self, *, with_past: bool = False, limit: int = 100) -> list[LimitRow]:
        return await self.store.limits.page(with_past=with_past, limit=limit)

    async def set_limit(self, key: str, seconds: float, reason: str) -> LimitRow:
        async with self.transaction():
            await self.store.limits.set(key, timedelta(seconds=seconds), reason)
            limit = await self.store.limits.show(key)
            await self.record("limit.set", f"limit:{key}", after={"until": limit.until, "reason": limit.reason})
        return limit

    async def clear_limit(self, key: str) -> LimitRow:
        async with self.transaction():
            limit = await self.store.limits.clear(key)
            await self.record("limit.cleared", f"limit:{key}", before={"until": limit.until, "reason": limit.reason})
        return limit

    async def breakers(self, *, limit: int = 100) -> list[BreakerRow]:
        return await self.store.breakers.page(limit=limit)

    async def reset_breaker(self, key: str) -> BreakerRow:
        async with self.transaction():
            before = await self.store.breakers.reset(key)
            was, now = {"state": before.state}, {"state": "closed"}
            await self.record("breaker.reset", f"breaker:{key}", before=was, after=now)
        return before
