"""Finds items by their words: asks the index, reads the items, and marks the matches."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from floodmark.errors import InvalidInput
from floodmark.model.search import SearchHit
from floodmark.model.streams import StoredItem

from .documents import SearchableItem, document_of
from .matching import matches
from .port import GLANCED_AT, MOST_SHOWN_RANKED, IndexHit, SearchFilter, SearchIndex
from .query import Node, terms_of
from .snippets import mark_title, snippet_of
from .stored_items import Place, StoredItems
from .texts import KNOWN_FIELDS, texts_of

_FIELDS_SHOWN = 20

ChooseStreams = Callable[[Collection[str]], Awaitable[set[str]]]
"""Returns those of some streams that are searched."""


class Found(NamedTuple):
    """Part of the results. `next` is what to pass to get the next part, None if there is none."""

    hits: list[SearchHit]
    next: int | None


class Finder:
    """Searches an index whose items are in the database."""

    def __init__(self, index: SearchIndex, items: StoredItems) -> None:
        self._index, self._items = index, items

    async def newest(self, query: Node | None, within: SearchFilter, *, before: int | None, limit: int) -> Found:
        """Return matches, newest first; the next ones are `before` the last of these."""
        found = await self._index.find(query, within, before=before, limit=limit + 1)
        shown = found[:limit]
        return Found(await self._hits(query, within, shown), shown[-1].id if len(found) > limit else None)

    async def newest_among(
        self, query: Node | None, within: SearchFilter, choose: ChooseStreams, *, before: int | None, limit: int
    ) -> Found | None:
        """Return matches in the streams that `choose` returns of those it is given; None if not enough were looked at.

        To list all streams of a source or a tag takes longer than to look at the newest matches.
        """
        # Few are enough for a frequent source or tag.
        for count in dict.fromkeys((min(10 * limit, GLANCED_AT), GLANCED_AT)):
            looked_at = await self._index.find(query, within, before=before, limit=count)
            wanted = await choose({hit.stream for hit in looked_at})
            found = [hit for hit in looked_at if hit.stream in wanted]
            if len(found) > limit or len(looked_at) < count:
                shown = found[:limit]
                return Found(await self._hits(query, within, shown), shown[-1].id if len(found) > limit else None)
        return None

    async def places(
        self, query: Node | None, within: SearchFilter, *, before: int | None, limit: int
    ) -> list[IndexHit]:
        """Return where matches are, newest first; some may have changed since they were indexed."""
        return await self._index.find(query, within, before=before, limit=limit)

    async def best(self, query: Node, within: SearchFilter, *, skip: int, limit: int) -> Found:
        """Return matches, best first, without the first `skip`."""
        most = min(skip + limit + 1, MOST_SHOWN_RANKED)
        found = await self._index.rank(query, within, limit=most)
        shown = found[skip : skip + limit]
        is_more = len(found) > skip + limit
        return Found(await self._hits(query, within, shown), skip + limit if is_more else None)

    async def require_fields(self, query: Node) -> None:
        """Raise `InvalidInput` if the query names a field that no item has."""
        named = {term.field for wanted in (True, False) for term in terms_of(query, wanted=wanted)} - {None}
        known = {*KNOWN_FIELDS, *await self._index.list_fields()} if named else set[str]()
        for name in sorted(str(name) for name in named - known):
            fields = ", ".join(sorted(known)[:_FIELDS_SHOWN])
            raise InvalidInput(
                f"no item has a field {name[:40]!r}",
                hint=f'use one of {fields}; to find the text itself, write "{name[:40]}:..."',
            )

    async def _hits(self, query: Node | None, within: SearchFilter, found: Sequence[IndexHit]) -> list[SearchHit]:
        items = await self._items.newest([(hit.stream, hit.key) for hit in found])
        # The snippets of large items take a while: the event loop goes on meanwhile.
        return await asyncio.to_thread(_make_hits, query, within, found, items)


def _make_hits(
    query: Node | None, within: SearchFilter, found: Sequence[IndexHit], items: Mapping[Place, StoredItem]
) -> list[SearchHit]:
    return [
        hit_of(item, query)
        for hit in found
        if (item := items.get((hit.stream, hit.key))) is not None and _is_still_match(query, within, hit, item)
    ]


def _is_still_match(query: Node | None, within: SearchFilter, hit: IndexHit, item: StoredItem) -> bool:
    """Return whether an item matches that may have changed since it was indexed."""
    at = item.occurred_at or item.collected_at
    if (within.since is not None and at < within.since) or (within.until is not None and at >= within.until):
        return False
    if item.revision == hit.revision or query is None:
        return True
    newest = SearchableItem(item.stream, item.key, item.revision, at, item.data, item.deleted)
    return matches(query, document_of(newest).runs)


def hit_of(item: StoredItem, query: Node | None = None) -> SearchHit:
    """Return an item as a hit: its title and the part of its text that matches; without a query, the beginning."""
    found = texts_of(item.key, item.data)
    return SearchHit(
        stream=item.stream,
        key=item.key,
        revision=item.revision,
        occurred_at=item.occurred_at,
        collected_at=item.collected_at,
        deleted=item.deleted,
        url=found.url,
        channel=next(iter(found.fields.get("channel") or found.fields.get("feed") or ()), None),
        title=mark_title(query, found.title),
        snippet=snippet_of(query, found),
    )


def in_utc(moment: datetime | None) -> datetime | None:
    """Return an aware time; one without a zone is UTC."""
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment
