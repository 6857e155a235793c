"""Delivers events to one sink. Table: `consumers`, one row for each sink: `sink:<name>`."""

import time
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import structlog

from floodmark.coordination.leader import Leader
from floodmark.model.consumers import ConsumerRow
from floodmark.store.consumers import Consumers
from floodmark.store.events import EventLog

from .port import EventSink, FillsFirst

_AT_ONCE = 500
# Rest this many times as long as the delivery took: a sink that writes large files must not write all the time.
_REST = 4


class Delivery:
    """Delivers events to one sink, from its stored position on. Only the leader delivers.

    After a crash it continues from the stored position; the events of one `send` may be delivered twice.
    The state of a sink that is being filled is the start of the next page.
    """

    def __init__(self, name: str, sink: EventSink, log: EventLog, consumers: Consumers, leader: Leader) -> None:
        self.name, self._sink, self._log, self._consumers, self._leader = name, sink, log, consumers, leader
        self._consumer, self._rests_until, self._is_entered = f"sink:{name}", 0.0, False

    async def step(self) -> timedelta | None:
        """Deliver one batch; return zero if there is more to deliver."""
        began = time.monotonic()
        if not self._leader.is_leader or began < self._rests_until:
            return None
        stored = await self._stored()
        if stored.paused:
            return None
        await self._enter()
        is_done = await (self._follow(stored) if stored.state is None else self._fill(stored))
        if not is_done:
            return timedelta()
        now = time.monotonic()
        self._rests_until = now + _REST * (now - began)
        return None

    async def close(self) -> None:
        """Exit the sink."""
        if self._is_entered and isinstance(self._sink, AbstractAsyncContextManager):
            self._is_entered = False
            await self._sink.__aexit__(None, None, None)

    async def _enter(self) -> None:
        if not self._is_entered and isinstance(self._sink, AbstractAsyncContextManager):
            await self._sink.__aenter__()
        self._is_entered = True

    async def _stored(self) -> ConsumerRow:
        """Return the stored position. Without a valid one the sink starts with the oldest event, or is filled first."""
        stored = await self._consumers.find(self._consumer)
        oldest, newest = await self._log.bounds()
        if stored is not None and stored.place == self._sink.place:
            # It is invalid if events after it were deleted, or if the database was restored to an earlier time.
            if oldest - 1 <= stored.position <= newest:
                return stored
            if newest > 0:
                structlog.get_logger().warning(
                    "sink starts again: events after its position were deleted",
                    sink=self.name,
                    position=stored.position,
                    oldest=oldest,
                )
        if isinstance(self._sink, FillsFirst):
            await self._consumers.start(self._consumer, newest, place=self._sink.place, state={})
        else:
            await self._consumers.start(self._consumer, max(oldest - 1, 0), place=self._sink.place)
        started = await self._consumers.find(self._consumer)
        assert started is not None
        return started

    async def _follow(self, stored: ConsumerRow) -> bool:
        events = await self._log.after(stored.position, _AT_ONCE)
        if not events:
            return True
        accepted = await self._sink.send(events)
        count = len(events) if accepted is None else accepted
        if not 0 <= count <= len(events):
            raise ValueError(f"the sink {self.name} received {len(events)} events and says that it accepted {count}")
        if count == 0:
            # Nothing was delivered: the position stays, and the next step tries again.
            return True
        await self._consumers.move(self._consumer, stored.position, events[count - 1].position)
        return count == len(events) < _AT_ONCE

    async def _fill(self, stored: ConsumerRow) -> bool:
        assert isinstance(self._sink, FillsFirst)
        filling = await self._sink.fill(stored.state)
        await self._consumers.move(self._consumer, stored.position, stored.position, state=filling)
        return False
