"""Delivers events to one sink. Table: `facts`, one row for each sink: `<name>.position`."""

import time
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import msgspec
import structlog
from msgspec import Struct

from floodmark.coordination.leader import Leader
from floodmark.store.events import EventLog
from floodmark.store.fleet import FleetRepository

from .port import EventSink, FillsFirst

_AT_ONCE = 500
# Rest this many times as long as the delivery took: a sink that writes large files must not write all the time.
_REST = 4


class SinkPosition(Struct, frozen=True, rename={"place": "folder"}):
    """The progress of a sink. The place is stored as `folder`, because the first sink wrote files."""

    place: str
    position: int
    """Every event up to this one was delivered."""
    filling: Any = None
    """The start of the next page, while the sink is being filled."""


class Delivery:
    """Delivers events to one sink, from its stored position on. Only the leader delivers.

    After a crash it continues from the stored position; the events of one `send` may be delivered twice.
    """

    def __init__(self, name: str, sink: EventSink, log: EventLog, fleet: FleetRepository, leader: Leader) -> None:
        self.name, self._sink, self._log, self._fleet, self._leader = name, sink, log, fleet, leader
        self._fact, self._rests_until, self._is_entered = f"{name}.position", 0.0, False

    async def step(self) -> timedelta | None:
        """Deliver one batch; return zero if there is more to deliver."""
        began = time.monotonic()
        if not self._leader.is_leader or began < self._rests_until:
            return None
        await self._enter()
        position = await self._position()
        is_done = await (self._follow(position) if position.filling is None else self._fill(position))
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

    async def _position(self) -> SinkPosition:
        stored = await self._fleet.get_fact(self._fact)
        oldest, newest = await self._log.bounds()
        if stored is not None:
            position = msgspec.convert(stored, SinkPosition)
            # It is invalid if events after it were deleted, or if the database was restored to an earlier time.
            if position.place == self._sink.place and oldest - 1 <= position.position <= newest:
                return position
            if position.place == self._sink.place and newest > 0:
                structlog.get_logger().warning(
                    "sink starts again: events after its position were deleted",
                    sink=self.name,
                    position=position.position,
                    oldest=oldest,
                )
        if isinstance(self._sink, FillsFirst):
            return SinkPosition(self._sink.place, newest, filling={})
        return SinkPosition(self._sink.place, max(oldest - 1, 0))

    async def _follow(self, position: SinkPosition) -> bool:
        events = await self._log.after(position.position, _AT_ONCE)
        if not events:
            return True
        accepted = await self._sink.send(events)
        count = len(events) if accepted is None else accepted
        if not 0 <= count <= len(events):
            raise ValueError(f"the sink {self.name} received {len(events)} events and says that it accepted {count}")
        if count == 0:
            # Nothing was delivered: the position stays, and the next step tries again.
            return True
        await self._move(SinkPosition(position.place, events[count - 1].position))
        return count == len(events) < _AT_ONCE

    async def _fill(self, position: SinkPosition) -> bool:
        assert isinstance(self._sink, FillsFirst)
        filling = await self._sink.fill(position.filling)
        await self._move(SinkPosition(position.place, position.position, filling))
        return False

    async def _move(self, position: SinkPosition) -> None:
        await self._fleet.set_fact(self._fact, msgspec.to_builtins(position))
