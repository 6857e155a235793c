"""The limits that hold for the whole fleet. Table: `limits`, written when an execution is told to wait."""

from datetime import datetime

from msgspec import Struct
from sqlalchemy import select

from floodmark.clock import Clock

from .database import Database
from .dialects import present
from .tables import limits

MOST_SHOWN = 500


class LimitRow(Struct, frozen=True, kw_only=True):
    """Everything under `key` waits until then; `hits` counts how often it was told to."""

    key: str
    until: datetime
    reason: str
    hits: int
    updated_at: datetime


class Limits:
    """Shows the limits."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def page(self, *, with_past: bool = False, limit: int = 100) -> list[LimitRow]:
        """Those that hold now, the longest first; with the past ones too, if asked for."""
        query = select(*(limits.c[name] for name in LimitRow.__struct_fields__)).order_by(limits.c.until.desc())
        if not with_past:
            query = query.where(limits.c.until > present(self._database, self._clock))
        async with self._database.reading() as connection:
            rows = await connection.execute(query.limit(max(1, min(limit, MOST_SHOWN))))
            return [LimitRow(**row) for row in rows.mappings()]
