"""Read access of sources to what was collected before. Tables: `watermarks`, `items`, `jobs`; nothing is written."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import Text, and_, cast, func, or_, select

from floodmark.store.database import Database
from floodmark.store.dialects import chunks
from floodmark.store.tables import items, jobs, watermarks


class CollectedKey(Struct, frozen=True, kw_only=True):
    """The key and time of a stored item that is not deleted."""

    key: str
    occurred_at: datetime


class CollectedItems:
    """Reads stored items and the time of the last check."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def last_checked_at(self, stream: str) -> datetime | None:
        """Return when a stream was last collected to its end; None if it never was."""
        query = select(watermarks.c.last_checked_at).where(watermarks.c.stream == stream)
        async with self._database.reading() as connection:
            found: datetime | None = (await connection.execute(query)).scalar()
            return found

    async def keys(self, stream: str, *, since: datetime, after: CollectedKey | None, limit: int) -> list[CollectedKey]:
        """Return a page of the items of a stream since a time, oldest first; the next page starts `after` the last."""
        cell = items.c
        where = [cell.stream == stream, cell.deleted.is_(False), cell.occurred_at >= since]
        if after is not None:
            same = and_(cell.occurred_at == after.occurred_at, cell.key > after.key)
            where += [cell.occurred_at >= after.occurred_at, or_(cell.occurred_at > after.occurred_at, same)]
        query = select(cell.key, cell.occurred_at).where(*where).order_by(cell.occurred_at, cell.key).limit(limit)
        async with self._database.reading() as connection:
            return [CollectedKey(key=row.key, occurred_at=row.occurred_at) for row in await connection.execute(query)]

    async def data(self, stream: str, keys: Sequence[str]) -> dict[str, Any]:
        """Return the stored data of items by key."""
        found: dict[str, Any] = {}
        async with self._database.reading() as connection:
            for some in chunks(keys):
                query = select(items.c.key, items.c.data).where(items.c.stream == stream, items.c.key.in_(some))
                found |= {row.key: row.data for row in await connection.execute(query)}
        return found

    async def existing(self, stream: str, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that are stored, also as tombstones."""
        query = select(items.c.key).where(items.c.stream == stream, items.c.key.in_(keys))
        async with self._database.reading() as connection:
            return set((await connection.execute(query)).scalars())

    async def count_jobs(self, source: str, *, without_param: str | None = None) -> int:
        """Return the number of jobs of a source, without those that name a param."""
        query = select(func.count()).select_from(jobs).where(jobs.c.source == source)
        if without_param is not None:
            query = query.where(cast(jobs.c.params, Text).not_like(f'%"{without_param}"%'))
        async with self._database.reading() as connection:
            return int((await connection.execute(query)).scalar_one())
