"""Queues executions again whose lease has expired."""

from datetime import timedelta

from floodmark.observability.events import Events, ExecutionsGivenUp, ExecutionsRescued
from floodmark.process.failpoints import failpoint
from floodmark.queue.port import Publisher
from floodmark.store.port import Upkeep

_AT_ONCE = 500


class Rescuer:
    """running -> queued when a lease has expired. Runs only on the leader."""

    def __init__(self, upkeep: Upkeep, queue: Publisher, events: Events, *, rescue_max: int) -> None:
        self._upkeep, self._queue, self._events, self._rescue_max = upkeep, queue, events, rescue_max

    async def step(self) -> timedelta | None:
        """Rescue one portion; returns at once while there may be more."""
        rescued = await self._upkeep.rescue(limit=_AT_ONCE, rescue_max=self._rescue_max)
        if rescued.dead:
            self._events.emit(ExecutionsGivenUp(rescued.dead))
        if rescued.queued:
            failpoint("rescue.committed")
            await self._queue.put(rescued.queued, again=True)
            self._events.emit(ExecutionsRescued(len(rescued.queued)))
        return timedelta() if len(rescued.queued) == _AT_ONCE else None
