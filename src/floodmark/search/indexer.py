"""Builds the search index: fills it with all items once, then follows the events by position.

Each step is one transaction of the index, which also holds how far it is built: a killed process leaves the index as it
was before a step or after it. The index is built from the beginning if it is missing, damaged or of another version, if
events after its position were deleted, or if the database is not the one that it was built from.
"""

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from msgspec.structs import replace

from floodmark.observability.events import BatchKept, Events, IndexBegun, ItemsIndexed
from floodmark.process.tasks import end_tasks

from .documents import SearchableItem, SearchDocument, document_of
from .port import IndexDamaged, SearchIndex
from .state import IndexState
from .stored_items import Place, StoredItems
from .tokens import VERSION

# The items of one step: more while the index is filled, because both databases write less for the same items then.
# Fewer are read while they are large and after a step that failed, and a step ends early when it has this many tokens.
_FEWEST, _AT_ONCE, _AT_ONCE_FILLING, _TOKENS_AT_ONCE = 20, 500, 4000, 200_000
# No more items are read at once when a step took longer than this.
_LONG_STEP_SECONDS = 1.0
# While there is more to index, rest for a part of the time that the last step took; much longer while this process
# stores more items a second than can be indexed beside it.
_REST, _BUSY_REST, _BUSY_RATE = 0.5, 9.0, 2000
_CHECK_SECONDS = 60.0


class _Page(NamedTuple):
    """Documents of stored items, made while the page before them was written.

    Only for the same `build`: a later one begins with items that may have changed since, and does not read that event.
    """

    build: str
    after: Place | None
    documents: list[SearchDocument]
    is_last: bool


