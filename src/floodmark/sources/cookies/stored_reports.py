"""Reads stored cookie scans. Tables: `items` of the streams `cookies:...`."""

from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import and_, or_, select

from floodmark.store.database import Database
from floodmark.store.tables import items


class KeptScan(Struct, frozen=True, kw_only=True):
    """A stored scan: the report, and the key of its item."""

    scan: str
    stream: str
    scanned_at: datetime
    report: dict[str, Any]


class Scans(Struct, frozen=True):
    """Reads the scans of a stream, newest first."""

    database: Database

    async def newest(self, stream: str, *, scan: str | None = None, limit: int = 1) -> list[KeptScan]:
        """Return up to `limit` scans from `scan` (default: the last one) backwards; none if `scan` does not exist."""
        cell = items.c
        where = [cell.stream == stream, cell.deleted.is_(False), cell.occurred_at.is_not(None)]
        async with self.database.reading() as connection:
            if scan is not None:
                begin = select(cell.occurred_at).where(*where, cell.key == scan)
                at = (await connection.execute(begin)).scalar()
                if at is None:
                    return []
                where.append(or_(cell.occurred_at < at, and_(cell.occurred_at == at, cell.key <= scan)))
            query = select(cell.key, cell.occurred_at, cell.data).where(*where)
            rows = await connection.execute(query.order_by(cell.occurred_at.desc(), cell.key.desc()).limit(limit))
            return [KeptScan(scan=row.key, stream=stream, scanned_at=row.occurred_at, report=row.data) for row in rows]
