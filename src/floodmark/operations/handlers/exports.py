"""Handlers of exports."""

from collections.abc import Sequence
from datetime import datetime

from floodmark.errors import InvalidInput
from floodmark.model.exports import ChangedKey, ChangePage, ExportRow, ExportStream
from floodmark.model.page import Page, cursor_of, key_of, last_key
from floodmark.operations.exports import ExportOperations
from floodmark.operations.streams import FARTHEST
from floodmark.repositories.item_pages import KeyPlace, PagePlace
from floodmark.rules.stream_patterns import StreamPatterns, is_pattern
from floodmark.rules.streams import split_stream
from floodmark.sources.telegram.post_details import PostDetails

from .base import Handlers

# Streams that one page compares with patterns.
_COMPARED = 2000
_STREAMS, _ITEMS, _UNNUMBERED, _NUMBERED = "export-streams", "export-items", "export-keys-unnumbered", "export-keys"


class ExportHandlers(ExportOperations, Handlers):
    """Items and changes in the store."""

    async def export_streams(
        self, *, names: Sequence[str] = (), cursor: str | None = None, limit: int = 200
    ) -> Page[ExportStream]:
        patterns = StreamPatterns(name for name in names if is_pattern(name))
        named = {await self.find_items_stream(name) for name in names if not is_pattern(name)}
        if names and not patterns:
            return Page(await self._describe(sorted(named)))
        if patterns:
            shared = await self.store.item_pages.shared_streams()
            named |= {holds for stream, holds in shared.items() if patterns.match(stream)}
        looked = await self.store.item_pages.streams(last_key(_STREAMS, cursor, str) or "", _COMPARED)
        found = [stream for stream in looked if not names or stream in named or patterns.match(stream)]
        last = found[limit - 1] if len(found) > limit else looked[-1] if len(looked) == _COMPARED else None
        return Page(await self._describe(found[:limit]), cursor_of(_STREAMS, last))

    async def export_items(
        self,
        stream: str,
        *,
        since: datetime | None = None,
        before: datetime | None = None,
        revisions: bool = False,
        cursor: str | None = None,
        limit: int = 1000,
    ) -> Page[ExportRow]:
        pages, place = self.store.item_pages, _place_of(cursor)
        is_by_time = not revisions and (since is not None or before is not None)
        if place is not None and isinstance(place, KeyPlace) is is_by_time:
            raise InvalidInput("this is a cursor of another list", hint="ask for the same items as on the first page")
        if is_by_time:
            page = await pages.by_time(stream, place, limit, since=since, before=before)
        else:
            assert isinstance(place, KeyPlace | None)
            page = await pages.by_key(stream, place, limit, revisions=revisions)
        rows = [row for row in page.rows if _is_within(row.time, since, before)]
        return Page(await self._details.add_to(rows), cursor_of(_ITEMS, page.next))

    async def export_changes(self, *, after: int, limit: int = 1000) -> ChangePage:
        page = await self.store.item_pages.changes(after, limit)
        # After the changes: events that were deleted before they could be read must not be taken for read ones.
        log = await self.store.item_pages.bounds()
        return ChangePage(items=await self._details.add_to(page.rows), next=None, log=log)

    async def export_keys(self, *, after: int, cursor: str | None = None, limit: int = 1000) -> Page[ChangedKey]:
        pages, numbered = self.store.item_pages, _position_in(_NUMBERED, cursor)
        if numbered is None:
            unnumbered = 0 if cursor is None else _position_in(_UNNUMBERED, cursor)
            if unnumbered is None:
                raise InvalidInput("this is not a cursor of this list", hint="use `next` of the previous page")
            waiting = await pages.unnumbered_keys(unnumbered, limit)
            if waiting:
                is_end = len(waiting) < limit
                place = cursor_of(_NUMBERED, after) if is_end else cursor_of(_UNNUMBERED, waiting[-1][0])
                return Page([key for _, key in waiting], place)
        keys = await pages.changed_keys(after if numbered is None else numbered, limit)
        return Page(keys, cursor_of(_NUMBERED, keys[-1].position) if len(keys) == limit else None)

    @property
    def _details(self) -> PostDetails:
        return PostDetails(self.resources.database, self.resources.clock)

    async def _describe(self, streams: Sequence[str]) -> list[ExportStream]:
        known = await self.store.item_pages.sources(streams)
        return [ExportStream(stream=name, source=known.get(name) or split_stream(name)[0]) for name in streams]


def _is_within(time: datetime, since: datetime | None, before: datetime | None) -> bool:
    return (since is None or time >= since) and (before is None or time < before)


def _position_in(listing: str, cursor: str | None) -> int | None:
    """Return the number in a cursor of this listing; None for a cursor of another one."""
    try:
        found = last_key(listing, cursor, int)
    except InvalidInput:
        return None
    return None if found is None else max(0, min(found, FARTHEST))


def _place_of(cursor: str | None) -> PagePlace | None:
    found = key_of(_ITEMS, cursor, PagePlace)
    return None if found is None else found[0]
