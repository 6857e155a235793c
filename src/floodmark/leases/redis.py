"""Leases as Redis keys with an expiry: `<name>` -> holder. They vanish by themselves.

When Redis cannot be reached the fallback decides. For a moment two may then hold one lease: see the port.
"""

from datetime import timedelta

from redis.asyncio import Redis
from redis.exceptions import RedisError

from floodmark.lua import Script
from floodmark.telemetry.events import Events, QueueDegraded

from .port import Leases


class RedisLeases:
    """Leases that are quick to take and end by themselves."""

    def __init__(self, redis: Redis, fallback: Leases, events: Events) -> None:
        self._redis, self._fallback, self._events = redis, fallback, events
        self._acquire = Script(redis, "leases", "acquire")
        self._release = Script(redis, "leases", "release")

    async def acquire(self, name: str, *, holder: str, ttl: timedelta) -> bool:
        """Take or renew the lease."""
        try:
            return bool(await self._acquire([name], [holder, int(ttl.total_seconds() * 1000)]))
        except (RedisError, OSError) as error:
            self._events.emit(QueueDegraded(reason=f"leases: {error}"))
            return await self._fallback.acquire(name, holder=holder, ttl=ttl)

    async def release(self, name: str, *, holder: str) -> None:
        """Give it back, if it is still ours, wherever we got it."""
        try:
            await self._release([name], [holder])
        except (RedisError, OSError) as error:
            self._events.emit(QueueDegraded(reason=f"leases: {error}"))
        await self._fallback.release(name, holder=holder)

    async def holder(self, name: str) -> str | None:
        """Who holds it now."""
        try:
            found = await self._redis.get(name)
        except (RedisError, OSError) as error:
            self._events.emit(QueueDegraded(reason=f"leases: {error}"))
            return await self._fallback.holder(name)
        return found.decode() if isinstance(found, bytes) else found
