"""Reads events with all that watches need. Tables: `outbox`, `items`, `item_revisions`; nothing is written."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import Select, and_, case, func, or_, select

from floodmark.repositories.repository import Repository
from floodmark.rules.backfill import Existed
from floodmark.store.dialects import chunks, raw
from floodmark.store.tables import item_revisions, items, outbox

from .rows import last_position

# Pairs of a stream and a key in one statement.
_AT_ONCE = 200


class WatchedEvent(Struct, frozen=True, kw_only=True, gc=False):
    """A new, changed or deleted item. `data` is its JSON at that revision."""

    position: int
    stream: str
    key: str
    revision: int
    existed: Existed | None
    occurred_at: datetime | None
    collected_at: datetime
    deleted: bool
    data: str

    @property
    def event_id(self) -> str:
        """The id of the event, as all readers see it."""
        return f"{self.stream}/{self.key}/{self.revision}"


_o, _i, _r = outbox.c, items.c, item_revisions.c
_CONTENT = ("occurred_at", "collected_at", "deleted", "data")


def _select() -> Select[Any]:
    before = and_(_r.stream == _o.stream, _r.key == _o.key, _r.revision == _o.revision)
    is_newest = _r.key.is_(None)
    content = [raw(case((is_newest, _i[name]), else_=_r[name])).label(name) for name in _CONTENT]
    return (
        select(_o.position, _o.stream, _o.key, _o.revision, _o.existed, *content)
        .join(items, and_(_i.stream == _o.stream, _i.key == _o.key))
        .outerjoin(item_revisions, before)
        .where(_o.position.is_not(None))
    )


class EventReader(Repository):
    """Reads events by position, and earlier revisions of items."""

    async def after(self, position: int, limit: int) -> list[WatchedEvent]:
        """Return events after a position, in order."""
        query = _select().where(_o.position > position).order_by(_o.position).limit(limit)
        async with self._database.reading() as connection:
            return [WatchedEvent(**row) for row in (await connection.execute(query)).mappings()]

    async def previous(self, events: Sequence[WatchedEvent]) -> dict[str, str]:
        """Return the data of the revision before each event, by the id of the event; not of deleted items."""
        found: dict[str, str] = {}
        changed = [event for event in events if event.revision > 1]
        async with self._database.reading() as connection:
            for some in chunks(changed, _AT_ONCE):
                wanted = or_(
                    *(and_(_r.stream == e.stream, _r.key == e.key, _r.revision == e.revision - 1) for e in some)
                )
                query = select(_r.stream, _r.key, _r.revision, raw(_r.data).label("data")).where(wanted, ~_r.deleted)
                for row in await connection.execute(query):
                    found[f"{row.stream}/{row.key}/{row.revision + 1}"] = row.data
        return found

    async def last_position(self) -> int:
        """Return the position of the newest event, 0 if there is none."""
        async with self._database.reading() as connection:
            return await last_position(connection)

    async def position_at(self, moment: datetime) -> int:
        """Return the position of the last event before a time. Positions follow the order of commits."""
        async with self._database.reading() as connection:
            bounds = select(func.min(_o.position), func.max(_o.position)).where(_o.position.is_not(None))
            oldest, high = (await connection.execute(bounds)).one()
            if oldest is None:
                return 0
            low = oldest - 1
            while low < high:
                middle = (low + high + 1) // 2
                query = select(_o.position, _o.created_at).where(_o.position >= middle)
                row = (await connection.execute(query.order_by(_o.position).limit(1))).one()
                if row.created_at < moment:
                    low = row.position
                else:
                    high = middle - 1
            return int(low)
