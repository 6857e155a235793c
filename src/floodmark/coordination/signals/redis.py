"""Signals through Redis Pub/Sub: the channel is `<prefix>:signals`, the message is the topic.

Pub/Sub does not store messages, so all bells ring after every reconnect.
"""

from datetime import timedelta

from redis.asyncio import Redis
from redis.exceptions import RedisError

from floodmark.coordination.redis_connection import PubSubReader
from floodmark.observability.events import Events

from .listening import ListeningSignals
from .port import Topic

_READ_SECONDS = 1.0


class RedisSignals(ListeningSignals):
    """Signals to every process on the same Redis."""

    _lost_errors = (RedisError, OSError)

    def __init__(self, redis: Redis, prefix: str, events: Events, *, step: timedelta) -> None:
        super().__init__(events)
        self._redis, self._channel, self._step = redis, f"{prefix}:signals", step

    async def notify(self, topic: Topic) -> None:
        """Notify every process; this one directly. A failure is reported, not raised."""
        self._bells.ring(topic)
        try:
            await self._redis.publish(self._channel, topic.value)
        except self._lost_errors as error:
            self._report(error)

    async def _listen_until_lost(self) -> None:
        async with self._redis.pubsub(ignore_subscribe_messages=True) as pubsub:
            await pubsub.subscribe(self._channel)
            self._mark_connected()
            reader = PubSubReader(pubsub, step=self._step)
            while True:
                message = await reader.next(_READ_SECONDS)
                if message is not None:
                    self._receive(message["data"].decode(errors="replace"))
