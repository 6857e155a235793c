"""Readers of items and events for Python programs, written in terms of operations."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Concatenate, Generic, ParamSpec, Self, overload

import msgspec

from floodmark.model.exports import ExportRow
from floodmark.model.moments import Moment, begin_of, end_of
from floodmark.model.streams import StoredItem
from floodmark.store.port import Event

from .declaration import BlockingCaller, DerivedEach
from .event_consumer import INTERVAL, BlockingConsumer, EventConsumer

P = ParamSpec("P")


class Consume(Generic[P]):
    """A method that returns a consumer: a blocking one for a caller without asyncio."""

    def __init__(self, method: Callable[Concatenate[Any, P], EventConsumer]) -> None:
        self._method, self.__doc__ = method, method.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: BlockingCaller, owner: type) -> Callable[P, BlockingConsumer]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[P, EventConsumer]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        """Bind the method to its caller."""
        if instance is None:
            return self
        if isinstance(instance, BlockingCaller):
            return lambda *args, **kwargs: BlockingConsumer(instance, self._method(instance.client, *args, **kwargs))
        return self._method.__get__(instance)


class ReaderOperations:
    """Iterate over items and events; read events under a name."""

    @DerivedEach
    async def read_items(
        self: Any,
        *streams: str,
        since: Moment | None = None,
        until: Moment | None = None,
        revisions: bool = False,
        deleted: bool = False,
    ) -> AsyncGenerator[StoredItem, None]:
        """Yield the stored items of streams, jobs or patterns such as `telegram:*`; of all streams if none is named.

        `since` and `until` are times, days (the last one is included), durations such as `"7d"`, or texts for one of
        them. `revisions` includes earlier revisions, `deleted` items that were deleted at their source.
        """
        now = datetime.now(UTC)
        period = {
            "since": None if since is None else begin_of(since, now),
            "before": None if until is None else end_of(until, now),
        }
        async for found in self.each_export_stream(names=streams):
            cursor = None
            while True:
                page = await self.export_items(found.stream, **period, revisions=revisions, cursor=cursor)
                for row in page.items:
                    if deleted or not row.deleted:
                        yield _item_of(row)
                cursor = page.next
                if cursor is None:
                    break

    @DerivedEach
    async def read_events(
        self: Any,
        *,
        after: int | None = None,
        stream: str | None = None,
        consumer: str | None = None,
        follow: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """Yield events in order; with `follow` wait for new ones.

        They start after the position `after`, or with the oldest stored event. With the name of a `consumer` its stored
        position counts instead, if it has one: an event is processed when the next one is requested, and after a crash
        the last events are read again.
        """
        reader = EventConsumer(self, consumer, after=after, stream=stream, follow=follow)
        await reader.open()
        async with aclosing(reader.read(commits=consumer is not None)) as events:
            async for event in events:
                yield event

    @Consume
    def consumer(
        self: Any,
        name: str,
        *,
        after: int | None = None,
        stream: str | None = None,
        follow: bool = False,
        interval: Any = INTERVAL,
    ) -> EventConsumer:
        """Return a consumer of events that stores its position under a name when `commit` is called.

        A new one starts after the position `after`, or with the oldest stored event. With `follow` it waits for new
        events, and looks for them every `interval`.
        """
        return EventConsumer(self, name, after=after, stream=stream, follow=follow, interval=interval)


def _item_of(row: ExportRow) -> StoredItem:
    return StoredItem(
        stream=row.stream,
        key=row.key,
        revision=row.revision,
        occurred_at=row.occurred_at,
        collected_at=row.collected_at,
        data=msgspec.json.decode(row.data),
        content_hash=row.content_hash,
        deleted=row.deleted,
        execution_id=row.execution_id,
    )
