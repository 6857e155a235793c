"""What sources ask about what was collected before. Tables: `watermarks`, `items`, `jobs`; nothing is written."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import and_, func, or_, select

from floodmark.store.database import Database
from floodmark.store.tables import items, jobs, watermarks


class Held(Struct, frozen=True, kw_only=True):
    """An item that is kept and not gone."""

    key: str
    occurred_at: datetime


class Recall:
    """Looks back."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def checked_at(self, stream: str) -> datetime | None:
        """When a stream was last collected to its end; None: never."""
        query = select(watermarks.c.last_checked_at).where(watermarks.c.stream == stream)
        async with self._database.reading() as connection:
            found: datetime | None = (await connection.execute(query)).scalar()
            return found

    async def held(self, stream: str, *, since: datetime, after: Held | None, limit: int) -> list[Held]:
        """Items of a stream from a moment on, oldest first; the next page is `after` the last one."""
        cell = items.c
        where = [cell.stream == stream, cell.deleted.is_(False), cell.occurred_at >= since]
        if after is not None:
            same = and_(cell.occurred_at == after.occurred_at, cell.key > after.key)
            where += [cell.occurred_at >= after.occurred_at, or_(cell.occurred_at > after.occurred_at, same)]
        query = select(cell.key, cell.occurred_at).where(*where).order_by(cell.occurred_at, cell.key).limit(limit)
        async with self._database.reading() as connection:
            return [Held(key=row.key, occurred_at=row.occurred_at) for row in await connection.execute(query)]

    async def data(self, stream: str, keys: Sequence[str]) -> dict[str, Any]:
        """What was kept of these items."""
        query = select(items.c.key, items.c.data).where(items.c.stream == stream, items.c.key.in_(keys))
        async with self._database.reading() as connection:
            return {row.key: row.data for row in await connection.execute(query)}

    async def count_jobs(self, source: str) -> int:
        """How many jobs a source has."""
        query = select(func.count()).select_from(jobs).where(jobs.c.source == source)
        async with self._database.reading() as connection:
            return int((await connection.execute(query)).scalar_one())
