"""Items and events in pages of bounded size, for exports. Tables: `items`, `item_revisions`, `outbox`; read only.

A page ends after a number of rows or of bytes. Data larger than `_LARGE` is read row by row, so that a page of large
items takes no more memory than one of small items.

Positions: on SQLite the `seq` of an event is its position, also before the relay has written it down. On PostgreSQL an
event has a position once the relay has numbered it.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace
from sqlalchemy import ColumnElement, Select, Table, and_, case, false, func, null, or_, select, text, true

from floodmark.model.exports import ChangedKey, ExportRow, LogBounds
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.database import Database
from floodmark.store.dialects import chunks, raw
from floodmark.store.tables import item_revisions, items, jobs, outbox, watermarks

from .repository import Repository, bound_limit

# The most rows and bytes of a page.
MOST_ROWS, MOST_BYTES = 1000, 8 * 1024 * 1024
_LARGE = 64 * 1024
# An item that is looked for has two parameters.
_PLACES_AT_ONCE = 150
# Keys that one page looks at to find items without a time.
_SCANNED = 5000
_IDENTITY = ("stream", "key", "revision")
_CONTENT = ("deleted", "occurred_at", "collected_at", "execution_id", "content_hash")
_OWNER = {name: items.c[name] for name in ("tenant_id", "user_id")}

Found = tuple[ExportRow, int]
"""A row, without its data if that is large, and the size of the data."""

_NEXT_STREAMS = text("""
WITH RECURSIVE found(stream) AS (
    SELECT min(stream) FROM items WHERE stream > :after
    UNION ALL
    SELECT (SELECT min(i.stream) FROM items i WHERE i.stream > found.stream) FROM found WHERE found.stream IS NOT NULL
)
SELECT stream FROM found WHERE stream IS NOT NULL LIMIT :limit
""")
_LAST_SEQ = text("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'")


class KeyPlace(Struct, frozen=True, tag="key"):
    """A place in the order of keys: after this item, or within it after its `revision`."""

    key: str
    revision: Annotated[int, Meta(ge=0, lt=2**31)] | None = None


class TimePlace(Struct, frozen=True, tag="time"):
    """A place in the order of time."""

    time: Annotated[datetime, Meta(tz=True)]
    key: str


class UntimedPlace(Struct, frozen=True, tag="untimed"):
    """A place among the items without a time, in the order of keys. They follow those with a time."""

    key: str


PagePlace = KeyPlace | TimePlace | UntimedPlace


class ItemPage(Struct):
    """Rows, and the place where the next page starts; None at the end."""

    rows: list[ExportRow]
    next: PagePlace | None


class FoundRows(Struct, frozen=True):
    """Rows of items that were looked for, and how many of those were looked at."""

    rows: list[ExportRow]
    seen: int


class ItemPages(Repository):
    """Reads items by key or by time, and events by position."""

    async def streams(self, after: str, limit: int) -> list[str]:
        """Return the streams that have items, in order of name, from one to the next through the index."""
        return await next_streams(self._database, after, limit)

    async def sources(self, streams: Sequence[str]) -> dict[str, str]:
        """Return the sources of those streams that are set explicitly in a job."""
        found: dict[str, str] = {}
        for some in chunks(streams):
            query = select(jobs.c.stream, func.min(jobs.c.source)).where(jobs.c.stream.in_(some))
            async with self._database.reading() as connection:
                found |= {row[0]: row[1] for row in await connection.execute(query.group_by(jobs.c.stream))}
        return found

    async def shared_streams(self) -> dict[str, str]:
        """Return the streams whose items are in another stream, and that other stream."""
        query = select(watermarks.c.stream, watermarks.c.items_stream).where(watermarks.c.items_stream.is_not(None))
        async with self._database.reading() as connection:
            return {row[0]: row[1] for row in await connection.execute(query)}

    async def by_key(self, stream: str, after: KeyPlace | None, limit: int, *, revisions: bool = False) -> ItemPage:
        """Return items in order of key. With `revisions` the earlier revisions of an item come before the newest."""
        limit, key = bound_limit(limit, MOST_ROWS), items.c.key
        query = _newest(stream)
        if after is not None:
            query = query.where(key > after.key if after.revision is None else key >= after.key)
        async with self._database.reading() as connection:
            found = await _fetch(connection, _sized(query, limit, key))
            is_end = len(found) < limit
            if revisions and found:
                found, is_complete = await _add_revisions(connection, found, after, limit)
                is_end = is_end and is_complete
            return await _bound_page(connection, found, limit, is_end, _key_place)

    async def by_time(
        self, stream: str, after: PagePlace | None, limit: int, *, since: datetime | None, before: datetime | None
    ) -> ItemPage:
        """Return the newest revisions of a period: first those with a time, in its order, then those without one.

        The time of an item without one is that of its collection.
        """
        limit, at = bound_limit(limit, MOST_ROWS), items.c.occurred_at
        query = _newest(stream).where(at.is_not(None), *_within(at, since, before))
        if isinstance(after, TimePlace):
            query = query.where(at >= after.time, or_(at > after.time, items.c.key > after.key))
        async with self._database.reading() as connection:
            if isinstance(after, UntimedPlace):
                return await _read_untimed(connection, stream, after, limit, since=since, before=before)
            found = await _fetch(connection, _sized(query, limit, at, items.c.key))
            page = await _bound_page(connection, found, limit, len(found) < limit, _time_place)
            page.next = page.next or UntimedPlace("")
            return page

    async def at(self, places: Sequence[tuple[str, str]]) -> FoundRows:
        """Return the newest revisions of items by stream and key, in this order, up to the bytes of a page."""
        found: dict[tuple[str, str], Found] = {}
        async with self._database.reading() as connection:
            for some in chunks(places, _PLACES_AT_ONCE):
                each = [and_(items.c.stream == stream, items.c.key == key) for stream, key in some]
                query = _select_from(items, **_OWNER, is_newest=true()).where(or_(*each))
                found |= {
                    (row.stream, row.key): (row, size)
                    for row, size in await _fetch(connection, _sized(query, len(some)))
                }
            rows, total = list[ExportRow](), 0
            for seen, place in enumerate(places):
                row, size = found.get(place, (None, 0))
                if row is None:
                    continue
                if rows and total + size > MOST_BYTES:
                    return FoundRows(rows, seen)
                total += size
                rows.append(row if size <= _LARGE else replace(row, data=await _read_data(connection, row)))
        return FoundRows(rows, len(places))

    async def changes(self, after: int, limit: int) -> ItemPage:
        """Return the revisions that events after a position are about, in order."""
        limit, position = bound_limit(limit, MOST_ROWS), self._position
        same = and_(items.c.stream == outbox.c.stream, items.c.key == outbox.c.key)
        before = and_(
            item_revisions.c.stream == outbox.c.stream,
            item_revisions.c.key == outbox.c.key,
            item_revisions.c.revision == outbox.c.revision,
        )
        is_newest = item_revisions.c.key.is_(None)
        content = {
            name: case((is_newest, raw(items.c[name])), else_=raw(item_revisions.c[name]))
            for name in (*_CONTENT, "data")
        }
        identity = {name: outbox.c[name] for name in _IDENTITY}
        columns = {**identity, **content, **_OWNER, "is_newest": is_newest, "position": position}
        query = _select(columns).join(items, same).outerjoin(item_revisions, before).where(position > after)
        async with self._database.reading() as connection:
            found = await _fetch(connection, _sized(query, limit, position))
            return await _bound_page(connection, found, limit, len(found) < limit, _key_place)

    async def changed_keys(self, after: int, limit: int) -> list[ChangedKey]:
        """Return the keys of changes after a position, in order."""
        position = self._position
        query = select(outbox.c.stream, outbox.c.key, outbox.c.revision, position.label("position"))
        return await self._keys(query.where(position > after).order_by(position), limit)

    async def unnumbered_keys(self, after: int, limit: int) -> list[tuple[int, ChangedKey]]:
        """Return the keys of changes that have no position yet, each with its `seq`, after such a number."""
        if self._database.dialect != "postgresql":
            return []
        query = select(outbox.c.stream, outbox.c.key, outbox.c.revision, null().label("position"), outbox.c.seq)
        query = query.where(outbox.c.sent_at.is_(None), outbox.c.seq > after).order_by(outbox.c.seq)
        rows = await self._database.fetch(query.limit(bound_limit(limit, MOST_ROWS)))
        return [(row["seq"], ChangedKey(**{name: row[name] for name in ChangedKey.__struct_fields__})) for row in rows]

    async def bounds(self) -> LogBounds:
        """Return the positions of the oldest and the newest event."""
        position = self._position
        async with self._database.reading() as connection:
            oldest, newest = (await connection.execute(select(func.min(position), func.max(position)))).one()
            if self._database.dialect == "sqlite":
                # It stays when every event has been deleted.
                newest = (await connection.execute(_LAST_SEQ)).scalar() or newest
        return LogBounds(oldest=(newest or 0) + 1 if oldest is None else oldest, newest=newest or 0)

    @property
    def _position(self) -> ColumnElement[Any]:
        return outbox.c.position if self._database.dialect == "postgresql" else outbox.c.seq

    async def _keys(self, query: Select[Any], limit: int) -> list[ChangedKey]:
        rows = await self._database.fetch(query.limit(bound_limit(limit, MOST_ROWS)))
        return [ChangedKey(**row) for row in rows]


async def next_streams(database: Database, after: str, limit: int) -> list[str]:
    """Return the streams after this one that have items, in order of name: SELECT DISTINCT would read every item."""
    async with database.reading() as connection:
        rows = await connection.execute(_NEXT_STREAMS, {"after": after, "limit": limit})
        return [str(row[0]) for row in rows]


def _select(columns: Mapping[str, ColumnElement[Any]]) -> Select[Any]:
    """Return a query with the fields of `ExportRow`, in their order; what is beside the items is added by handlers."""
    return select(*(columns[name].label(name) for name in ExportRow.__struct_fields__ if name != "beside"))


def _select_from(table: Table, **others: ColumnElement[Any]) -> Select[Any]:
    columns = {name: table.c[name] for name in (*_IDENTITY, *_CONTENT)}
    return _select({**columns, "data": raw(table.c.data), "position": null(), **others})


def _newest(stream: str) -> Select[Any]:
    """Return the query of the newest revisions of a stream."""
    return _select_from(items, **_OWNER, is_newest=true()).where(items.c.stream == stream)


def _within(at: ColumnElement[Any], since: datetime | None, before: datetime | None) -> list[ColumnElement[bool]]:
    return [*([] if since is None else [at >= since]), *([] if before is None else [at < before])]


def _sized(query: Select[Any], limit: int, *order: ColumnElement[Any]) -> Select[Any]:
    """Return the first rows of a query with the size of their data, and without data that is large."""
    # The limit keeps it a subquery of its own, so that PostgreSQL makes the text of the data once.
    rows = query.add_columns(func.length(query.selected_columns.data).label("size"))
    *others, data, size = rows.order_by(*order).limit(limit).subquery().c
    # In the order of the subquery, which both databases keep.
    return select(*others, case((size <= _LARGE, data)).label("data"), size)


async def _fetch(connection: AsyncConnection, query: Select[Any]) -> list[Found]:
    """Return rows with the size of their data."""
    return [(ExportRow(*row), size) for *row, size in (await connection.execute(query)).all()]


async def _read_untimed(
    connection: AsyncConnection,
    stream: str,
    after: UntimedPlace,
    limit: int,
    *,
    since: datetime | None,
    before: datetime | None,
) -> ItemPage:
    """Read items without a time. One page looks at a bounded number of keys, because there may be none among many."""
    key = items.c.key
    keys = select(key).where(items.c.stream == stream, key > after.key).order_by(key).offset(_SCANNED - 1).limit(1)
    last = (await connection.execute(keys)).scalar()
    period = _within(items.c.collected_at, since, before)
    query = _newest(stream).where(key > after.key, items.c.occurred_at.is_(None), *period)
    query = query if last is None else query.where(key <= last)
    found = await _fetch(connection, _sized(query, limit, key))
    page = await _bound_page(connection, found, limit, len(found) < limit, _untimed_place)
    if page.next is None and last is not None:
        page.next = UntimedPlace(last)
    return page


async def _add_revisions(
    connection: AsyncConnection, newest: Sequence[Found], after: KeyPlace | None, limit: int
) -> tuple[list[Found], bool]:
    """Return items with their earlier revisions before them, and whether these are all of them."""
    cell, first, last = item_revisions.c, newest[0][0], newest[-1][0]
    query = _select_from(item_revisions, tenant_id=null(), user_id=null(), is_newest=false())
    query = query.where(cell.stream == first.stream, cell.key >= first.key, cell.key <= last.key)
    if after is not None and after.revision is not None:
        query = query.where(or_(cell.key > after.key, cell.revision > after.revision))
    earlier = await _fetch(connection, _sized(query, limit, cell.key, cell.revision))
    by_key: dict[str, list[Found]] = {row.key: [] for row, _ in newest}
    # An item that was added since then is read with a later page.
    known = [(row, size) for row, size in earlier if row.key in by_key]
    for row, size in known:
        by_key[row.key].append((row, size))
    is_cut = len(earlier) == limit
    merged: list[Found] = []
    for item, length in newest:
        owner = {"tenant_id": item.tenant_id, "user_id": item.user_id}
        # An item that has changed since it was read has one more earlier revision: the one that was read.
        merged += [(replace(row, **owner), size) for row, size in by_key[item.key] if row.revision < item.revision]
        if is_cut and known and item.key == known[-1][0].key:
            return merged, False
        merged.append((item, length))
    return merged, not is_cut


async def _bound_page(
    connection: AsyncConnection,
    found: Sequence[Found],
    limit: int,
    is_end: bool,
    place: Callable[[ExportRow], PagePlace],
) -> ItemPage:
    """Return the rows up to the limits of a page, with their data."""
    rows: list[ExportRow] = []
    total = 0
    for row, size in found:
        if len(rows) == limit or (rows and total + size > MOST_BYTES):
            return ItemPage(rows, place(rows[-1]))
        total += size
        rows.append(row if size <= _LARGE else replace(row, data=await _read_data(connection, row)))
    return ItemPage(rows, None if is_end or not rows else place(rows[-1]))


async def _read_data(connection: AsyncConnection, row: ExportRow) -> str:
    """Return the data of one revision. It may have become an earlier one since it was found."""
    for table in (items, item_revisions):
        this = (table.c.stream == row.stream, table.c.key == row.key, table.c.revision == row.revision)
        data = (await connection.execute(select(raw(table.c.data)).where(*this))).scalar()
        if data is not None:
            return str(data)
    raise AssertionError("a revision that was found is not stored")


def _key_place(row: ExportRow) -> PagePlace:
    return KeyPlace(row.key, None if row.is_newest else row.revision)


def _time_place(row: ExportRow) -> PagePlace:
    assert row.occurred_at is not None
    return TimePlace(row.occurred_at, row.key)


def _untimed_place(row: ExportRow) -> PagePlace:
    return UntimedPlace(row.key)
