"""Leases of the database, announced in Redis: `<prefix>:<name>` -> holder, with an expiry.

The database alone decides who holds a lease: a holder that cannot reach the database cannot do its work either, and
must not keep a lease that another process could use. The key in Redis is for people and monitoring. A process that
does not reach Redis holds a lease only until a process that reaches it asks for the lease.
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

# A renewal must not wait long for Redis, or the lease could expire.
_SHORTEST_WAIT, _LONGEST_WAIT = timedelta(seconds=0.2), timedelta(seconds=1)


class RedisLeases:
    """Leases of the database that prefer holders with a connection to Redis."""

    def __init__(self, redis: Redis, leases: YieldingLeases, events: Events, *, prefix: str) -> None:
        self._redis, self._leases, self._events, self._prefix = redis, leases, events, prefix
        self._release = Script(redis, __package__, "release")
        self._is_unreachable = False

    async def acquire(self, name: str, *, holder: str, ttl: timedelta) -> bool:
        """Take or renew the lease in the database, then announce it."""
        patience = max(_SHORTEST_WAIT, min(_LONGEST_WAIT, ttl / 6))
        reaches_redis = await self._try_redis(self._redis.ping(), patience)
        won = await self._leases.acquire(name, holder=holder, ttl=ttl, yields=not reaches_redis)
        if won and reaches_redis:
            milliseconds = int(ttl.total_seconds() * 1000)
            await self._try_redis(self._redis.set(self._key(name), holder, px=milliseconds), patience)
        return won

    async def release(self, name: str, *, holder: str) -> None:
        """End the lease if `holder` still holds it."""
        await self._leases.release(name, holder=holder)
        await self._try_redis(self._release([self._key(name)], [holder]), _LONGEST_WAIT)

    async def holder(self, name: str) -> str | None:
        """Return the current holder, if any."""
        return await self._leases.holder(name)

    async def _try_redis(self, call: Awaitable[Any], patience: timedelta) -> bool:
        """Return whether Redis answered in time. Only the first of several failures in a row is reported."""
        try:
            async with asyncio.timeout(patience.total_seconds()):
                await call
        except (RedisError, OSError) as error:
            if not self._is_unreachable:
                self._events.emit(QueueDegraded(reason=f"leases: {str(error) or type(error).__name__}"))
            self._is_unreachable = True
            return False
        self._is_unreachable = False
        return True

    def _key(self, name: str) -> str:
        return f"{self._prefix}:{name}"
