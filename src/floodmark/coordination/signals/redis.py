"""Signals through Redis Pub/Sub, channel `<prefix>:signals`, the topic as message.

Pub/Sub forgets what it could not deliver: after every reconnect all bells ring.
"""

import asyncio
from contextlib import suppress
from datetime import timedelta

from redis.asyncio import Redis
from redis.exceptions import RedisError

from floodmark.coordination.redis_connection import Listening
from floodmark.observability.events import Events, StepFailed

from .port import Bell, Bells, Topic

_RECONNECT_SECONDS, _LISTEN_SECONDS = 1.0, 1.0


class RedisSignals:
    """Reaches every process on the same Redis."""

    def __init__(self, redis: Redis, prefix: str, events: Events, *, step: timedelta) -> None:
        self._step = step
        self._redis, self._channel, self._events = redis, f"{prefix}:signals", events
        self._bells = Bells()
        self._listener: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()

    async def start(self) -> None:
        """Begin to listen; returns once we do, or soon when Redis is away."""
        self._listener = asyncio.create_task(self._listen(), name="signals")
        with suppress(TimeoutError):
            await asyncio.wait_for(self._tried.wait(), 5)

    async def notify(self, topic: Topic) -> None:
        """Tell every process, this one without the detour."""
        self._bells.ring(topic)
        try:
            await self._redis.publish(self._channel, topic.value)
        except (RedisError, OSError) as error:
            self._events.emit(StepFailed(step="signals", error=str(error) or type(error).__name__))

    def bell(self, topic: Topic) -> Bell:
        """Something to wait on."""
        return self._bells.add(topic)

    async def stop(self) -> None:
        """Cease to listen."""
        if self._listener is not None:
            self._listener.cancel()
            with suppress(asyncio.CancelledError):
                await self._listener

    async def _listen(self) -> None:
        while True:
            try:
                await self._listen_until_lost()
            except (RedisError, OSError) as error:
                self._events.emit(StepFailed(step="signals", error=str(error)))
            # Whoever starts us need not wait for a server that is away.
            self._tried.set()
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def _listen_until_lost(self) -> None:
        async with self._redis.pubsub(ignore_subscribe_messages=True) as pubsub:
            await pubsub.subscribe(self._channel)
            self._bells.ring_all()
            self._tried.set()
            listening = Listening(pubsub, step=self._step)
            while True:
                message = await listening.next(_LISTEN_SECONDS)
                if message is None:
                    continue
                with suppress(ValueError):  # a topic of a newer version is none of our business
                    self._bells.ring(Topic(message["data"].decode()))
