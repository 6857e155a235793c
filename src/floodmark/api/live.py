"""The live feed: what happens in the whole fleet, as server-sent events.

One poller reads the store for all listeners, and only while there are some. What each gets waits in a queue of
bounded length; whoever does not keep up is dropped, and goes on from the last item it has seen (`Last-Event-ID`).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import msgspec
import structlog
from msgspec.structs import asdict, replace

from floodmark.errors import FloodmarkError
from floodmark.model.audit import Actor
from floodmark.model.execution import ENDED
from floodmark.model.shapes import event_shape, execution_shape
from floodmark.operations.health import worker_shape
from floodmark.operations.local import LocalOperations
from floodmark.security.masking import mask_answer
from floodmark.store.port import Event
from floodmark.wiring.resources import Resources

from .watching import Watching

Kind = Literal["execution", "item", "limit", "breaker", "worker"]
KINDS: tuple[Kind, ...] = ("execution", "item", "limit", "breaker", "worker")

LOOK_SECONDS = 0.5
HEARTBEAT_SECONDS = 15.0
# How often it is asked whether a listener may still listen: a token can be revoked.
WELCOME_SECONDS = 1.0
MOST_LISTENERS = 100
MOST_QUEUED = 1000
EVENTS_AT_ONCE = 500
_HELLO = b": floodmark\nretry: 2000\n\n"
_HEARTBEAT = b": still here\n\n"
_TOO_SLOW = b": too slow, connect again with Last-Event-ID\n\n"
_NO_LONGER = b": this token is no longer good\n\n"
_GOODBYE = b": the server is leaving\n\n"

StillWelcome = Callable[[], Awaitable[Any]]


class Message(NamedTuple):
    """One event of the feed, ready to be sent. `position` is that of an item."""

    kind: Kind
    text: bytes
    position: int | None = None


class Listener:
    """Someone who listens: what they want, and what waits for them."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self.kinds = frozenset(kinds)
        self.waiting: asyncio.Queue[Message | None] = asyncio.Queue(MOST_QUEUED)
        self.is_dropped = False

    def give(self, message: Message) -> None:
        """Queue a message; a listener without room is dropped."""
        if self.is_dropped or message.kind not in self.kinds:
            return
        try:
            self.waiting.put_nowait(message)
        except asyncio.QueueFull:
            self.is_dropped = True

    async def next(self, seconds: float) -> Message | None:
        """The next message; None if there was none for so long, or if there will be no more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self.waiting.get()
        return None

    def end(self) -> None:
        """Let it notice that there is no more."""
        with suppress(asyncio.QueueFull):
            self.waiting.put_nowait(None)


class Live:
    """The feed of one process."""

    def __init__(self, resources: Resources, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._operations = LocalOperations(resources, Actor(who="live", via="api"))
        self._log = resources.repositories.events
        self._watching = Watching(resources.database, resources.clock)
        self._look_seconds = look_seconds
        self._listeners: set[Listener] = set()
        self._poller: asyncio.Task[None] | None = None
        self._is_closing = False
        self._began, self._wake = asyncio.Event(), asyncio.Event()
        self._position = 0
        self._seen: dict[Kind, dict[str, Any]] = {}

    @property
    def is_full(self) -> bool:
        """Whether nobody else can listen."""
        return len(self._listeners) >= MOST_LISTENERS

    @property
    def is_polling(self) -> bool:
        """Whether the store is being looked at."""
        return self._poller is not None

    async def listen(
        self, kinds: Sequence[Kind], after: int | None, *, still_welcome: StillWelcome | None = None
    ) -> AsyncIterator[bytes]:
        """The feed for one listener, from now on or from behind the position of an item.

        `still_welcome` is asked now and then, and ends the feed by raising.
        """
        listener = Listener(kinds)
        try:
            since = await self._join(listener)
            yield _HELLO
            if after is not None and "item" in listener.kinds:
                async for text in self._missed(after, since):
                    yield text
            async for text in self._given(listener, still_welcome):
                yield text
        finally:
            self._listeners.discard(listener)
            self._wake.set()

    def close(self) -> None:
        """End every feed: the server is leaving."""
        self._is_closing = True
        for listener in self._listeners:
            listener.end()

    async def ended(self) -> None:
        """Wait until nobody listens any more and the store is left alone."""
        self.close()
        self._wake.set()
        if self._poller is not None:
            await asyncio.wait([self._poller])

    async def _join(self, listener: Listener) -> int:
        """The position of the last item that the listener will not be given."""
        self._listeners.add(listener)
        if self._poller is None:
            self._began.clear()
            self._poller = asyncio.create_task(self._poll(), name="live")
        await self._began.wait()
        return self._position

    async def _given(self, listener: Listener, still_welcome: StillWelcome | None) -> AsyncIterator[bytes]:
        clock = asyncio.get_running_loop().time
        asked = spoken = clock()
        while not self._is_closing:
            message = await listener.next(WELCOME_SECONDS)
            if listener.is_dropped:
                yield _TOO_SLOW
                return
            if still_welcome is not None and clock() - asked >= WELCOME_SECONDS:
                asked = clock()
                try:
                    await still_welcome()
                except FloodmarkError:
                    yield _NO_LONGER
                    return
            if message is not None:
                spoken = clock()
                yield message.text
            elif clock() - spoken >= HEARTBEAT_SECONDS:
                spoken = clock()
                yield _HEARTBEAT
        yield _GOODBYE

    async def _missed(self, after: int, until: int) -> AsyncIterator[bytes]:
        """The items between what a listener has seen and what the poller will tell."""
        while after < until and not self._is_closing:
            events = await self._log.after(after, EVENTS_AT_ONCE)
            for event in events:
                if event.position <= until:
                    yield _item(event).text
            if not events:
                return
            after = events[-1].position

    async def _poll(self) -> None:
        """Until nobody listens."""
        self._seen = {}
        is_begun = False
        while self._listeners and not self._is_closing:
            self._wake.clear()
            is_behind = False
            try:
                if not is_begun:
                    self._position = await self._log.last_position()
                    is_begun = True
                is_behind = await self.look()
            except Exception as error:  # noqa: BLE001 - a database that is away comes back; it is logged
                structlog.get_logger().warning("live feed failed", error=f"{type(error).__name__}: {error}")
            self._began.set()
            if not is_behind:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._look_seconds):
                        await self._wake.wait()
        self._began.set()
        self._poller = None

    async def look(self) -> bool:
        """See what has changed since the last look, and tell everyone; whether there is more to tell."""
        executions, things = await self._executions(), await self._things()
        items = await self._items()
        # From here on nothing is awaited: whoever joins has either all of these messages or none.
        for message in [*executions, *things, *items]:
            for listener in self._listeners:
                listener.give(message)
        return len(items) == EVENTS_AT_ONCE

    async def _executions(self) -> list[Message]:
        before = self._seen.get("execution", {})
        under_way = [execution_id for execution_id, row in before.items() if row.state not in ENDED]
        rows = await self._watching.executions(under_way)
        # A lease that is renewed is no news.
        found = {row.execution_id: (replace(row, lease_until=None), execution_shape(row)) for row in rows}
        return self._told("execution", found)

    async def _things(self) -> list[Message]:
        fleet = await self._operations.fleet()
        limits = await self._operations.limits(limit=500)
        breakers = await self._operations.breakers(limit=500)
        shapes = [(info, worker_shape(info, fleet.leader)) for info in fleet.workers]
        return [
            *self._told("limit", {row.key: (row, asdict(row)) for row in limits}),
            *self._told("breaker", {row.key: (row, asdict(row)) for row in breakers}),
            *self._told("worker", {info.worker: (_steady(shape), shape) for info, shape in shapes}),
        ]

    def _told(self, kind: Kind, found: Mapping[str, tuple[Any, Any]]) -> list[Message]:
        """What is new or different, and what is gone; `found` has what to compare and what to tell by name.

        The first look only sees where things stand.
        """
        before = self._seen.get(kind)
        self._seen[kind] = {name: mark for name, (mark, _) in found.items()}
        if before is None:
            return []
        changed = [_message(kind, shape) for name, (mark, shape) in found.items() if before.get(name) != mark]
        if kind == "execution":
            # Those that have ended are looked at for a while longer, and then no more: they are not gone.
            return changed
        key = "worker" if kind == "worker" else "key"
        return changed + [_message(kind, {key: name, "gone": True}) for name in before if name not in found]

    async def _items(self) -> list[Message]:
        events = await self._log.after(self._position, EVENTS_AT_ONCE)
        if events:
            self._position = events[-1].position
        return [_item(event) for event in events]


def _steady(shape: Mapping[str, Any]) -> dict[str, Any]:
    """A worker without what changes each time it says that it is there."""
    return {name: value for name, value in shape.items() if name != "seen_until"}


def _item(event: Event) -> Message:
    text = msgspec.json.encode(event_shape(event))
    return Message("item", b"event: item\nid: %d\ndata: %s\n\n" % (event.position, text), event.position)


def _message(kind: Kind, value: Any) -> Message:
    # Masked for everyone: a message is written once, whoever listens.
    text = msgspec.json.encode(mask_answer(msgspec.to_builtins(value)))
    return Message(kind, b"event: %s\ndata: %s\n\n" % (kind.encode(), text))