class Indexer:
    """Builds the index step by step. Several processes may try: only one of them makes a step."""

    def __init__(self, index: SearchIndex, items: StoredItems, events: Events, *, rests: bool = True) -> None:
        self._index, self._items, self._events, self._rests = index, items, events, rests
        self._kept, self._counted_at, self._rests_until = 0, time.monotonic(), 0.0
        if rests:
            events.listen(BatchKept, self._count)
        self._checked_at, self._limit = float("-inf"), _AT_ONCE
        self._position, self._lag, self._has_failed = 0, 0.0, False
        self._next_page: _Page | None = None

    async def step(self) -> timedelta | None:
        """Index one batch. Return the time to rest if there is more to index, None if there is nothing."""
        began = time.monotonic()
        if began >= self._rests_until:
            if await self._index_batch():
                return None
            self._rests_until = time.monotonic() + (self._rest_after(began) if self._rests else 0.0)
        # A call that comes too early waits for the rest of the time.
        return timedelta(seconds=max(0.0, self._rests_until - time.monotonic()))

    async def finish(self) -> None:
        """Index what is left when a process stops. After a failure the next process does it."""
        while not self._has_failed and not await self._index_batch():
            pass

    async def rebuild(self) -> IndexState:
        """Begin to build the index again. The next steps do it."""
        return await self._begin("on request")

    def _count(self, event: BatchKept) -> None:
        self._kept += event.new + event.changed

    def _rest_after(self, began: float) -> float:
        """Return how many seconds to rest after a step that began then."""
        now = time.monotonic()
        rate, self._kept = self._kept / max(now - self._counted_at, 0.001), 0
        self._counted_at = now
        return (now - began) * (_BUSY_REST if rate > _BUSY_RATE else _REST)

    async def _index_batch(self) -> bool:
        """Index one batch, and return whether it was the last one."""
        self._has_failed = True
        try:
            state = await self._read_state()
            is_done = await (self._fill(state) if state.is_filling else self._follow(state))
        except IndexDamaged as damaged:
            await self._begin(str(damaged))
            is_done = False
        except Exception:
            # It may have taken too long, so the next step is smaller. The lag grows while steps fail.
            self._limit, self._next_page = max(_FEWEST, self._limit // 2), None
            await self._report(0, self._position)
            raise
        self._has_failed = False
        return is_done

    async def _read_state(self) -> IndexState:
        state = await self._index.read_state()
        if state is None or time.monotonic() - self._checked_at >= _CHECK_SECONDS:
            problem = await self._problem(state)
            if problem is not None:
                return await self._begin(problem)
            self._checked_at = time.monotonic()
        assert state is not None
        self._position = state.position
        return state

    async def _problem(self, state: IndexState | None) -> str | None:
        """Return why the index must be built from the beginning."""
        if state is None:
            return "there is none"
        if state.version != VERSION:
            return f"it has version {state.version} of the tokens instead of {VERSION}"
        events = await self._items.measure()
        if state.position < events.before_oldest:
            return "events after its position were deleted"
        if state.position > events.newest:
            return "its position is after the newest event"
        event_id = None if state.event_id is None else await self._items.find_event(state.position)
        return None if event_id in (None, state.event_id) else "it was built from another database"

    async def _begin(self, reason: str) -> IndexState:
        newest = (await self._items.measure()).newest
        state = await self._index.begin(VERSION, newest)
        self._events.emit(IndexBegun(reason))
        self._checked_at = time.monotonic()
        return state

    async def _fill(self, state: IndexState) -> bool:
        began = time.monotonic()
        page, self._next_page = self._next_page, None
        if page is None or (page.build, page.after) != (state.build, state.filled_to):
            page = await self._read_page(state)
        if page.is_last:
            await self._add(page.documents, state, replace(state, is_filling=False, filled_to=None))
            return False
        last = page.documents[-1]
        after = replace(state, filled_to=(last.stream, last.key))
        reading = asyncio.create_task(self._read_page(after))
        try:
            await self._add(page.documents, state, after)
            self._next_page = await reading
        finally:
            await end_tasks(reading)
        self._adjust_limit(began, len(page.documents), _AT_ONCE_FILLING)
        return False

    async def _read_page(self, state: IndexState) -> _Page:
        limit = self._limit
        found = await self._items.page(state.filled_to, limit)
        documents = await self._make_documents(found)
        return _Page(
            state.build, state.filled_to, documents, is_last=len(found) < limit and len(documents) == len(found)
        )

    async def _follow(self, state: IndexState) -> bool:
        began, limit = time.monotonic(), min(self._limit, _AT_ONCE)
        found = await self._items.after(state.position, limit)
        if not found:
            if self._lag:
                await self._report(0, state.position)
            return True
        if found[0].position > state.position + 1:
            await self._begin("events after its position were deleted")
            return False
        documents = await self._make_documents([numbered.item for numbered in found])
        last = found[len(documents) - 1]
        after = replace(state, position=last.position, event_id=last.event_id)
        await self._add(_newest_of_each(documents), state, after)
        self._adjust_limit(began, len(documents), _AT_ONCE)
        return len(documents) == len(found) < limit

    async def _make_documents(self, found: Sequence[SearchableItem]) -> list[SearchDocument]:
        """Return the documents of the first items, or of all of them if they are not too large."""
        # Cutting texts into tokens takes a while: the event loop goes on meanwhile.
        documents = await asyncio.to_thread(_documents_of, found)
        if len(documents) < len(found):
            self._limit = max(_FEWEST, len(documents))
        return documents

    def _adjust_limit(self, began: float, count: int, most: int) -> None:
        """Read more items at once after a full step that took little time, fewer after one that took long."""
        if time.monotonic() - began > _LONG_STEP_SECONDS:
            self._limit = max(_FEWEST, self._limit // 2)
        elif count >= self._limit:
            self._limit = min(2 * self._limit, most)

    async def _add(self, documents: Sequence[SearchDocument], before: IndexState, after: IndexState) -> None:
        if await self._index.add(documents, before, after):
            await self._report(len(documents), after.position)

    async def _report(self, count: int, position: int) -> None:
        self._lag = (await self._items.measure(position)).lag
        self._events.emit(ItemsIndexed(count, self._lag))


def _documents_of(found: Sequence[SearchableItem]) -> list[SearchDocument]:
    """Return the documents of items, until they have too many tokens; at least one."""
    documents: list[SearchDocument] = []
    tokens = 0
    for item in found:
        documents.append(document_of(item))
        tokens += sum(map(len, documents[-1].runs))
        if tokens >= _TOKENS_AT_ONCE:
            break
    return documents


def _newest_of_each(documents: Sequence[SearchDocument]) -> list[SearchDocument]:
    """Return the last revision of each item."""
    return list({(document.stream, document.key): document for document in documents}.values())
