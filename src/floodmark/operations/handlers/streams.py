"""Handlers of watermarks, items and events."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from floodmark.errors import InvalidInput, NotFound
from floodmark.model.audit import AuditRow
from floodmark.model.minutes import StreamDay
from floodmark.model.page import Page, key_of, last_key, page_of, take
from floodmark.model.streams import ItemHistory, StoredItem, StreamShown, StreamState
from floodmark.operations.streams import (
    FARTHEST,
    MOST_REVISIONS,
    EventPage,
    StreamDescription,
    StreamOperations,
    WatermarkMoved,
)
from floodmark.sources.telegram.stored_posts import Posts

from .base import Handlers

_DAY = timedelta(days=1)


class StreamHandlers(StreamOperations, Handlers):
    """Watermarks, items and events in the store."""

    async def watermarks(self, *, cursor: str | None = None, limit: int = 50) -> Page[StreamState]:
        rows = await self.store.watermarks.page(last_key("watermarks", cursor, str), limit + 1)
        return page_of(rows, limit, "watermarks", lambda row: [row.stream])

    async def watermark(self, stream: str) -> StreamState:
        return await self.store.watermarks.show(await self.find_stream(stream))

    async def watermark_history(self, stream: str, *, cursor: str | None = None, limit: int = 50) -> Page[AuditRow]:
        name, _ = await self._find(stream)
        before = last_key("watermark-history", cursor, int)
        rows = await self.store.audit.page(what=f"stream:{name}", before=before, limit=limit + 1)
        return page_of(rows, limit, "watermark-history", lambda row: [row.seq])

    async def move_watermark(self, stream: str, value: Mapping[str, Any], *, dry_run: bool = False) -> WatermarkMoved:
        return await self._move(stream, value, dry_run=dry_run)

    async def clear_watermark(self, stream: str, *, dry_run: bool = False) -> WatermarkMoved:
        return await self._move(stream, None, dry_run=dry_run)

    async def streams(self, *, chats: bool = False, cursor: str | None = None, limit: int = 50) -> Page[StreamShown]:
        posts, after = Posts(self.resources.database), last_key("streams", cursor, str) or ""
        names = await take(posts.streams(after) if chats else posts.every_stream(after), limit + 1)
        rows = [await posts.describe(name) for name in names]
        return page_of(rows, limit, "streams", lambda row: [row.stream])

    async def describe_stream(self, stream: str) -> StreamDescription:
        name = await self.find_items_stream(stream)
        shown = await Posts(self.resources.database).describe(name)
        return StreamDescription(stream=name, items=await self.store.events.count(name), chat=shown.chat)

    async def days(self, stream: str, *, since: date | None = None, until: date | None = None) -> list[StreamDay]:
        return await self.store.days.page(await self.find_items_stream(stream), since, until)

    async def items(
        self,
        stream: str,
        *,
        since: date | None = None,
        until: date | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[StoredItem]:
        name = await self.find_items_stream(stream)
        if since is None and until is None:
            rows = await self.store.events.items(name, last_key("items", cursor, str), limit + 1)
            return page_of(rows, limit, "items", lambda row: [row.key])
        after = _in_utc(key_of("items-by-time", cursor, datetime, str))
        rows = await self.store.events.items_between(name, _begin(since), _end(until), after=after, limit=limit + 1)
        return page_of(rows, limit, "items-by-time", lambda row: [row.occurred_at, row.key])

    async def newest_items(
        self, stream: str, *, since: datetime | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[StoredItem]:
        name, before = await self.find_items_stream(stream), last_key("newest-items", cursor, str)
        rows = await self.store.events.newest(name, since=since, before_key=before, limit=limit + 1)
        return page_of(rows, limit, "newest-items", lambda row: [row.key])

    async def item(
        self, stream: str, key: str, *, before: int | None = None, limit: int = MOST_REVISIONS
    ) -> ItemHistory:
        return await self.store.events.item(await self.find_items_stream(stream), key, before=before, limit=limit)

    async def events(
        self, *, after: int = 0, stream: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> EventPage:
        key = last_key("events", cursor, int)
        last = await self.store.events.last_position()
        name = None if stream is None else await self.find_items_stream(stream)
        rows = await self.store.events.after(after if key is None else max(0, min(key, FARTHEST)), limit + 1, name)
        page = page_of(rows, limit, "events", lambda event: [event.position])
        last = max(last, rows[-1].position if rows else 0)
        # After the events: one that was deleted before it could be read must not be taken for a read one.
        oldest = (await self.store.item_pages.bounds()).oldest
        return EventPage(items=page.items, next=page.next, last_position=last, oldest_position=oldest)

    async def _find(self, text: str) -> tuple[str, StreamState | None]:
        """Return the name of a stream, and how far it is collected, if it ever was."""
        name = await self.find_stream(text)
        try:
            return name, await self.store.watermarks.show(name)
        except NotFound:
            # A job that has not run yet has a stream without a watermark.
            return name, None

    async def _move(self, text: str, value: Mapping[str, Any] | None, *, dry_run: bool) -> WatermarkMoved:
        name, before = await self._find(text)
        after = before
        if not dry_run:
            async with self.transaction():
                _, before_change = await self._find(name)
                if value is None:
                    after = await self.store.watermarks.reset(name)
                else:
                    after = await self.store.watermarks.set(name, value)
                was = None if before_change is None else before_change.value
                now = None if value is None else after.value
                action = "watermark.reset" if value is None else "watermark.set"
                await self.record(action, f"stream:{name}", before={"value": was}, after={"value": now})
        return WatermarkMoved(
            stream=name,
            before=None if before is None or before.value is None else dict(before.value),
            after=None if value is None else dict(value),
            applied=not dry_run,
            watermark=after,
        )


def _begin(day: date | None) -> datetime | None:
    return None if day is None else datetime.combine(day, time(), UTC)


def _end(day: date | None) -> datetime | None:
    """Return the midnight after a day; None without a day, and after the last day of the calendar."""
    begin = _begin(day)
    try:
        return None if begin is None else begin + _DAY
    except OverflowError:
        return None


def _in_utc(after: tuple[Any, ...] | None) -> tuple[datetime, str] | None:
    if after is None:
        return None
    moment, key = after
    if moment.tzinfo is None:
        raise InvalidInput("this is not a cursor of this list", hint="use `next` of the previous page, or leave it out")
    return moment, key
