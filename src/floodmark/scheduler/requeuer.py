"""Queues waiting executions that can start, and executions that the queue has lost."""

import time
from datetime import timedelta

from floodmark.observability.events import Events, ExecutionsRequeued
from floodmark.process.failpoints import failpoint
from floodmark.queue.port import Publisher
from floodmark.store.port import FIRST_PLACE, Upkeep

_AT_ONCE = 1000
_SHORTEST_PAUSE, _LONGEST_PAUSE = timedelta(milliseconds=25), timedelta(seconds=1)


class Waker:
    """waiting -> queued when its time has come or its hold has ended. Runs only on the leader.

    A woken execution often frees the way for the next one of its job. So the waker runs again soon after it has woken
    one, then less and less often. It pauses at least four times as long as its query took.
    """

    def __init__(self, upkeep: Upkeep, queue: Publisher) -> None:
        self._upkeep, self._queue, self._pause = upkeep, queue, _LONGEST_PAUSE

    async def step(self) -> timedelta | None:
        """Queue one portion; returns the pause until the next step."""
        began = time.monotonic()
        woken = await self._upkeep.wake(limit=_AT_ONCE)
        if woken:
            failpoint("wake.committed")
            # With `again`: the worker that settled the execution may not have deleted its old entry yet.
            await self._queue.put(woken, again=True)
        if len(woken) >= _AT_ONCE:
            return timedelta()
        self._pause = _SHORTEST_PAUSE if woken else min(self._pause * 2, _LONGEST_PAUSE)
        return max(self._pause, timedelta(seconds=4 * (time.monotonic() - began)))


class Requeuer:
    """Puts executions again that have been queued for a while, which restores those that the queue has lost.

    Each step puts one page and the pages follow in rounds, so a long queue costs no more per step than a short one.
    Runs only on the leader.
    """

    def __init__(self, upkeep: Upkeep, queue: Publisher, events: Events, *, older_than: timedelta) -> None:
        self._upkeep, self._queue, self._events = upkeep, queue, events
        self._usual_age, self._older_than, self._after = older_than, older_than, FIRST_PLACE

    def begin_again(self) -> None:
        """Put all queued executions in the next round: the last leader may have fired without reaching Redis."""
        self._older_than, self._after = timedelta(), FIRST_PLACE

    async def step(self) -> timedelta | None:
        """Put the next page; returns a short pause while the round is not complete."""
        page = await self._upkeep.queued(after=self._after, older_than=self._older_than, limit=_AT_ONCE)
        if page:
            failpoint("requeue.read")
            lost = await self._queue.put([found.queued for found in page])
            if lost:
                self._events.emit(ExecutionsRequeued(lost))
        more = len(page) == _AT_ONCE
        self._after = page[-1].place if more else FIRST_PLACE
        if not more:
            self._older_than = self._usual_age
        return timedelta(milliseconds=50) if more else None
