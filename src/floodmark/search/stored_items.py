"""Reads items and events for the index and for hits. Tables: `items`, `item_revisions`, `outbox`."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Select, Table, and_, func, or_, select, text, tuple_

from floodmark.model.streams import StoredItem
from floodmark.model.strict_json import read_stored_json
from floodmark.repositories.events import EventLog
from floodmark.repositories.repository import Repository
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.dialects import chunks, present, raw
from floodmark.store.rows import read_moment
from floodmark.store.tables import item_revisions, items, outbox

from .documents import SearchableItem

Place = tuple[str, str]
"""The stream and the key of an item."""

# A place or revision has two or three parameters.
_AT_ONCE = 150
_LAST_SEQ = text("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'")
# Steps that look for the newest events of items; a page of an item that changes all the time may have none.
_MOST_STEPS = 10
# Counting stops here: a larger number tells no more, and costs more.
MOST_COUNTED = 100_000


class NumberedItem(NamedTuple):
    """The revision of an item that an event is about."""

    position: int
    item: SearchableItem

    @property
    def event_id(self) -> str:
        """The id of the event."""
        return f"{self.item.stream}/{self.item.key}/{self.item.revision}"


class EventProgress(NamedTuple):
    """The position before the oldest stored event, that of the newest there ever was, and what is not indexed."""

    before_oldest: int
    newest: int
    lag: float
    """The age in seconds of the oldest event that is not indexed. Events without a position count, too."""
    has_more: bool
    """Whether there is such an event."""


class StoredItems(Repository):
    """Reads revisions of items."""

    async def after(self, position: int, limit: int) -> list[NumberedItem]:
        """Return the items of the events after a position, in order."""
        rows = await EventLog(self._database, self._clock).rows_after(position, limit)
        return [_numbered(row) for row in rows]

    async def page(self, after: Place | None, limit: int) -> list[SearchableItem]:
        """Return the newest revisions of items in order of stream and key, after this one."""
        query = _select(items).order_by(items.c.stream, items.c.key).limit(limit)
        if after is not None:
            query = query.where(tuple_(items.c.stream, items.c.key) > tuple_(*after))
        async with self._database.reading() as connection:
            return [_searchable(row) for row in await connection.execute(query)]

    async def earlier(self, revisions: Sequence[tuple[str, str, int]]) -> list[SearchableItem]:
        """Return these earlier revisions, as far as they are stored, in no order."""
        cell = item_revisions.c
        found: list[SearchableItem] = []
        async with self._database.reading() as connection:
            for some in chunks(revisions, _AT_ONCE):
                # SQLite would read the whole table for a list of tuples.
                each = [and_(cell.stream == s, cell.key == k, cell.revision == r) for s, k, r in some]
                rows = await connection.execute(_select(item_revisions).where(or_(*each)))
                found += [_searchable(row) for row in rows]
        return found

    async def newest(self, places: Sequence[Place]) -> dict[Place, StoredItem]:
        """Return the newest revisions of these items."""
        found: dict[Place, StoredItem] = {}
        columns = [items.c[name] for name in StoredItem.__struct_fields__]
        async with self._database.reading() as connection:
            for some in chunks(places, _AT_ONCE):
                each = [and_(items.c.stream == stream, items.c.key == key) for stream, key in some]
                rows = (await connection.execute(select(*columns).where(or_(*each)))).mappings()
                found |= {(row["stream"], row["key"]): StoredItem(**row) for row in rows}
        return found

    async def latest(self, before: int | None, limit: int) -> tuple[list[StoredItem], int | None]:
        """Return the items of the newest events before a position, newest first, each once: at its newest event.

        The second value is the position before which to continue, None at the end.
        """
        oldest, newest = await EventLog(self._database, self._clock).bounds()
        found: list[StoredItem] = []
        end = newest + 1 if before is None else min(before, newest + 1)
        for _ in range(_MOST_STEPS):
            if len(found) == limit or end <= oldest or newest == 0:
                break
            # Positions have no gaps, so a range of positions is a number of events.
            events = await self._events_between(end - 2 * limit, end)
            items = await self.newest([(stream, key) for _, stream, key, _ in events])
            end -= 2 * limit
            for position, stream, key, revision in events:
                item = items.get((stream, key))
                if item is not None and item.revision == revision:
                    found.append(item)
                    if len(found) == limit:
                        end = position
                        break
        return found, end if end > oldest > 0 else None

    async def _events_between(self, first: int, end: int) -> list[tuple[int, str, str, int]]:
        """Return the positions, items and revisions of events, newest first."""
        cell = outbox.c
        query = select(cell.position, cell.stream, cell.key, cell.revision)
        query = query.where(cell.position.is_not(None), cell.position >= first, cell.position < end)
        async with self._database.reading() as connection:
            rows = await connection.execute(query.order_by(cell.position.desc()))
            return [(row[0], row[1], row[2], row[3]) for row in rows]

    async def measure(self, position: int = 0) -> "EventProgress":
        """Return which events there are, and the age of the oldest one after a position."""
        cell, numbered = outbox.c, outbox.c.position.is_not(None)
        # Events without a position are unsent, and there is an index of those.
        unnumbered = select(cell.created_at).where(cell.sent_at.is_(None), cell.position.is_(None))
        query = select(
            select(func.min(cell.position)).where(numbered).scalar_subquery(),
            select(func.max(cell.position)).where(numbered).scalar_subquery(),
            select(cell.created_at).where(cell.position > position).order_by(cell.position).limit(1).scalar_subquery(),
            unnumbered.order_by(cell.seq).limit(1).scalar_subquery(),
            present(self._database, self._clock),
        )
        async with self._database.reading() as connection:
            oldest, newest, *times, now = (await connection.execute(query)).one()
            if oldest is None:
                newest = await self._last_number(connection)
                oldest = newest + 1
        waiting = [moment for moment in times if moment is not None]
        lag = max(0.0, (now - min(waiting)).total_seconds()) if waiting else 0.0
        return EventProgress(oldest - 1, newest, lag, bool(waiting))

    async def _last_number(self, connection: AsyncConnection) -> int:
        """Return the position of the last event when none is stored."""
        if self._database.dialect == "postgresql":
            # The newest one is never deleted, so there was none.
            return 0
        first = (await connection.execute(select(func.min(outbox.c.seq)))).scalar()
        if first is not None:
            return int(first) - 1
        return int((await connection.execute(_LAST_SEQ)).scalar() or 0)

    async def find_event(self, position: int) -> str | None:
        """Return the id of the event at a position, if it is still stored."""
        query = select(outbox.c.stream, outbox.c.key, outbox.c.revision).where(outbox.c.position == position)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).first()
        return None if row is None else f"{row.stream}/{row.key}/{row.revision}"

    async def count_after(self, position: int) -> int:
        """Return the number of events that are not indexed; of each kind at most `MOST_COUNTED` are counted."""
        queries = [
            select(outbox.c.seq).where(outbox.c.position > position),
            select(outbox.c.seq).where(outbox.c.sent_at.is_(None), outbox.c.position.is_(None)),
        ]
        async with self._database.reading() as connection:
            return sum([(await connection.execute(_count(query))).scalar_one() for query in queries])


def _select(table: Table) -> Select[Any]:
    names = ("stream", "key", "revision", "occurred_at", "collected_at", "deleted")
    return select(*(table.c[name] for name in names), raw(table.c.data))


def _searchable(row: Any) -> SearchableItem:
    stream, key, revision, occurred_at, collected_at, deleted, data = row
    at = read_moment(occurred_at) or read_moment(collected_at)
    assert at is not None
    return SearchableItem(stream, key, revision, at, read_stored_json(data), bool(deleted))


def _numbered(row: Any) -> NumberedItem:
    position, *item, data, deleted, _, _, _ = row
    return NumberedItem(position, _searchable((*item, deleted, data)))


def _count(query: Select[Any]) -> Select[Any]:
    return select(func.count()).select_from(query.limit(MOST_COUNTED).subquery())
