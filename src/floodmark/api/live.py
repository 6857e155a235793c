"""The live feed: events of the whole fleet, as server-sent events.

One poller reads the store for all listeners, and only while there are some. The messages of a listener wait in a
bounded queue; a listener that is too slow is dropped, and continues from its last item (`Last-Event-ID`).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple, get_args

import msgspec
import structlog
from msgspec.structs import asdict

from floodmark.errors import FloodmarkError
from floodmark.model.audit import Actor
from floodmark.model.shapes import event_shape, execution_shape
from floodmark.operations.health import worker_shape
from floodmark.operations.local import LocalOperations
from floodmark.security.masking import mask_answer
from floodmark.store.port import Event
from floodmark.wiring.resources import Resources

from .changed_executions import ChangedExecutions

Kind = Literal["execution", "item", "change", "limit", "breaker", "worker"]
KINDS: tuple[Kind, ...] = get_args(Kind)

# How often executions and items are read, and how often everything else is, which changes seldom.
_LOOK_SECONDS, _OTHERS_SECONDS = 0.5, 0.9
# Open pages ask for themselves soon after each whole second. Just before is the best time to look for them.
_BEFORE_PAGES_ASK = 0.15
HEARTBEAT_SECONDS = 15.0
# How often the token of a listener is checked: it may have been revoked.
CHECK_SECONDS = 1.0
MOST_LISTENERS = 100
MOST_QUEUED = 1000
EVENTS_AT_ONCE = 500
_HELLO = b": floodmark\nretry: 2000\n\n"
_HEARTBEAT = b": still here\n\n"
# Browsers do not show comments to a page, so a page that wants to know whether it is up to date asks for these.
_BEAT = b"event: beat\ndata: {}\n\n"
_TOO_SLOW = b": too slow, connect again with Last-Event-ID\n\n"
_NO_LONGER = b": this token is no longer good\n\n"
_GOODBYE = b": the server is leaving\n\n"

CheckAccess = Callable[[], Awaitable[Any]]


class Message(NamedTuple):
    """One event of the feed, encoded. Items have a `position`."""

    kind: Kind
    text: bytes
    position: int | None = None


class LiveListener:
    """A connection to the feed: the kinds of events it wants, and its queue.

    `joins`: of several waiting messages of a kind it wants only the newest. A page asks for itself once for all of
    them, and sending each to every open page would take longer than the work of a busy fleet.
    """

    def __init__(self, kinds: Sequence[Kind], *, joins: bool = False) -> None:
        self.kinds = frozenset(kinds)
        self.waiting: asyncio.Queue[Message | None] = asyncio.Queue(MOST_QUEUED)
        self.is_dropped = False
        self.joins, self._newest = joins, dict[Kind, Message]()

    def give(self, message: Message) -> None:
        """Queue a message; a listener without room is dropped."""
        if self.is_dropped or message.kind not in self.kinds:
            return
        if self.joins:
            is_waiting = message.kind in self._newest
            self._newest[message.kind] = message
            if is_waiting:
                return
        try:
            self.waiting.put_nowait(message)
        except asyncio.QueueFull:
            self.is_dropped = True

    async def next(self, seconds: float) -> Message | None:
        """Return the next message; None if there was none within this time, or if the feed ends."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                message = await self.waiting.get()
                return message if message is None else self._newest.pop(message.kind, message)
        return None

    def end(self) -> None:
        """Wake it up: the feed ends."""
        with suppress(asyncio.QueueFull):
            self.waiting.put_nowait(None)


