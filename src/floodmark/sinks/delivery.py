"""Delivers events to one sink. Tables: `consumers`, `sinks` and `sink_letters`, by their repositories.

Two levels of retries: a call that fails with `Transient` is repeated within seconds (`RETRY_*`); then the error is
stored and the sink rests, longer with each failure. After a crash the events of one `send` may be sent again.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import timedelta

import structlog
from msgspec import Struct
from msgspec.structs import replace

from floodmark.coordination.leader import Leader
from floodmark.errors import Permanent, SlowDown, Transient
from floodmark.observability.events import Events, EventsDelivered, SinkFailed
from floodmark.outbound.retrying import Retrying, RetryPolicy
from floodmark.process.failpoints import failpoint
from floodmark.repositories.events import EventLog
from floodmark.rules.sinks import rest_after
from floodmark.rules.stream_patterns import StreamPatterns
from floodmark.security.masking import mask_text
from floodmark.store.port import Event, Unsent

from .letters import MOST_LETTERS, SinkLetters
from .port import EventSink, EventsRefused, FillsFirst, SinkTraits
from .recent_events import RecentEvents
from .repository import SinkRepository, StoredSink

MOST_AT_ONCE = 500
# Longer than any sink of ours takes: each has a time-out of its own.
_SEND_SECONDS = 600.0
_LOOK_AGAIN_SECONDS = 1.0
_LONGEST_WAIT = timedelta(hours=1)


class ConfiguredSink(Struct, frozen=True, kw_only=True):
    """A sink with its name, its kind, and the settings that all kinds have."""

    name: str
    kind: str
    sink: EventSink
    streams: StreamPatterns = StreamPatterns()
    traits: SinkTraits = SinkTraits()

    def takes(self, stream: str) -> bool:
        """Return whether the sink gets the events of a stream."""
        return not self.streams or self.streams.match(stream)


class DeliveryStore(Struct, frozen=True, kw_only=True):
    """What a delivery reads and writes."""

    log: EventLog
    sinks: SinkRepository
    letters: SinkLetters
    recent: RecentEvents


class Delivery:
    """Delivers events to one sink, from its stored position on. Only the leader delivers.

    The state of a sink that is being filled is the start of the next page.
    """

    def __init__(
        self,
        configured: ConfiguredSink,
        store: DeliveryStore,
        leader: Leader,
        events: Events,
        *,
        retry: RetryPolicy | None = None,
    ) -> None:
        self.name, self._configured, self._sink = configured.name, configured, configured.sink
        self._store, self._leader, self._events = store, leader, events
        self._stopping, self._is_entered = asyncio.Event(), False
        self._retrying = Retrying(retry or RetryPolicy(), events, sleep=self._pause, passing=(Transient,))
        # How many events to send at once: fewer while a refused one among them is searched.
        self._size, self._rests_until = MOST_AT_ONCE, 0.0
        self._read_ahead: list[Unsent] = []

    async def prepare(self) -> None:
        """Register the sink, and set its position if it has none. The relay must not number events before that."""
        configured = self._configured
        await self._store.sinks.register(self.name, configured.kind, configured.streams.text)
        await self._load()

    async def step(self) -> timedelta | None:
        """Deliver one batch; return zero if there is more to deliver, or the time until the next attempt."""
        rest = self._rests_until - time.monotonic()
        if not self._leader.is_leader or rest > 0:
            return timedelta(seconds=rest) if rest > 0 else None
        stored, began = await self._load(), time.monotonic()
        if stored.paused or stored.rest > 0:
            return None if stored.paused else timedelta(seconds=stored.rest)
        try:
            await self._enter()
            is_done = await self._deliver(stored)
        except SlowDown as wait:
            await self._fail(wait, stored.failures, min(wait.after, _LONGEST_WAIT))
            return None
        except Exception as error:
            await self._fail(error, stored.failures + 1, rest_after(stored.failures + 1))
            raise
        if not is_done:
            return timedelta()
        now = time.monotonic()
        self._rests_until = now + self._configured.traits.rest * (now - began)
        return None

    def stop(self) -> None:
        """Stop retrying: the next leader sends the rest."""
        self._stopping.set()

    async def close(self) -> None:
        """Exit the sink."""
        if self._is_entered and isinstance(self._sink, AbstractAsyncContextManager):
            self._is_entered = False
            await self._sink.__aexit__(None, None, None)

    async def _enter(self) -> None:
        if not self._is_entered and isinstance(self._sink, AbstractAsyncContextManager):
            await self._sink.__aenter__()
        self._is_entered = True

    async def _load(self) -> StoredSink:
        """Return the stored position. Without a valid one the sink starts with the oldest event, or is filled first."""
        stored = await self._store.sinks.load(self.name)
        if stored is None:
            return await self._start(is_new=True)
        if stored.place != self._sink.place:
            if self._configured.traits.restarts_elsewhere:
                return await self._start(is_new=True)
            await self._store.sinks.move(self.name, stored, stored.position, state=stored.state, place=self._sink.place)
        # Invalid if events after it were deleted, or if the database was restored to an earlier time.
        if stored.oldest - 1 <= stored.position <= stored.newest:
            return stored
        if stored.newest > 0:
            structlog.get_logger().warning(
                "sink starts again: events after its position were deleted",
                sink=self.name,
                position=stored.position,
                oldest=stored.oldest,
            )
        return await self._start(is_new=False)

    async def _start(self, *, is_new: bool) -> StoredSink:
        sinks, place = self._store.sinks, self._sink.place
        oldest, newest = await self._store.log.bounds()
        if isinstance(self._sink, FillsFirst):
            await sinks.start(self.name, newest, place=place, state={})
        elif is_new and self._configured.traits.starts == "newest":
            await sinks.start(self.name, await self._store.log.newest_sent(), place=place)
        else:
            await sinks.start(self.name, max(oldest - 1, 0), place=place)
        started = await sinks.load(self.name)
        assert started is not None
        return started

    async def _deliver(self, stored: StoredSink) -> bool:
        """Deliver one batch; return whether the sink is up to date."""
        if stored.state is not None:
            return await self._fill(stored)
        if stored.has_retries and await self._send_letters():
            return False
        return await self._follow(stored)

    async def _fill(self, stored: StoredSink) -> bool:
        assert isinstance(self._sink, FillsFirst)
        filling = await self._sink.fill(stored.state)
        await self._store.sinks.move(self.name, stored, stored.position, state=filling)
        return False

    async def _follow(self, stored: StoredSink) -> bool:
        """Send events for up to a second, then look whether someone has paused the sink."""
        until = time.monotonic() + _LOOK_AGAIN_SECONDS
        while events := await self._read(stored):
            wanted = [event for event in events if self._configured.takes(event.stream)][: self._size]
            try:
                accepted = await self._send(wanted) if wanted else 0
            except EventsRefused as refusal:
                await self._refuse(stored, wanted[0], refusal)
                return False
            if wanted and accepted == 0:
                # Nothing was delivered: the position stays, and the next step tries again.
                return True
            last = events[-1] if accepted == len(wanted) < self._size else wanted[accepted - 1]
            if accepted:
                failpoint("deliver.sent")
                self._events.emit(EventsDelivered(self.name, accepted))
                self._size = min(2 * self._size, MOST_AT_ONCE)
            # Not moved: someone has asked for a replay meanwhile.
            is_moved = await self._store.sinks.move(self.name, stored, last.position)
            if not is_moved or time.monotonic() > until or not self._leader.is_leader:
                return False
            stored = replace(stored, position=last.position, failures=0)
        return True

    async def _read(self, stored: StoredSink) -> Sequence[Event]:
        """Return the events after the position; many sinks accept fewer at once than were read for them."""
        if stored.position >= stored.newest:
            return ()
        self._read_ahead = [event for event in self._read_ahead if event.position > stored.position]
        if not self._read_ahead or self._read_ahead[0].position != stored.position + 1:
            found = self._store.recent.after(stored.position, MOST_AT_ONCE, newest=stored.newest)
            self._read_ahead = found or await self._store.log.to_send(stored.position, MOST_AT_ONCE)
        return self._read_ahead

    async def _refuse(self, stored: StoredSink, event: Event, refusal: EventsRefused) -> None:
        """Try fewer events at once; make the event a dead letter if it was alone."""
        if refusal.among > 1:
            self._size = max(1, refusal.among // 2)
            return
        if await self._store.letters.count(self.name) >= MOST_LETTERS:
            raise Permanent(
                f"{MOST_LETTERS:,} events were refused, the last one because: {refusal}",
                hint=f"correct the receiver; then retry or drop them: floodmark sinks dead-letters {self.name}",
            )
        error = mask_text(str(refusal))
        async with self._store.sinks.transaction():
            await self._store.letters.add(self.name, event, error)
            await self._store.sinks.move(self.name, stored, event.position)
        structlog.get_logger().warning("event refused", sink=self.name, event_id=event.event_id, reason=error)

    async def _send_letters(self) -> bool:
        """Send dead letters again that someone has chosen; return whether that changed anything.

        Those that fail for whatever reason stay dead: they must not delay the events that follow.
        """
        letters, events = self._store.letters, await self._store.letters.to_send(self.name, self._size)
        positions = [event.position for event in events]
        try:
            accepted = await self._send(events) if events else 0
        except EventsRefused as refusal:
            if refusal.among > 1:
                self._size = max(1, refusal.among // 2)
            else:
                await letters.refuse_again(self.name, positions[:1], mask_text(str(refusal)))
            return True
        except Exception as error:  # noqa: BLE001 - stored with the letters, where people see it
            await letters.refuse_again(self.name, positions, mask_text(str(error)))
            return True
        if accepted:
            await letters.drop(self.name, positions[:accepted])
            self._events.emit(EventsDelivered(self.name, accepted))
            self._size = min(2 * self._size, MOST_AT_ONCE)
        return accepted > 0

    async def _send(self, events: Sequence[Event]) -> int:
        """Return how many events the sink has accepted."""

        async def send() -> int:
            if self._stopping.is_set() or not self._leader.is_leader:
                return 0
            deadline = asyncio.timeout(_SEND_SECONDS)
            try:
                async with deadline:
                    accepted = await self._sink.send(events)
            except TimeoutError as error:
                if not deadline.expired():
                    raise
                raise Transient(f"it took longer than {_SEND_SECONDS:g} s") from error
            return len(events) if accepted is None else accepted

        count = await self._retrying.call(send, target=self.name, method="publish")
        if not 0 <= count <= len(events):
            raise ValueError(f"the sink {self.name} received {len(events)} events and says that it accepted {count}")
        return count

    async def _fail(self, error: Exception, failures: int, rest: timedelta) -> None:
        text = mask_text(str(error)) or type(error).__name__
        self._events.emit(SinkFailed(self.name, text))
        await self._store.sinks.fail(self.name, text, failures=failures, rest=rest)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
