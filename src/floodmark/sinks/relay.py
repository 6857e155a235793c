"""Numbers the events of the outbox in order: then readers of the store and the sinks can see them."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from msgspec.structs import replace

from floodmark.coordination.leader import Leader
from floodmark.model.clock import Clock
from floodmark.observability.events import Events, EventsRelayed
from floodmark.observability.tracing import Tracing
from floodmark.process.failpoints import failpoint
from floodmark.store.port import Keeping, Unsent

from .recent_events import RecentEvents

_AT_ONCE = 500


class Relay:
    """Numbers events. Only the leader relays.

    prepare   called before the first events that this leader numbers
    recent    gets the events after they are committed
    notify    called when there are new events
    """

    def __init__(
        self,
        keeping: Keeping,
        leader: Leader,
        events: Events,
        clock: Clock,
        *,
        prepare: Callable[[], Awaitable[None]] | None = None,
        recent: RecentEvents | None = None,
        notify: Callable[[], None] | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._keeping, self._leader, self._events, self._clock = keeping, leader, events, clock
        self._prepare, self._recent, self._notify, self._tracing = prepare, recent, notify, tracing
        self._is_prepared = False

    async def finish(self) -> None:
        """Number the events that were stored since the last step, when the process stops."""
        while await self.step() is not None:
            pass

    async def step(self) -> timedelta | None:
        """Number one batch; return zero if there may be more."""
        if not self._leader.is_leader:
            self._is_prepared = False
            return None
        if self._prepare is not None and not self._is_prepared:
            await self._prepare()
            self._is_prepared = True
        numbered: Sequence[Unsent] = ()

        async def publish(events: Sequence[Unsent]) -> None:
            nonlocal numbered
            numbered = self._trace(events)
            failpoint("relay.published")

        count = await self._keeping.relay(publish, limit=_AT_ONCE)
        if count:
            self._events.emit(EventsRelayed(count, (self._clock.now() - numbered[0].collected_at).total_seconds()))
            # Only now: before the commit, the positions could still be given to other events.
            if self._recent is not None:
                self._recent.add(numbered)
            if self._notify is not None:
                self._notify()
        return timedelta() if count == _AT_ONCE else None

    def _trace(self, events: Sequence[Unsent]) -> Sequence[Unsent]:
        """Return the events with the spans of the relay as the parents of whatever receives them."""
        if self._tracing is None:
            return events
        with self._tracing.relay([event.traceparent for event in events]) as spans:
            return [replace(event, traceparent=spans.get(event.traceparent, event.traceparent)) for event in events]
