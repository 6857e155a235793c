"""Queues what is due again, and what the queue has forgotten."""

import time
from datetime import timedelta

from floodmark.observability.events import Events, ExecutionsRequeued
from floodmark.process.failpoints import failpoint
from floodmark.queue.port import Publisher
from floodmark.store.port import Upkeep

_AT_ONCE = 1000
_AT_MOST_OFTEN = timedelta(milliseconds=25)
_RARELY = timedelta(seconds=1)


class Waker:
    """waiting -> queued when the time has come or what stood in the way is gone. Only the leader wakes.

    One execution of a job gives way to the next, so whatever was woken may soon let another one through: it looks
    again at once, then ever more rarely until something wakes. Of a long look it rests four times as long.
    """

    def __init__(self, upkeep: Upkeep, queue: Publisher) -> None:
        self._upkeep, self._queue = upkeep, queue
        self._pause = _RARELY

    async def step(self) -> timedelta | None:
        """Once through all that can go on now."""
        began = time.monotonic()
        woken = await self._upkeep.wake(limit=_AT_ONCE)
        if woken:
            failpoint("wake.committed")
            # Again: the worker that let it go may not have taken its old entry away yet.
            await self._queue.put(woken, again=True)
        if len(woken) >= _AT_ONCE:
            return timedelta()
        self._pause = _AT_MOST_OFTEN if woken else min(self._pause * 2, _RARELY)
        return max(self._pause, timedelta(seconds=4 * (time.monotonic() - began)))


class Requeuer:
    """Puts again whatever has been queued for a while: harmless for what the queue knows, healing for the rest.

    A page a step, going round, so that a long queue costs no more than a short one. Only the leader requeues.
    """

    def __init__(self, upkeep: Upkeep, queue: Publisher, events: Events, *, older_than: timedelta) -> None:
        self._upkeep, self._queue, self._events = upkeep, queue, events
        self._usual_age, self._older_than, self._after = older_than, older_than, ""

    def begin_again(self) -> None:
        """Put everything again in the next round: the last leader may have fired without reaching Redis."""
        self._older_than, self._after = timedelta(), ""

    async def step(self) -> timedelta | None:
        """The next page."""
        page = await self._upkeep.queued(after=self._after, older_than=self._older_than, limit=_AT_ONCE)
        if page:
            failpoint("requeue.read")
            lost = await self._queue.put(page)
            if lost:
                self._events.emit(ExecutionsRequeued(lost))
        more = len(page) == _AT_ONCE
        self._after = page[-1].execution_id if more else ""
        if not more:
            self._older_than = self._usual_age
        return timedelta(milliseconds=50) if more else None
