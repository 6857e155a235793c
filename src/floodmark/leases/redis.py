"""Leases as Redis keys with an expiry: `<name>` -> holder. They vanish by themselves.

When Redis cannot be reached the fallback decides. For a moment two may then hold one lease: see the port.
"""

from datetime import timedelta

from redis.asyncio import Redis
from redis.exceptions import RedisError

from floodmark.lua import Script
from floodmark.telemetry.events import Events, QueueDegraded

from .port import Leases

_AWAY = (RedisError, OSError, TimeoutError)


class RedisLeases:
    """Leases that are quick to take and end by themselves."""

    def __init__(self, redis: Redis, fallback: Leases, events: Events) -> None:
        self._redis, self._fallback, self._events = redis, fallback, events
        self._acquire = Script(redis, "leases", "acquire")
        self._release = Script(redis, "leases", "release")
        self._is_away = False

    async def acquire(self, name: str, *, holder: str, ttl: timedelta) -> bool:
        """Take or renew the lease."""
        try:
            is_ours = bool(await self._acquire([name], [holder, int(ttl.total_seconds() * 1000)]))
        except _AWAY as error:
            self._lost(error)
            return await self._fallback.acquire(name, holder=holder, ttl=ttl)
        self._is_away = False
        return is_ours

    async def release(self, name: str, *, holder: str) -> None:
        """Give it back, if it is still ours, wherever we got it."""
        try:
            await self._release([name], [holder])
        except _AWAY as error:
            self._lost(error)
        await self._fallback.release(name, holder=holder)

    async def holder(self, name: str) -> str | None:
        """Who holds it now."""
        try:
            found = await self._redis.get(name)
        except _AWAY as error:
            self._lost(error)
            return await self._fallback.holder(name)
        return found.decode() if isinstance(found, bytes) else found

    def _lost(self, error: BaseException) -> None:
        """Say it once, not at every call until Redis is back."""
        if not self._is_away:
            self._is_away = True
            self._events.emit(QueueDegraded(reason=f"leases: {str(error) or type(error).__name__}"))
