"""Events and items for readers. Tables: `outbox` (rows that the relay has numbered), `items`, `item_revisions`.

A reader stores the position of the last event it has processed and asks for later ones. Positions follow the order of
commits, so a reader misses no event. Events are pruned after a while, items are not.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Select, Table, and_, func, or_, select

from floodmark.errors import NotFound
from floodmark.model.streams import ItemHistory, StoredItem
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.outbox_rows import event_from_row, unsent_from_row
from floodmark.store.planned import Planned, fetch_planned, plan, plan_events
from floodmark.store.port import Event, Unsent
from floodmark.store.rows import read_moment
from floodmark.store.tables import item_revisions, items, outbox

from .repository import Repository, bound_limit

MOST_SHOWN = 1000

# Positions have no gaps, so a range of positions is a number of events.
_RANGE = "SELECT * FROM outbox WHERE position IS NOT NULL AND position > ?1 AND position <= ?2"
_EVENTS, _EVENTS_OF_STREAM = plan_events(_RANGE), plan_events(f"{_RANGE} AND stream = ?3")
# Positions that are looked through at once for events of one stream.
_AT_ONCE = 5000
# Two queries: SQLite finds one end of an index at once, but reads all of it if asked for both ends together.
BOUNDS = """
       COALESCE((SELECT position FROM outbox WHERE position IS NOT NULL ORDER BY position LIMIT 1), 0),
       COALESCE((SELECT position FROM outbox WHERE position IS NOT NULL ORDER BY position DESC LIMIT 1), 0)"""
_BOUNDS = plan(f"SELECT {BOUNDS}")
_NEXT = plan("""
SELECT position, created_at, sent_at FROM outbox
 WHERE position IS NOT NULL AND position > ?1 ORDER BY position LIMIT 1