class Live:
    """The feed of one process."""

    def __init__(self, resources: Resources) -> None:
        self._operations = LocalOperations(resources, Actor(who="live", via="api"))
        self._log, self._audit = resources.repositories.events, resources.repositories.audit
        self._database, self._clock = resources.database, resources.clock
        self._others_at = 0.0
        self._listeners: set[LiveListener] = set()
        self._poller: asyncio.Task[None] | None = None
        self._is_closing = False
        self._began, self._wake = asyncio.Event(), asyncio.Event()
        self._position = 0
        self.version = 0
        """Grows with every change that listeners are told of."""
        self._seen: dict[Kind, dict[str, Any]] = {}
        self._executions = ChangedExecutions(self._database, self._clock)

    @property
    def open_pages(self) -> int:
        """The number of pages of the dashboard that listen."""
        return sum(listener.joins for listener in self._listeners)

    @property
    def is_full(self) -> bool:
        """Whether there are as many listeners as allowed."""
        return len(self._listeners) >= MOST_LISTENERS

    @property
    def is_polling(self) -> bool:
        """Whether the store is being polled."""
        return self._poller is not None

    async def listen(
        self,
        kinds: Sequence[Kind],
        after: int | None,
        *,
        check_access: CheckAccess | None = None,
        beats: bool = False,
    ) -> AsyncIterator[bytes]:
        """Yield the feed for one listener, from now on or from the position `after`.

        `check_access` is called about every second, and ends the feed by raising. `beats`: send a `beat` in every
        second without a message, and of several waiting messages of a kind only the newest.
        """
        listener = LiveListener(kinds, joins=beats)
        try:
            since = await self._join(listener)
            yield _HELLO
            if after is not None and "item" in listener.kinds:
                async for text in self._missed_items(after, since):
                    yield text
            async for text in self._messages(listener, check_access, beats=beats):
                yield text
        finally:
            self._listeners.discard(listener)
            self._wake.set()

    def close(self) -> None:
        """End every feed: the server stops."""
        self._is_closing = True
        for listener in self._listeners:
            listener.end()

    async def wait_closed(self) -> None:
        """Wait until nobody listens any more and polling has ended."""
        self.close()
        self._wake.set()
        if self._poller is not None:
            await asyncio.wait([self._poller])

    async def _join(self, listener: LiveListener) -> int:
        """Add a listener; return the position of the last item that it will not get."""
        self._listeners.add(listener)
        if self._poller is None:
            self._began.clear()
            self._poller = asyncio.create_task(self._poll(), name="live")
        await self._began.wait()
        return self._position

    async def _messages(
        self, listener: LiveListener, check_access: CheckAccess | None, *, beats: bool
    ) -> AsyncIterator[bytes]:
        clock = asyncio.get_running_loop().time
        asked = spoken = clock()
        while not self._is_closing:
            message = await listener.next(CHECK_SECONDS)
            if listener.is_dropped:
                yield _TOO_SLOW
                return
            if check_access is not None and clock() - asked >= CHECK_SECONDS:
                asked = clock()
                try:
                    await check_access()
                except FloodmarkError:
                    yield _NO_LONGER
                    return
            if message is not None:
                spoken = clock()
                yield message.text
            elif beats or clock() - spoken >= HEARTBEAT_SECONDS:
                spoken = clock()
                yield _BEAT if beats else _HEARTBEAT
        yield _GOODBYE

    async def _missed_items(self, after: int, until: int) -> AsyncIterator[bytes]:
        """Yield the items between the last one of a listener and the first one of the poller."""
        while after < until and not self._is_closing:
            events = await self._log.after(after, EVENTS_AT_ONCE)
            for event in events:
                if event.position <= until:
                    yield _item(event).text
            if not events:
                return
            after = events[-1].position

    async def _poll(self) -> None:
        """Poll the store until nobody listens."""
        self._seen, self._executions = {}, ChangedExecutions(self._database, self._clock)
        self._others_at = 0.0
        is_begun = False
        while self._listeners and not self._is_closing:
            self._wake.clear()
            is_behind = False
            try:
                if not is_begun:
                    self._position = await self._log.last_position()
                    is_begun = True
                is_behind = await self.poll_once()
            except Exception as error:  # noqa: BLE001 - a database that is away comes back; it is logged
                structlog.get_logger().warning("live feed failed", error=f"{type(error).__name__}: {error}")
            self._began.set()
            if not is_behind:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._until_next_look()):
                        await self._wake.wait()
        self._began.set()
        self._poller = None

    def _until_next_look(self) -> float:
        if self.open_pages < len(self._listeners):
            return _LOOK_SECONDS
        return 1 - (time.time() + _BEFORE_PAGES_ASK) % 1

    async def poll_once(self) -> bool:
        """Send the changes since the last poll to all listeners; return whether there are more."""
        executions, items, others = await self._execution_changes(), await self._items(), list[Message]()
        now = asyncio.get_running_loop().time()
        if now >= self._others_at:
            self._others_at = now + _OTHERS_SECONDS
            others = [*await self._fleet_changes(), *await self._operator_changes()]
        messages = [*executions, *others, *items]
        self.version += bool(messages)
        # No await from here on: a listener that joins gets either all of these messages or none.
        for message in messages:
            for listener in self._listeners:
                listener.give(message)
        return len(items) == EVENTS_AT_ONCE

    async def _execution_changes(self) -> list[Message]:
        # Open pages get one message for all changes: in a busy fleet, the others need not be read.
        wants_each = any("execution" in listener.kinds and not listener.joins for listener in self._listeners)
        rows = await (self._executions.next() if wants_each else self._executions.next(1))
        return [_message("execution", execution_shape(row)) for row in rows]

    async def _fleet_changes(self) -> list[Message]:
        fleet = await self._operations.fleet()
        limits = await self._operations.limits(limit=500)
        breakers = await self._operations.breakers(limit=500)
        shapes = [(info, worker_shape(info, fleet.leader)) for info in fleet.workers]
        return [
            *self._changes("limit", {row.key: (row, asdict(row)) for row in limits}),
            *self._changes("breaker", {row.key: (row, asdict(row)) for row in breakers}),
            *self._changes("worker", {info.worker: (_steady(shape), shape) for info, shape in shapes}),
        ]

    def _changes(self, kind: Kind, found: Mapping[str, tuple[Any, Any]]) -> list[Message]:
        """Return messages for what is new, different or gone; `found` has by name what to compare and what to send.

        The first poll sends nothing.
        """
        before = self._seen.get(kind)
        self._seen[kind] = {name: mark for name, (mark, _) in found.items()}
        if before is None:
            return []
        changed = [_message(kind, shape) for name, (mark, shape) in found.items() if before.get(name) != mark]
        if kind == "change":
            # Old changes are watched for a while and then dropped: they are not gone.
            return changed
        key = "worker" if kind == "worker" else "key"
        return changed + [_message(kind, {key: name, "gone": True}) for name in before if name not in found]

    async def _operator_changes(self) -> list[Message]:
        # By comparing the newest, not by the last number: transactions commit in any order.
        found = {str(row["seq"]): ((), row) for row in await self._audit.newest()}
        return self._changes("change", found)

    async def _items(self) -> list[Message]:
        events = await self._log.after(self._position, EVENTS_AT_ONCE)
        if events:
            self._position = events[-1].position
        return [_item(event) for event in events]


def _steady(shape: Mapping[str, Any]) -> dict[str, Any]:
    """Return a worker without what every heartbeat changes."""
    return {name: value for name, value in shape.items() if name != "seen_until"}


def _item(event: Event) -> Message:
    text = msgspec.json.encode(event_shape(event))
    return Message("item", b"event: item\nid: %d\ndata: %s\n\n" % (event.position, text), event.position)


def _message(kind: Kind, value: Any) -> Message:
    # Secrets are masked for everyone: a message is encoded once for all listeners.
    text = msgspec.json.encode(mask_answer(msgspec.to_builtins(value)))
    return Message(kind, b"event: %s\ndata: %s\n\n" % (kind.encode(), text))
