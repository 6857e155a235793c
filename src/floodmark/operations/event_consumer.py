"""Read events in order, and store how far they were processed.

At least once: after a crash the events since the last commit are read again, with the same `event_id`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from floodmark.errors import EventsDeleted, InvalidInput, NotFound
from floodmark.rules.stream_patterns import StreamPatterns, is_pattern
from floodmark.store.port import Event

from .declaration import BlockingCaller

if TYPE_CHECKING:
    from .declared import AsyncOperations
    from .streams import EventPage

_PAGE = 500
# With automatic commits, so many events at most are read again after a crash.
_COMMIT_EVERY = 100
INTERVAL = timedelta(seconds=1)


class EventConsumer:
    """Events in order, read under a name. `commit` stores the position of the last event that was returned.
    Without a commit nothing is stored, and the next consumer with this name gets the same events again. A commit raises
    `Conflict` if another program has moved the position of this name.

    async with app.consumer("indexer") as events:
        async for event in events:
            index(event)
            await events.commit()
    """

    def __init__(
        self,
        operations: "AsyncOperations",
        name: str | None,
        *,
        after: int | None = None,
        stream: str | None = None,
        follow: bool = False,
        interval: timedelta = INTERVAL,
    ) -> None:
        self._operations, self._name = operations, None if name is None else f"reader:{name}"
        self._after, self._follow, self._interval = after, follow, interval
        self._patterns = StreamPatterns([stream] if stream is not None and is_pattern(stream) else ())
        self._stream = None if self._patterns else stream
        self._stored: int | None = None
        self._position: int | None = None

    @property
    def position(self) -> int:
        """Return the position of the last event that was returned; at the beginning, where reading starts."""
        if self._position is None:
            raise InvalidInput("this consumer is not open", hint="use it in a block: async with ... as events")
        return self._position

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Store nothing: an event whose processing was interrupted is read again."""

    def __aiter__(self) -> AsyncIterator[Event]:
        return self.read()

    async def open(self) -> None:
        """Find the stored position. A new consumer starts `after` a position, or with the oldest stored event."""
        if self._name is not None:
            try:
                self._stored = (await self._operations.find_consumer(self._name)).position
            except NotFound:
                self._stored = None
        start = self._stored if self._stored is not None else self._after
        self._position = start if start is not None else (await self._operations.events(limit=1)).oldest_position - 1

    async def commit(self) -> None:
        """Store that every event returned so far was processed."""
        await self._commit(self.position)

    async def read(self, *, commits: bool = False) -> AsyncGenerator[Event, None]:
        """Yield events after the position; with `follow` wait for new ones.

        With `commits` an event counts as processed when the next one is requested. The position is stored after some
        events, and before this waits or ends.
        """
        processed = self.position
        try:
            while True:
                page = await self._operations.events(after=self.position, stream=self._stream, limit=_PAGE)
                self._require_complete(page)
                for count, event in enumerate(page.items, 1):
                    self._position = event.position
                    if not self._patterns or self._patterns.match(event.stream):
                        yield event
                    processed = event.position
                    if commits and count % _COMMIT_EVERY == 0:
                        await self._commit(processed)
                if page.next is None:
                    # Of one stream: later events of other streams were passed, too.
                    self._position = processed = max(self.position, page.last_position)
                    if commits:
                        await self._commit(processed)
                    if not self._follow:
                        return
                    await asyncio.sleep(self._interval.total_seconds())
        except GeneratorExit:
            if commits:
                await self._commit(processed)
            raise

    async def _commit(self, position: int) -> None:
        if self._name is None or position == self._stored:
            return
        found = await self._operations.commit_position(self._name, position, before=self._stored)
        self._stored = found.position

    def _require_complete(self, page: "EventPage") -> None:
        missed = page.oldest_position - 1 - self.position
        if missed > 0:
            raise EventsDeleted(
                f"the events after position {self.position:,} were deleted: the oldest is {page.oldest_position:,}",
                hint="read the stored items (read_items, or `items` of an application), then start again: "
                + ("use another `after`" if self._name is None else f"floodmark readers rm {self._name}"),
            )


class BlockingConsumer:
    """The same without asyncio: `with client.consumer("indexer") as events: for event in events: ...`."""

    def __init__(self, caller: BlockingCaller, consumer: EventConsumer) -> None:
        self._caller, self._consumer = caller, consumer

    @property
    def position(self) -> int:
        """Return the position of the last event that was returned; at the beginning, where reading starts."""
        return self._consumer.position

    def __enter__(self) -> Self:
        self._caller.wait(self._consumer.open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Store nothing: an event whose processing was interrupted is read again."""

    def __iter__(self) -> Iterator[Event]:
        return self._caller.iterate(self._consumer.read())

    def commit(self) -> None:
        """Store that every event returned so far was processed."""
        self._caller.wait(self._consumer.commit())
