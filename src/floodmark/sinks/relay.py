"""Takes events from the outbox: numbers them in order for readers of the store, and sends them to relayed sinks.

At least once: after a crash between sending and committing, events are sent again with the same `event_id`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

from msgspec.structs import replace

from floodmark.coordination.leader import Leader
from floodmark.errors import Transient
from floodmark.model.clock import Clock
from floodmark.observability.events import Events, EventsRelayed
from floodmark.observability.tracing import Tracing
from floodmark.outbound.retrying import Retrying, RetryPolicy
from floodmark.process.failpoints import failpoint
from floodmark.store.port import Keeping, Unsent

from .port import EventSink

_AT_ONCE = 500


class Relay:
    """Sends the events of the outbox in order. Only the leader relays."""

    def __init__(
        self,
        keeping: Keeping,
        leader: Leader,
        events: Events,
        clock: Clock,
        *,
        sinks: Mapping[str, EventSink] | None = None,
        retry: RetryPolicy | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._keeping, self._leader, self._events, self._clock = keeping, leader, events, clock
        self._sinks, self._names = tuple((sinks or {}).values()), ", ".join(sinks or {})
        self._stopping, self._tracing, self._has_failed = asyncio.Event(), tracing, False
        self._retrying = Retrying(retry or RetryPolicy(), events, sleep=self._pause, passing=(Transient,))

    def stop(self) -> None:
        """Stop retrying: the next leader sends the rest of the outbox."""
        self._stopping.set()

    async def finish(self) -> None:
        """Send what was stored since the last step, when the process stops. After a failure the next leader does it."""
        if self._leader.is_leader and not self._has_failed:
            while await self._relay_batch() is not None:
                pass

    async def step(self) -> timedelta | None:
        """Send one batch. While a sink cannot be reached, the whole batch is tried again.

        No lock is held between the attempts, and each attempt numbers the events in the same order.
        """
        if not self._leader.is_leader:
            return None
        self._has_failed = True
        pause = await self._retrying.call(self._send_batch, target=self._names, method="publish")
        self._has_failed = False
        return pause

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _send_batch(self) -> timedelta | None:
        if self._stopping.is_set() or not self._leader.is_leader:
            return None
        return await self._relay_batch()

    async def _relay_batch(self) -> timedelta | None:
        lag = 0.0

        async def publish(events: Sequence[Unsent]) -> None:
            nonlocal lag
            lag = (self._clock.now() - events[0].collected_at).total_seconds()
            await self._send(events)
            failpoint("relay.published")

        sent = await self._keeping.relay(publish, limit=_AT_ONCE)
        if sent:
            self._events.emit(EventsRelayed(sent, lag))
        return timedelta() if sent == _AT_ONCE else None

    async def _send(self, events: Sequence[Unsent]) -> None:
        if self._tracing is None:
            return await self._send_all(events)
        # The span of the relay becomes the parent of each traced event.
        with self._tracing.relay([event.traceparent for event in events]) as spans:
            traced = [replace(event, traceparent=spans.get(event.traceparent, event.traceparent)) for event in events]
            return await self._send_all(traced)

    async def _send_all(self, events: Sequence[Unsent]) -> None:
        for sink in self._sinks:
            await sink.send(events)
