"""Leases of the database, announced in Redis: `<prefix>:<name>` -> holder, with an expiry.

The database alone decides who holds a lease: a holder that cannot reach the database cannot do its work either, and
must not keep a lease that another could use. Redis shows the holder to anyone who looks. A process that does not
reach Redis holds a lease only until a process that does asks for it.
"""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from floodmark.coordination.lua import Script
from floodmark.observability.events import Events, QueueDegraded

from .port import YieldingLeases

_AWAY = (RedisError, OSError, TimeoutError)
# A renewal must not wait long for Redis: it would be late.
_SHORTEST_WAIT, _LONGEST_WAIT = timedelta(seconds=0.2), timedelta(seconds=1)


class RedisLeases:
    """Leases of the database that prefer holders with a connection to Redis."""

    def __init__(self, redis: Redis, leases: YieldingLeases, events: Events, *, prefix: str) -> None:
        self._redis, self._leases, self._events, self._prefix = redis, leases, events, prefix
        self._release = Script(redis, __package__, "release")
        self._is_away = False

    async def acquire(self, name: str, *, holder: str, ttl: timedelta) -> bool:
        """Take or renew the lease in the database, then announce it."""
        patience = max(_SHORTEST_WAIT, min(_LONGEST_WAIT, ttl / 6))
        reaches_redis = await self._asks(self._redis.ping(), patience)
        won = await self._leases.acquire(name, holder=holder, ttl=ttl, yields=not reaches_redis)
        if won and reaches_redis:
            milliseconds = int(ttl.total_seconds() * 1000)
            await self._asks(self._redis.set(self._key(name), holder, px=milliseconds), patience)
        return won

    async def release(self, name: str, *, holder: str) -> None:
        """Give it back, if it is still ours."""
        await self._leases.release(name, holder=holder)
        await self._asks(self._release([self._key(name)], [holder]), _LONGEST_WAIT)

    async def holder(self, name: str) -> str | None:
        """Who holds it now."""
        return await self._leases.holder(name)

    async def _asks(self, question: Awaitable[Any], patience: timedelta) -> bool:
        """Whether Redis answered in time. That it did not is reported once, not at every call until it does."""
        try:
            async with asyncio.timeout(patience.total_seconds()):
                await question
        except _AWAY as error:
            if not self._is_away:
                self._events.emit(QueueDegraded(reason=f"leases: {str(error) or type(error).__name__}"))
            self._is_away = True
            return False
        self._is_away = False
        return True

    def _key(self, name: str) -> str:
        return f"{self._prefix}:{name}"
