"""Events leave the outbox: numbered in order for readers of the store, and copied to a Redis stream if there is one.

`<prefix>:events`  stream, bounded by EVENTS_STREAM_MAXLEN; fields event_id, type, kind, stream, key, data, ...,
                   and traceparent if what it came from was traced
At least once: a crash between copying and committing repeats events under the same `event_id`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from floodmark.coordination.leader import Leader
from floodmark.coordination.lua import Script
from floodmark.model.clock import Clock
from floodmark.observability.events import Events, EventsRelayed
from floodmark.observability.tracing import Tracing
from floodmark.outbound.retrying import Retrying, RetryPolicy
from floodmark.process.failpoints import failpoint
from floodmark.store.port import Keeping, Unsent

if TYPE_CHECKING:
    from redis.asyncio import Redis

_AT_ONCE = 500

_encoder = msgspec.json.Encoder()


def _away() -> tuple[type[Exception], ...]:
    from redis.exceptions import ConnectionError as NotReached  # noqa: PLC0415 - see `redis_errors`
    from redis.exceptions import TimeoutError as NotInTime  # noqa: PLC0415

    return NotReached, NotInTime


class Relay:
    """Sends what is in the outbox, in order. Only the leader relays."""

    def __init__(
        self,
        keeping: Keeping,
        leader: Leader,
        events: Events,
        clock: Clock,
        *,
        redis: "Redis | None" = None,
        prefix: str = "crawler",
        maxlen: int = 100_000,
        retry: RetryPolicy | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._keeping, self._leader, self._events, self._clock = keeping, leader, events, clock
        self._key, self._maxlen = f"{prefix}:events", maxlen
        self._publish_all = None if redis is None else Script(redis, __package__, "publish")
        self._stopping, self._tracing = asyncio.Event(), tracing
        self._retrying = Retrying(
            retry or RetryPolicy(), events, sleep=self._pause, passing=() if redis is None else _away()
        )

    def stop(self) -> None:
        """Try nothing again: what is left in the outbox is for the next leader."""
        self._stopping.set()

    async def step(self) -> timedelta | None:
        """One portion. While Redis is away it is tried again, each time from the beginning.

        Nothing is held meanwhile, and nothing overtakes: the portion is numbered anew, in the same order.
        """
        if not self._leader.is_leader:
            return None
        return await self._retrying.call(self._portion, target="redis", method="publish")

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _portion(self) -> timedelta | None:
        if self._stopping.is_set() or not self._leader.is_leader:
            return None
        lag = 0.0

        async def publish(events: Sequence[Unsent]) -> None:
            nonlocal lag
            lag = (self._clock.now() - events[0].collected_at).total_seconds()
            with self._traced(events) as spans:
                if self._publish_all is not None:
                    fields = (_fields(event, spans.get(event.traceparent, event.traceparent)) for event in events)
                    await self._publish_all([self._key], [self._maxlen, *fields])
            failpoint("relay.published")

        sent = await self._keeping.relay(publish, limit=_AT_ONCE)
        if sent:
            self._events.emit(EventsRelayed(sent, lag))
        return timedelta() if sent == _AT_ONCE else None

    def _traced(self, events: Sequence[Unsent]) -> AbstractContextManager[Mapping[str | None, str | None]]:
        """What events go on from, by what they came from."""
        return nullcontext({}) if self._tracing is None else self._tracing.relay([e.traceparent for e in events])


def _fields(event: Unsent, traceparent: str | None) -> bytes:
    """A flat list of names and values, packed so that one argument carries one event."""
    fields: list[Any] = [
        "event_id", event.event_id,
        "type", event.type,
        "kind", event.kind,
        "stream", event.stream,
        "key", event.key,
        "revision", str(event.revision),
        "position", str(event.position),
        "occurred_at", _text(event.occurred_at) if event.occurred_at else "",
        "collected_at", _text(event.collected_at),
        "tenant_id", event.tenant_id or "",
        "user_id", event.user_id or "",
        "data", event.data,
    ]  # fmt: skip
    if traceparent is not None:
        fields += ["traceparent", traceparent]
    return msgspec.msgpack.encode(fields)


def _text(moment: datetime) -> str:
    """What `isoformat` says of a moment in UTC, ten times as fast."""
    return f"{_encoder.encode(moment)[1:-2].decode()}+00:00"