""")
_NEWEST_SENT = plan("""
SELECT position FROM outbox WHERE position IS NOT NULL AND sent_at IS NOT NULL ORDER BY position DESC LIMIT 1
""")


def _select(table: Table) -> Select[Any]:
    return select(*(table.c[name] for name in StoredItem.__struct_fields__))


class EventLog(Repository):
    """Reads events by position and items by key."""

    async def after(self, position: int, limit: int = 100, stream: str | None = None) -> list[Event]:
        """Return events after a position, in order; of one stream or of all."""
        most = bound_limit(limit, MOST_SHOWN)
        rows = await (self.rows_after(position, most) if stream is None else self._read_stream(position, most, stream))
        return [event_from_row(row[:-1]) for row in rows]

    async def to_send(self, position: int, limit: int) -> list[Unsent]:
        """Return events after a position with their traces, for sinks."""
        return [unsent_from_row(row) for row in await self.rows_after(position, bound_limit(limit, MOST_SHOWN))]

    async def rows_after(self, position: int, most: int) -> Sequence[Sequence[Any]]:
        """Return events after a position as rows, with the columns of `unsent_from_row`."""
        rows = await self._fetch(_EVENTS, position, position + most)
        if not rows and (found := await self._fetch(_NEXT, position)):
            # The events after the position were deleted.
            first = found[0][0]
            rows = await self._fetch(_EVENTS, first - 1, first - 1 + most)
        return rows

    async def _read_stream(self, position: int, most: int, stream: str) -> Sequence[Sequence[Any]]:
        oldest, newest = await self.bounds()
        rows, begin = list[Sequence[Any]](), max(position, oldest - 1)
        while len(rows) < most and begin < newest:
            rows += await self._fetch(_EVENTS_OF_STREAM, begin, begin + _AT_ONCE, stream)
            begin += _AT_ONCE
        return rows[:most]

    async def bounds(self) -> tuple[int, int]:
        """Return the positions of the oldest and the newest stored event; 0 and 0 if there is none."""
        [(oldest, newest)] = await self._fetch(_BOUNDS)
        return oldest, newest

    async def newest_sent(self) -> int:
        """Return the position of the newest event that was marked as sent, 0 if there is none."""
        rows = await self._fetch(_NEWEST_SENT)
        return int(rows[0][0]) if rows else 0

    async def waits_since(self, position: int) -> datetime | None:
        """Return when the first event after a position was stored; None if there is none."""
        rows = await self._fetch(_NEXT, position)
        return read_moment(rows[0][1]) if rows else None

    async def position_before(self, moment: datetime) -> int:
        """Return the position after which all events were numbered at this time or later.

        Events are numbered in the order of their positions, so a binary search finds it without an index.
        """
        oldest, newest = await self.bounds()
        low, high = max(oldest, 1), newest + 1
        while low < high:
            middle = (low + high) // 2
            numbered_at = read_moment((await self._fetch(_NEXT, middle - 1))[0][2])
            # One that is about to be marked as sent was numbered just now.
            if numbered_at is not None and numbered_at < moment:
                low = middle + 1
            else:
                high = middle
        return low - 1

    async def _fetch(self, planned: Planned, *arguments: Any) -> Sequence[Sequence[Any]]:
        return await fetch_planned(self._database, planned, *arguments)

    async def last_position(self) -> int:
        """Return the position of the newest event, 0 if there is none."""
        return int(await self._database.fetch_value(select(func.max(outbox.c.position))) or 0)

    async def items(self, stream: str, after_key: str | None = None, limit: int = 100) -> list[StoredItem]:
        """Return the newest revisions in order of key. The next page is after the key of the last one."""
        query = _select(items).where(items.c.stream == stream)
        if after_key is not None:
            query = query.where(items.c.key > after_key)
        rows = await self._database.fetch(query.order_by(items.c.key).limit(bound_limit(limit, MOST_SHOWN)))
        return [StoredItem(**row) for row in rows]

    async def newest(
        self, stream: str, *, since: datetime | None = None, before_key: str | None = None, limit: int = 100
    ) -> list[StoredItem]:
        """Return the newest revisions, newest first: by `occurred_at`, or by `collected_at` where it is missing.

        Of equal times the greater key comes first, 10 before 9. The next page is before the key of the last one.
        """
        async with self._database.reading() as connection:
            edge = None if before_key is None else _place(await _read_item(connection, stream, before_key))
            found: list[StoredItem] = []
            # Two queries, so that each can use an index instead of sorting a whole stream.
            for query, at in (
                (_select(items).where(items.c.occurred_at.is_not(None)), items.c.occurred_at),
                (_select(items).where(items.c.occurred_at.is_(None)), items.c.collected_at),
            ):
                this = query.where(items.c.stream == stream)
                this = this if since is None else this.where(at >= since)
                this = this if edge is None else this.where(_is_before(at, edge))
                ordered = this.order_by(at.desc(), func.length(items.c.key).desc(), items.c.key.desc())
                rows = await connection.execute(ordered.limit(bound_limit(limit, MOST_SHOWN)))
                found += [StoredItem(**row) for row in rows.mappings()]
        return sorted(found, key=_place, reverse=True)[: bound_limit(limit, MOST_SHOWN)]

    async def items_between(
        self,
        stream: str,
        since: datetime | None,
        before: datetime | None,
        *,
        after: tuple[datetime, str] | None = None,
        limit: int = 100,
    ) -> list[StoredItem]:
        """Return the newest revisions of items with an `occurred_at` in a period, in order of `occurred_at` and key.

        The next page is after the `occurred_at` and the key of the last one.
        """
        at = items.c.occurred_at
        query = _select(items).where(items.c.stream == stream, at.is_not(None))
        if since is not None:
            query = query.where(at >= since)
        if before is not None:
            query = query.where(at < before)
        if after is not None:
            moment, key = after
            query = query.where(at >= moment, or_(at > moment, items.c.key > key))
        rows = await self._database.fetch(query.order_by(at, items.c.key).limit(bound_limit(limit, MOST_SHOWN)))
        return [StoredItem(**row) for row in rows]

    async def item(self, stream: str, key: str, *, before: int | None = None, limit: int = MOST_SHOWN) -> ItemHistory:
        """Return an item with its earlier revisions; with `before`, only those before that one."""
        async with self._database.reading() as connection:
            newest = await _read_item(connection, stream, key)
            query = _select(item_revisions).where(item_revisions.c.stream == stream, item_revisions.c.key == key)
            if before is not None:
                query = query.where(item_revisions.c.revision < before)
            query = query.order_by(item_revisions.c.revision.desc()).limit(min(limit, MOST_SHOWN))
            rows = await connection.execute(query)
            return ItemHistory(newest=newest, earlier=tuple(StoredItem(**row) for row in rows.mappings()))

    async def count(self, stream: str) -> int:
        """Return the number of items of a stream, tombstones included."""
        query = select(func.count()).select_from(items).where(items.c.stream == stream)
        return int(await self._database.fetch_value(query))


class _ItemPlace(NamedTuple):
    """The sort key of an item within its stream."""

    at: datetime
    length: int
    key: str


def _place(item: StoredItem) -> _ItemPlace:
    return _ItemPlace(item.occurred_at or item.collected_at, len(item.key), item.key)


async def _read_item(connection: AsyncConnection, stream: str, key: str) -> StoredItem:
    this = _select(items).where(items.c.stream == stream, items.c.key == key)
    row = (await connection.execute(this)).mappings().first()
    if row is None:
        hint = f"see what there is with: floodmark items {stream}"
        raise NotFound(f"{stream} has no item {key[:60]!r}", hint=hint)
    return StoredItem(**row)


def _is_before(at: Any, edge: _ItemPlace) -> Any:
    length = func.length(items.c.key)
    is_lesser_key = or_(length < edge.length, and_(length == edge.length, items.c.key < edge.key))
    return or_(at < edge.at, and_(at == edge.at, is_lesser_key))
