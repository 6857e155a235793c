"""Connections to Redis that cannot hang for longer than one step may take. Import it only when Redis is configured."""

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.client import PubSub
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from floodmark.store.postgres_connection import keepalive_options

# A Redis that takes longer than this to answer counts as unreachable; blocking reads use a shorter time-out.
_LONGEST_ANSWER = timedelta(seconds=4)


class _RedisPool(ConnectionPool):
    """Drops all idle connections once one has failed: each dead one would cost a time-out of its own."""

    async def release(self, connection: AbstractConnection) -> None:
        await super().release(connection)
        if not connection.is_connected:
            await self.disconnect(inuse_connections=False)


def open_redis(url: str, *, max_connections: int, step: timedelta) -> Redis:
    """Return a client whose calls all end, or fail, within the time of a step."""
    answer = min(_LONGEST_ANSWER, step).total_seconds()
    keepalive = {"socket_keepalive": True, "socket_keepalive_options": keepalive_options(step)}
    pool = _RedisPool.from_url(
        url,
        max_connections=max_connections,
        socket_timeout=answer,
        socket_connect_timeout=answer,
        # Our own loops retry; a retry inside the client would only make a blocked call longer.
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        **({} if url.startswith("unix:") else keepalive),
    )
    return Redis.from_pool(pool)


class PubSubReader:
    """Reads messages of Pub/Sub. It pings Redis on a quiet channel, to notice a connection that is dead."""

    def __init__(self, pubsub: PubSub, *, step: timedelta) -> None:
        self.pubsub, self._step = pubsub, step.total_seconds()
        self._answered_at = self._pinged_at = time.monotonic()

    async def next(self, timeout: float) -> Mapping[str, Any] | None:
        """Return the next message, or None after `timeout` seconds. Raises once Redis has not answered for a step."""
        if self._pinged_at <= self._answered_at and time.monotonic() - self._answered_at > self._step / 3:
            self._pinged_at = time.monotonic()
            await self.pubsub.ping()
        message: Mapping[str, Any] | None = await self.pubsub.get_message(
            ignore_subscribe_messages=True, timeout=timeout
        )
        now = time.monotonic()
        if message is not None:
            self._answered_at = now
        elif self._pinged_at > self._answered_at and now - self._pinged_at > self._step:
            raise TimeoutError(f"Redis has not answered for {self._step:g} s")
        return None if message is None or message["type"] == "pong" else message
