"""Handlers of searches, and of the search index."""

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from floodmark.errors import InvalidInput, Unavailable
from floodmark.model.exports import ExportRow
from floodmark.model.page import Page, cursor_of, last_key
from floodmark.model.search import IndexStatus, SearchHit, SearchOrder, SearchPage
from floodmark.operations.health import search_status
from floodmark.operations.search import SearchOperations
from floodmark.search.finder import Finder, Found, hit_of, in_utc
from floodmark.search.port import SearchFilter
from floodmark.search.query import Node, parse_query
from floodmark.search.stream_choice import StreamChoice, is_pattern
from floodmark.sources.telegram.post_details import PostDetails

from .base import Handlers

_RANKED = "search-ranked"
_NEWEST = "search-newest"
_LATEST, _FOUND = "latest-items", "export-found"


class SearchHandlers(SearchOperations, Handlers):
    """Searches in the index of the installation."""

    async def search(
        self,
        query: str | None = None,
        *,
        stream: str | Sequence[str] | None = None,
        tag: str | None = None,
        source: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        order: SearchOrder = "newest",
        cursor: str | None = None,
        limit: int = 20,
    ) -> SearchPage:
        node = None if query is None else parse_query(query)
        key = last_key(_RANKED if order == "rank" else _NEWEST, cursor, int)
        status = await self._require_enabled()
        finder = await self._finder(node)
        if order == "rank" and node is None:
            raise InvalidInput("without words no item matches better than others", hint="leave out order=rank")
        if order == "newest" and not stream and (tag or source):
            period = SearchFilter(since=in_utc(since), until=in_utc(until))
            first = await self._glance(finder, node, period, (tag, source), before=key, limit=limit)
            if first is not None:
                return SearchPage(items=first.hits, next=cursor_of(_NEWEST, first.next), index=status)
        within = await self._within(stream, tag, source, since, until)
        if order == "rank":
            assert node is not None
            found, listing = await finder.best(node, within, skip=max(key or 0, 0), limit=limit), _RANKED
        else:
            found, listing = await finder.newest(node, within, before=key, limit=limit), _NEWEST
        return SearchPage(items=found.hits, next=cursor_of(listing, found.next), index=status)

    async def _glance(
        self, finder: Finder, query: Node | None, within: SearchFilter, chosen: Sequence[str | None], **page: Any
    ) -> Found | None:
        """Look for a page among the newest items; None if they have too few of this tag and source.

        Also None if there are none at all: no job may have the tag, which is an error that the caller finds out.
        """
        tag, source = chosen
        if self.resources.search.choices.get(((), tag, source)) is not None:
            return None
        choose = partial(StreamChoice(self.resources.database, self.resources.clock).among, tag=tag, source=source)
        found = await finder.newest_among(query, within, choose, **page)
        return found if found is None or found.hits else None

    async def latest_items(self, *, cursor: str | None = None, limit: int = 20) -> Page[SearchHit]:
        before = last_key(_LATEST, cursor, int)
        found, following = await self.resources.search.items.latest(before, limit)
        return Page(await asyncio.to_thread(lambda: list(map(hit_of, found))), cursor_of(_LATEST, following))

    async def export_found(
        self,
        query: str | None = None,
        *,
        stream: str | Sequence[str] | None = None,
        tag: str | None = None,
        source: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        cursor: str | None = None,
        limit: int = 1000,
    ) -> Page[ExportRow]:
        node, before = None if query is None else parse_query(query), last_key(_FOUND, cursor, int)
        await self._require_enabled()
        finder = await self._finder(node)
        within = await self._within(stream, tag, source, since, until)
        found = await finder.places(node, within, before=before, limit=limit)
        rows = await self.store.item_pages.at([(hit.stream, hit.key) for hit in found])
        # A page ends early after large items, and items may have been deleted from the store.
        is_end = len(found) < limit and rows.seen == len(found)
        details = PostDetails(self.resources.database, self.resources.clock)
        wanted = await details.add_to([row for row in rows.rows if _is_within(row.time, within)])
        return Page(wanted, None if is_end or not found else cursor_of(_FOUND, found[rows.seen - 1].id))

    async def search_index(self) -> IndexStatus:
        return await search_status(self.resources, is_followed=await self.find_leader() is not None)

    async def rebuild_search_index(self) -> IndexStatus:
        await self._require_enabled()
        async with self.transaction():
            await self.record("search.rebuilt", "search index")
        await self.resources.search.indexer(self.resources.events).rebuild()
        return await self.search_index()

    async def update_search_index(self, *, patience: timedelta = timedelta(seconds=2)) -> IndexStatus:
        await self._require_enabled()
        indexer, until = self.resources.search.indexer(self.resources.events, rests=False), time.monotonic()
        until += patience.total_seconds()
        while time.monotonic() < until and await indexer.step() is not None:
            pass
        return await self.search_index()

    async def _finder(self, node: Node | None) -> Finder:
        """Return what searches. `InvalidInput` if the query names an unknown field."""
        finder = Finder(self.resources.search.index, self.resources.search.items)
        if node is not None:
            await finder.require_fields(node)
        return finder

    async def _within(
        self,
        stream: str | Sequence[str] | None,
        tag: str | None,
        source: str | None,
        since: datetime | None,
        until: datetime | None,
    ) -> SearchFilter:
        streams = await self._choose_streams(stream, tag, source)
        return SearchFilter(streams=streams, since=in_utc(since), until=in_utc(until))

    async def _require_enabled(self) -> IndexStatus:
        status = await self.search_index()
        if status.condition == "off":
            raise Unavailable("search is off: SEARCH_ENABLED is false", hint="set SEARCH_ENABLED=true and restart")
        return status

    async def _choose_streams(
        self, stream: str | Sequence[str] | None, tag: str | None, source: str | None
    ) -> frozenset[str] | None:
        """Return the streams of items to search, None for all."""
        texts = (stream,) if isinstance(stream, str) else tuple(stream or ())
        if not texts and tag is None and source is None:
            return None
        recent = self.resources.search.choices
        found = recent.get((texts, tag, source))
        if found is None:
            found = frozenset(await self._find_streams(texts, tag, source))
            recent.put((texts, tag, source), found)
        return found

    async def _find_streams(self, texts: Sequence[str], tag: str | None, source: str | None) -> set[str]:
        choice = StreamChoice(self.resources.database, self.resources.clock)
        list_known = self.resources.search.index.list_streams
        chosen: list[set[str]] = []
        if texts:
            found = [
                await choice.matching(text, await list_known(text))
                if is_pattern(text)
                else {await self.find_items_stream(text)}
                for text in texts
            ]
            chosen.append(set().union(*found))
        if tag is not None:
            chosen.append(await choice.with_tag(tag))
        if source is not None:
            chosen.append(await choice.of_source(source, await list_known(f"{source}:*")))
        return set.intersection(*chosen)


def _is_within(time: datetime, within: SearchFilter) -> bool:
    return (within.since is None or time >= within.since) and (within.until is None or time < within.until)
