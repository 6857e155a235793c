"""Events and items for readers. Tables: `outbox` (rows that the relay has numbered), `items`, `item_revisions`.

A reader stores the position of the last event it has processed and asks for later ones. Positions follow the order of
commits, so a reader misses no event. Events are pruned after a while, items are not.
"""

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Select, Table, and_, case, func, or_, select

from floodmark.errors import NotFound
from floodmark.model.streams import ItemHistory, StoredItem

from .async_engine import AsyncConnection
from .dialects import raw
from .outbox_rows import event_from_row
from .port import Event
from .repository import Repository, bound_limit
from .tables import item_revisions, items, outbox

MOST_SHOWN = 1000


def select_events() -> Select[Any]:
    """Return the query of all numbered events, with the columns that `event_from_row` expects."""
    same = and_(items.c.stream == outbox.c.stream, items.c.key == outbox.c.key)
    before = and_(
        item_revisions.c.stream == outbox.c.stream,
        item_revisions.c.key == outbox.c.key,
        item_revisions.c.revision == outbox.c.revision,
    )
    # By the existence of the revision, not of the value: an older revision may have no `occurred_at`.
    is_newest = item_revisions.c.key.is_(None)
    occurred_at, collected_at, data, deleted = (
        case((is_newest, items.c[name]), else_=item_revisions.c[name])
        for name in ("occurred_at", "collected_at", "data", "deleted")
    )
    return (
        select(
            outbox.c.position,
            outbox.c.stream,
            outbox.c.key,
            outbox.c.revision,
            occurred_at,
            collected_at,
            raw(data),
            deleted,
            items.c.tenant_id,
            items.c.user_id,
        )
        .join(items, same)
        .outerjoin(item_revisions, before)
        .where(outbox.c.position.is_not(None))
    )


def _select(table: Table) -> Select[Any]:
    return select(*(table.c[name] for name in StoredItem.__struct_fields__))


class EventLog(Repository):
    """Reads events by position and items by key."""

    async def after(self, position: int, limit: int = 100, stream: str | None = None) -> list[Event]:
        """Return events after a position, in order; of one stream or of all."""
        query = select_events().where(outbox.c.position > position)
        if stream is not None:
            query = query.where(outbox.c.stream == stream)
        async with self._database.reading() as connection:
            rows = await connection.execute(query.order_by(outbox.c.position).limit(bound_limit(limit, MOST_SHOWN)))
            return [event_from_row(row) for row in rows]

    async def bounds(self) -> tuple[int, int]:
        """Return the positions of the oldest and the newest stored event; 0 and 0 if there is none."""
        query = select(func.min(outbox.c.position), func.max(outbox.c.position)).where(outbox.c.position.is_not(None))
        async with self._database.reading() as connection:
            oldest, newest = (await connection.execute(query)).one()
        return oldest or 0, newest or 0

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

    async def item(self, stream: str, key: str) -> ItemHistory:
        """Return an item with its revisions."""
        async with self._database.reading() as connection:
            newest = await _read_item(connection, stream, key)
            before = _select(item_revisions).where(item_revisions.c.stream == stream, item_revisions.c.key == key)
            rows = await connection.execute(before.order_by(item_revisions.c.revision.desc()).limit(MOST_SHOWN))
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
