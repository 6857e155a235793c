"""Handlers of searches, and of the search index."""

import time
from collections.abc import Sequence
from datetime import datetime, timedelta

from floodmark.errors import Unavailable
from floodmark.model.page import cursor_of, last_key
from floodmark.model.search import IndexStatus, SearchOrder, SearchPage
from floodmark.operations.health import search_status
from floodmark.operations.search import SearchOperations
from floodmark.search.finder import Finder, in_utc
from floodmark.search.port import SearchFilter
from floodmark.search.query import parse_query
from floodmark.search.stream_choice import StreamChoice, is_pattern

from .base import Handlers

_RANKED = "search-ranked"
_NEWEST = "search-newest"


class SearchHandlers(SearchOperations, Handlers):
    """Searches in the index of the installation."""

    async def search(
        self,
        query: str,
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
        node, key = parse_query(query), last_key(_RANKED if order == "rank" else _NEWEST, cursor, int)
        status = await self._require_enabled()
        finder = Finder(self.resources.search.index, self.resources.search.items)
        await finder.require_fields(node)
        streams = await self._choose_streams(stream, tag, source)
        within = SearchFilter(streams=streams, since=in_utc(since), until=in_utc(until))
        if order == "rank":
            found, listing = await finder.best(node, within, skip=max(key or 0, 0), limit=limit), _RANKED
        else:
            found, listing = await finder.newest(node, within, before=key, limit=limit), _NEWEST
        return SearchPage(items=found.hits, next=cursor_of(listing, found.next), index=status)

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

    async def _require_enabled(self) -> IndexStatus:
        status = await self.search_index()
        if status.condition == "off":
            raise Unavailable("search is off: SEARCH_ENABLED is false", hint="set SEARCH_ENABLED=true and restart")
        return status

    async def _choose_streams(
        self, stream: str | Sequence[str] | None, tag: str | None, source: str | None
    ) -> frozenset[str] | None:
        """Return the streams of items to search, None for all."""
        choice, known = StreamChoice(self.resources.database, self.resources.clock), list[str]()
        texts = [stream] if isinstance(stream, str) else list(stream or ())
        if source is not None or any(map(is_pattern, texts)):
            known = await self.resources.search.index.list_streams()
        chosen: list[set[str]] = []
        if texts:
            found = [
                await choice.matching(text, known) if is_pattern(text) else {await self.find_items_stream(text)}
                for text in texts
            ]
            chosen.append(set().union(*found))
        if tag is not None:
            chosen.append(await choice.with_tag(tag))
        if source is not None:
            chosen.append(await choice.of_source(source, known))
        return frozenset(set.intersection(*chosen)) if chosen else None
