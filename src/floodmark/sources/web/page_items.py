"""Makes the items of visited pages: new and changed texts, matches of a selector, tombstones of what is gone."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from floodmark.model.batch import Item
from floodmark.model.clock import Clock
from floodmark.sources.collected_items import CollectedItems
from floodmark.store.database import Database

from .difference import difference
from .extraction.rows import Row
from .matches import KnownMatches, find_stale, make_items, make_tombstones
from .pages import Pages
from .responses import Kind, VisitedPage, make_skipped
from .sitemaps import read_exact_time

# Shorter texts are often the same on different pages: "Log in", an empty list.
_SAME_TEXT = 200
# Items looked up at once, and times of changes in memory.
_LOOKED_UP, _MAX_CHANGES = 500, 500_000
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


class PageItems:
    """The items of a stream, made from visits. `has_matches`: matches on a page are items instead of the page."""

    def __init__(self, database: Database, clock: Clock, stream: str, *, has_matches: bool) -> None:
        self._pages, self._collected = Pages(database), CollectedItems(database)
        self._known_matches = KnownMatches(database)
        self._clock, self._stream, self._has_matches = clock, stream, has_matches
        # When pages were changed since the last crawl, as their sitemaps say.
        self._changed_at: dict[str, datetime] = {}

    def note_changes(self, lastmods: Mapping[str, str], since: datetime) -> None:
        """Remember the times of changes after `since`: they become the times of items."""
        # Times of one day or more before are not parsed: a sitemap can have 50,000.
        day = (since - timedelta(days=1)).date().isoformat()
        for url, lastmod in lastmods.items():
            if lastmod >= day and len(self._changed_at) < _MAX_CHANGES:
                at = read_exact_time(lastmod)
                if at is not None and since < at <= self._clock.now():
                    self._changed_at[url] = at

    async def build(self, seen: list[VisitedPage]) -> tuple[list[Item], dict[str, list[Row]]]:
        """Return the items of these visits, oldest first, and the matches by page.

        A new page with the same content as another page becomes a skipped one.
        """
        await self._skip_duplicates(seen)
        gone = [visit for visit in seen if visit.is_gone]
        changed = [visit for visit in seen if visit.kind is Kind.READ and not visit.is_new]
        keys = [visit.page.url for visit in (*gone, *changed)]
        before = await self._collected.data(self._stream, keys) if keys else {}
        items, matched = await self._make_matches(seen)
        for visit in seen:
            url = visit.page.url
            if visit.kind is Kind.READ and visit.rows is None:
                items.append(_make_item(visit, before.get(url), self._changed_at.get(url)))
            elif visit.is_gone and url in before:
                items.append(Item(url, before.get(url), None, "gone", deleted=True))
        items.sort(key=lambda item: item.occurred_at or _LONG_AGO)
        return items, matched

    async def _skip_duplicates(self, seen: list[VisitedPage]) -> None:
        """Skip new pages with the same content as another page."""
        fresh = [visit for visit in seen if visit.kind is Kind.READ and visit.is_new and _is_comparable(visit)]
        hashes = [visit.page.content_hash for visit in fresh if visit.page.content_hash is not None]
        if not hashes:
            return
        kept = await self._pages.find_by_content(self._stream, hashes)
        changed = {visit.page.url for visit in seen if visit.kind is Kind.READ and not visit.is_new}
        first = {content: url for content, url in kept.items() if url not in changed}
        for visit in fresh:
            url = visit.page.url
            other = first.setdefault(str(visit.page.content_hash), url)
            if other != url:
                same = make_skipped(visit.page, visit.page.crawl, f"the same as {other}")
                # Without its tags: if the other page changes or disappears, this one is read again.
                alone = replace(same.page, content_hash=None, etag=None, last_modified=None)
                visit.kind, visit.page = Kind.SKIPPED, alone

    async def _make_matches(self, seen: list[VisitedPage]) -> tuple[list[Item], dict[str, list[Row]]]:
        """Return the items of the matches on pages, with the tombstones of those that have disappeared."""
        if not self._has_matches:
            return [], {}
        matched: dict[str, list[Row]] = {visit.page.url: [] for visit in seen if visit.is_gone}
        matched |= {visit.page.url: visit.rows for visit in seen if visit.rows is not None}
        known = await self._known_matches.find(self._stream, list(matched)) if matched else {}
        stale, tombstones = find_stale(known, matched), list[Item]()
        for start in range(0, len(stale), _LOOKED_UP):
            keys = stale[start : start + _LOOKED_UP]
            tombstones += make_tombstones(keys, await self._collected.data(self._stream, keys))
        now = self._clock.now()
        raw = {visit.page.url: visit.raw for visit in seen}
        items = [item for url, rows in matched.items() for item in make_items(url, rows, now, raw[url])]
        return [*tombstones, *items], matched


def _is_comparable(visit: VisitedPage) -> bool:
    return visit.data is not None and len(visit.data["text"]) >= _SAME_TEXT


def _make_item(visit: VisitedPage, before: object, changed_at: datetime | None) -> Item:
    data = visit.data
    assert data is not None
    if visit.raw is not None:
        data = {**data, "raw": visit.raw}
    if isinstance(before, dict) and isinstance(before.get("text"), str):
        changes = difference(before["text"], data["text"])
        if before.get("title") != data["title"]:
            changes = f"-{before.get('title')}\n+{data['title']}\n{changes}".rstrip()
        data = {**data, "difference": changes}
    return Item(visit.page.url, data, changed_at, visit.page.content_hash)
