"""The guarantees of every event sink."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from floodmark.coordination.leader import Leader
from floodmark.errors import Transient
from floodmark.model.batch import Batch, Item
from floodmark.model.outcome import Done
from floodmark.outbound.retrying import RetryPolicy
from floodmark.rules.stream_patterns import StreamPatterns
from floodmark.settings import Settings
from floodmark.sinks.delivery import ConfiguredSink, Delivery, DeliveryStore
from floodmark.sinks.port import EventSink, EventsRefused, SendsTests, SinkTraits
from floodmark.sinks.recent_events import RecentEvents
from floodmark.sinks.trial import build_test_event
from floodmark.store.port import Event
from floodmark.testing.factories import TTL, given_lease, settle
from floodmark.wiring.resources import Resources, open_resources

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
# The name of the sink in the database.
NAME = "contract"

Delivered = Callable[[], Awaitable[Sequence[str]]]
"""Returns the keys of the items that have arrived, in order of arrival, repetitions included."""


class EventSinkContract:
    """The guarantees of every event sink. Subclass it and provide `sink` and `delivered`.

    `resources` is an installation on SQLite; override it for a sink that needs another one. A sink that accepts only
    some events overrides `stream` and `an_item`.
    """

    stream = "test:events"
    # Whether a delivery writes all stored items again, not only those of the events that were sent.
    repeats_stored_items = False

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

    async def test_a_refused_event_becomes_a_dead_letter(
        self, resources: Resources, leader: Leader, sink: EventSink, delivered: Delivered
    ) -> None:
        """The others arrive in order, and the letter arrives when someone has it sent again."""
        keys = [self.an_item(number).key for number in range(1, 9)]
        await deliver(resources, leader, sink)
        await self.collect(resources, *range(1, 9))
        await deliver(resources, leader, Recording(sink, refuses=keys[2]))
        letters = resources.repositories.sink_letters
        assert [letter.key for letter in await letters.page(NAME)] == [keys[2]]
        assert keys[2] not in await delivered() or self.repeats_stored_items
        await letters.retry(NAME, None)
        recording = Recording(sink)
        await deliver(resources, leader, recording)
        assert [event.key for event in recording.sent] == [keys[2]]
        assert sorted(each_once(await delivered())) == sorted(keys)
        assert await letters.page(NAME) == []

    async def test_a_paused_sink_gets_its_events_later(
        self, resources: Resources, leader: Leader, sink: EventSink, delivered: Delivered
    ) -> None:
        """A pause holds until someone ends it."""
        await deliver(resources, leader, sink)
        await self.collect(resources, 1)
        await resources.repositories.sinks.pause(NAME, paused=True)
        await deliver(resources, leader, sink, resumes=False)
        assert list(await delivered()) == []
        await deliver(resources, leader, sink)
        assert list(await delivered()) == [self.an_item(1).key]

    async def test_events_are_sent_again_from_a_position(
        self, resources: Resources, leader: Leader, sink: EventSink
    ) -> None:
        """After a replay they are sent in order, up to the newest."""
        await self.collect(resources, 1, 2, 3)
        await deliver(resources, leader, sink)
        before = (await resources.repositories.sinks.show(NAME)).position
        await resources.repositories.sinks.replay(NAME, before - 2)
        recording = Recording(sink)
        await deliver(resources, leader, recording)
        assert [event.key for event in recording.sent] == [self.an_item(number).key for number in (2, 3)]
        assert (await resources.repositories.sinks.show(NAME)).position == before

    async def test_other_streams_are_passed_over(
        self, resources: Resources, leader: Leader, sink: EventSink, delivered: Delivered
    ) -> None:
        """A sink of other streams gets nothing, and is up to date."""
        await deliver(resources, leader, sink)
        await self.collect(resources, 1, 2)
        await deliver(resources, leader, sink, streams="other:*, another")
        assert list(await delivered()) == []
        assert (await resources.repositories.sinks.show(NAME)).lag_events == 0

    async def test_a_test_event_is_marked(self, sink: EventSink, delivered: Delivered) -> None:
        """A sink that can send a test event delivers it."""
        if not isinstance(sink, SendsTests):
            return
        event = build_test_event("contract", NOON)
        async with AsyncExitStack() as stack:
            await enter(sink, stack)
            await sink.send_test(event)
        assert list(await delivered()) == [event.key]

    async def test_the_place_has_no_secret(self, sink: EventSink) -> None:
        """The place is stored and shown without masking."""
        assert sink.place
        assert "@" not in sink.place.partition("://")[2].partition("/")[0]


class Recording:
    """A sink that records events, and on request fails, refuses an event, or accepts only the first events."""

    def __init__(
        self, sink: EventSink, *, fails: bool = False, refuses: str | None = None, accepts: int | None = None
    ) -> None:
        self._sink, self._fails, self._refuses, self._accepts = sink, fails, refuses, accepts
        self.place, self.sent = sink.place, list[Event]()

    async def send(self, events: Sequence[Event]) -> int | None:
        """Record the events and forward them."""
        if self._fails:
            raise Transient("the other side cannot be reached")
        if any(event.key == self._refuses for event in events):
            raise EventsRefused("it is not wanted", among=len(events))
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


def delivery_store(resources: Resources) -> DeliveryStore:
    """Return what deliveries read and write."""
    stored = resources.repositories
    return DeliveryStore(log=stored.events, sinks=stored.sinks, letters=stored.sink_letters, recent=RecentEvents())


async def deliver(
    resources: Resources,
    leader: Leader,
    sink: EventSink,
    *,
    steps: int = 1000,
    streams: str | None = None,
    resumes: bool = True,
) -> None:
    """Deliver all waiting events, as the leader does, in at most this many steps.

    `resumes`: end a pause first, and do not wait after a failure.
    """
    traits = replace(getattr(sink, "traits", SinkTraits()), starts="oldest", restarts_elsewhere=True)
    configured = ConfiguredSink(
        name=NAME, kind="contract", sink=sink, streams=StreamPatterns.parse(streams), traits=traits
    )
    store = delivery_store(resources)
    delivery = Delivery(configured, store, leader, resources.events, retry=RetryPolicy(attempts=1))
    await delivery.prepare()
    if resumes:
        await store.sinks.pause(NAME, paused=False)
    try:
        for _ in range(steps):
            if await delivery.step() is None:
                break
    finally:
        await delivery.close()


def each_once(keys: Sequence[str]) -> list[str]:
    """Return the keys in order of their first arrival."""
    return list(dict.fromkeys(keys))
