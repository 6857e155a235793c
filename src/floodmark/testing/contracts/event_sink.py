"""The guarantees of every event sink."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from floodmark.coordination.leader import Leader
from floodmark.errors import Transient
from floodmark.model.batch import Batch, Item
from floodmark.model.outcome import Done
from floodmark.settings import Settings
from floodmark.sinks.delivery import Delivery
from floodmark.sinks.port import EventSink
from floodmark.store.port import Event
from floodmark.testing.factories import TTL, given_lease, settle
from floodmark.wiring.resources import Resources, open_resources

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)

Delivered = Callable[[], Awaitable[Sequence[str]]]
"""Returns the keys of the items that have arrived, in order of arrival, repetitions included."""


class EventSinkContract:
    """The guarantees of every event sink. Subclass it and provide `sink` and `delivered`.

    `resources` is an installation on SQLite; override it for a sink that needs another one. A sink that accepts only
    some events overrides `stream` and `an_item`.
    """

    stream = "test:events"

    def an_item(self, number: int) -> Item:
        """Return one item; higher numbers are newer."""
        return Item(str(number), {"number": number, "text": "ж 👍"}, NOON + timedelta(seconds=number))

    @pytest.fixture
    async def resources(self, tmp_path: Path) -> AsyncIterator[Resources]:
        """The resources of one process."""
        settings = Settings(database_url=f"sqlite:///{tmp_path}/floodmark.db", floodmark_home=tmp_path)
        async with open_resources(settings) as resources:
            yield resources

    @pytest.fixture
    async def leader(self, resources: Resources) -> Leader:
        """The leader."""
        leader = Leader(
            resources.leases, resources.events, name="leader", holder=resources.name, ttl=timedelta(minutes=5)
        )
        await leader.step()
        return leader

    async def collect(self, resources: Resources, *numbers: int) -> None:
        """Store these items and number their events."""
        lease = await given_lease(resources, ttl=4 * TTL)
        await resources.keeping.keep(lease, Batch([self.an_item(number) for number in numbers], stream=self.stream))
        await settle(resources, lease, Done())

        async def nowhere(_: Sequence[Event]) -> None: ...

        await resources.keeping.relay(nowhere, limit=1000)

    async def test_events_arrive_in_order(
        self, resources: Resources, leader: Leader, sink: EventSink, delivered: Delivered
    ) -> None:
        """The events of one stream arrive in order, each at least once."""
        await self.collect(resources, *range(1, 21))
        await deliver(resources, leader, sink)
        assert each_once(await delivered()) == [self.an_item(number).key for number in range(1, 21)]

    async def test_delivery_goes_on_from_the_stored_position(
        self, resources: Resources, leader: Leader, sink: EventSink, delivered: Delivered
    ) -> None:
        """Another leader continues with nothing but the database."""
        await self.collect(resources, 1, 2)
        await deliver(resources, leader, sink)
        before = len(await delivered())
        await self.collect(resources, 3)
        recording = Recording(sink)
        await deliver(resources, leader, recording)

        assert [event.key for event in recording.sent] == [self.an_item(3).key]
        assert list(await delivered())[before:] == [self.an_item(3).key]

    async def test_events_that_failed_are_delivered_again(
        self, resources: Resources, leader: Leader, sink: EventSink, delivered: Delivered
    ) -> None:
        """No event is skipped, and later events do not overtake it."""
        await deliver(resources, leader, sink)
        await self.collect(resources, 1, 2)
        with pytest.raises(Transient):
            await deliver(resources, leader, Recording(sink, fails=True))
        await self.collect(resources, 3)
        await deliver(resources, leader, sink)
        assert each_once(await delivered()) == [self.an_item(number).key for number in (1, 2, 3)]

    async def test_events_that_were_not_accepted_are_delivered_later(
        self, resources: Resources, leader: Leader, sink: EventSink, delivered: Delivered
    ) -> None:
        """A sink that accepts none of the events, or only the first, receives the others with the next `send`."""
        await deliver(resources, leader, sink)
        await self.collect(resources, 1, 2)
        for accepted in (0, 1):
            await deliver(resources, leader, Recording(sink, accepts=accepted), steps=1)
        await deliver(resources, leader, sink)
        assert each_once(await delivered()) == [self.an_item(number).key for number in (1, 2)]

    async def test_events_may_be_delivered_twice(
        self, resources: Resources, leader: Leader, sink: EventSink, delivered: Delivered
    ) -> None:
        """After a crash the last events are sent again, and the sink accepts them."""
        await self.collect(resources, 1, 2)
        events = await resources.repositories.events.after(0)
        async with AsyncExitStack() as stack:
            await enter(sink, stack)
            await sink.send(events)
            await sink.send(events)
        assert each_once(await delivered()) == [event.key for event in events]

    async def test_only_the_leader_delivers(
        self, resources: Resources, leader: Leader, sink: EventSink, delivered: Delivered
    ) -> None:
        """A process that is no longer the leader sends nothing."""
        await self.collect(resources, 1)
        await leader.resign()
        await deliver(resources, leader, sink)
        assert list(await delivered()) == []

    async def test_the_place_has_no_secret(self, sink: EventSink) -> None:
        """The place is stored and shown without masking."""
        assert sink.place
        assert "@" not in sink.place.partition("://")[2].partition("/")[0]


class Recording:
    """A sink that records events, and on request fails or accepts only the first events."""

    def __init__(self, sink: EventSink, *, fails: bool = False, accepts: int | None = None) -> None:
        self._sink, self._fails, self._accepts = sink, fails, accepts
        self.place, self.sent = sink.place, list[Event]()

    async def send(self, events: Sequence[Event]) -> int | None:
        """Record the events and forward them."""
        if self._fails:
            raise Transient("the other side cannot be reached")
        accepted = events[: self._accepts]
        self.sent += accepted
        if accepted:
            async with AsyncExitStack() as stack:
                await enter(self._sink, stack)
                await self._sink.send(accepted)
        return self._accepts


async def enter(sink: EventSink, stack: AsyncExitStack) -> None:
    """Enter a sink that is a context manager."""
    if isinstance(sink, AbstractAsyncContextManager):
        await stack.enter_async_context(sink)


async def deliver(resources: Resources, leader: Leader, sink: EventSink, *, steps: int = 1000) -> None:
    """Deliver all waiting events, as the leader does, in at most this many steps."""
    log, consumers = resources.repositories.events, resources.repositories.consumers
    delivery = Delivery("contract", sink, log, consumers, leader)
    try:
        for _ in range(steps):
            if await delivery.step() is None:
                break
    finally:
        await delivery.close()


def each_once(keys: Sequence[str]) -> list[str]:
    """Return the keys in order of their first arrival."""
    return list(dict.fromkeys(keys))
