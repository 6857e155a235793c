"""Connections to Redis that cannot hang for longer than one step may take. Import it only where there is a Redis."""

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

# A Redis that takes longer than this to answer is treated as away; blocking reads wait less than it.
_LONGEST_ANSWER = timedelta(seconds=4)


class _Pool(ConnectionPool):
    """Drops all idle connections once one has failed: those that have fallen silent would each cost a time-out."""

    async def release(self, connection: AbstractConnection) -> None:
        await super().release(connection)
        if not connection.is_connected:
            await self.disconnect(inuse_connections=False)


def open_redis(url: str, *, max_connections: int, step: timedelta) -> Redis:
    """A client whose every call ends, one way or the other, within the time of a step."""
    answer = min(_LONGEST_ANSWER, step).total_seconds()
    sockets = {} if url.startswith("unix:") else {"socket_keepalive_options": keepalive_options(step)}
    pool = _Pool.from_url(
        url,
        max_connections=max_connections,
        socket_timeout=answer,
        socket_connect_timeout=answer,
        # Our own loops decide when to try again; a hidden retry would only make a blocked call longer.
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        **({"socket_keepalive": True, **sockets} if sockets else {}),
    )
    return Redis.from_pool(pool)


class Listening:
    """Messages of Pub/Sub. Nobody sends anything on a quiet channel, so only asking shows that Redis still answers."""

    def __init__(self, pubsub: PubSub, *, step: timedelta) -> None:
        self.pubsub, self._step = pubsub, step.total_seconds()
        self._heard_at = self._asked_at = time.monotonic()

    async def next(self, timeout: float) -> Mapping[str, Any] | None:
        """The next message, or None after `timeout` seconds. Raises once Redis has not answered for a step."""
        if self._asked_at <= self._heard_at and time.monotonic() - self._heard_at > self._step / 3:
            self._asked_at = time.monotonic()
            await self.pubsub.ping()
        message: Mapping[str, Any] | None = await self.pubsub.get_message(
            ignore_subscribe_messages=True, timeout=timeout
        )
        now = time.monotonic()
        if message is not None:
            self._heard_at = now
        elif self._asked_at > self._heard_at and now - self._asked_at > self._step:
            raise TimeoutError(f"Redis has not answered for {self._step:g} s")
        return None if message is None or message["type"] == "pong" else message
