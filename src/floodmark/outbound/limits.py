"""The limits that hold for the whole fleet. Table: `limits`, written at once by a call that is told to wait, and when
an execution that was told to wait is settled; forgotten a day after they are over.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import and_, delete, func, or_, select, update

from floodmark.errors import NotFound
from floodmark.model.clean_text import clean
from floodmark.model.clock import Clock
from floodmark.model.limits import LimitRow
from floodmark.store.database import Database
from floodmark.store.dialects import insert_into, present, present_moment
from floodmark.store.tables import job_executions

from .end_waits import end_waits
from .port import HeldLimit
from .tables import limits

MOST_SHOWN = 500
# Servers tell all sorts of things; a limit that holds for longer than this is a mistake of theirs or ours.
_LONGEST = timedelta(days=30)
# A wait of a second says little about tomorrow, one of an hour does.
_PACED_FOR, _PACED_AT_LEAST, _PACED_AT_MOST = 30, timedelta(minutes=10), timedelta(days=1)
# Clocks of machines that say the same moment differ by less.
_ALIKE = timedelta(seconds=5)


def _paced_until(until: datetime, told_at: datetime) -> datetime:
    """Until when a limit slows calls down after it is over: the longer the wait was, the longer."""
    return until + min(max(_PACED_FOR * (until - told_at), _PACED_AT_LEAST), _PACED_AT_MOST)


class Limits:
    """Sets, shows and lifts limits. All by the clock of the database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def set(self, key: str, after: timedelta, reason: str, rate: float | None = None) -> datetime:
        """Let everything under `key` wait; until when it does. A limit is never shortened by another."""
        until = present(self._database, self._clock, min(max(after, timedelta()), _LONGEST))
        now = present(self._database, self._clock)
        insert = insert_into(self._database, limits).values(
            key=clean(key), until=until, reason=clean(reason), updated_at=now, rate=rate
        )
        later = func.greatest if self._database.dialect == "postgresql" else func.max
        upsert = insert.on_conflict_do_update(
            index_elements=[limits.c.key],
            set_={
                "until": later(limits.c.until, insert.excluded.until),
                "reason": insert.excluded.reason,
                "hits": limits.c.hits + 1,
                "updated_at": insert.excluded.updated_at,
                "rate": func.coalesce(insert.excluded.rate, limits.c.rate),
            },
        ).returning(limits.c.until)
        async with self._database.writing() as connection:
            held: datetime = (await connection.execute(upsert)).scalar_one()
            return held

    async def recover(self, key: str, rate: float | None, *, before: float) -> bool:
        """Store a pace that has been regained, unless it is no longer what it was `before`."""
        query = update(limits).where(limits.c.key == key, limits.c.rate == before).values(rate=rate)
        async with self._database.writing() as connection:
            return bool((await connection.execute(query)).rowcount)

    async def holding(self, scope: str) -> Sequence[HeldLimit]:
        """The limits on `scope` and on what lies under it that hold, and those past ones that tell a rate."""
        query = select(limits.c.key, limits.c.until, limits.c.reason, limits.c.rate, limits.c.updated_at)
        under = limits.c.key.startswith(f"{scope}:", autoescape=True)
        query = query.where(or_(limits.c.key == scope, under)).order_by(limits.c.until.desc()).limit(MOST_SHOWN)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
            now = await present_moment(self._database, self._clock, connection) if rows else self._clock.now()
        found = [
            HeldLimit(
                key=key, rest=until - now, reason=reason, rate=rate if now < _paced_until(until, told_at) else None
            )
            for key, until, reason, rate, told_at in rows
            # SQLite compares without regard to case.
            if key == scope or key.startswith(f"{scope}:")
        ]
        return [limit for limit in found if limit.rest > timedelta() or limit.rate is not None]

    async def page(self, *, with_past: bool = False, limit: int = 100) -> list[LimitRow]:
        """Those that hold now, the longest first; with the past ones too, if asked for."""
        query = select(*(limits.c[name] for name in LimitRow.__struct_fields__)).order_by(limits.c.until.desc())
        if not with_past:
            query = query.where(limits.c.until > present(self._database, self._clock))
        async with self._database.reading() as connection:
            rows = await connection.execute(query.limit(max(1, min(limit, MOST_SHOWN))))
            return [LimitRow(**row) for row in rows.mappings()]

    async def show(self, key: str) -> LimitRow:
        """One of them, past ones included."""
        query = select(*(limits.c[name] for name in LimitRow.__struct_fields__)).where(limits.c.key == key)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().first()
        if row is None:
            found = [other.key for other in await self.page(with_past=True, limit=5)]
            there = f"There are: {', '.join(found)}" if found else "There are none"
            raise NotFound(f"there is no limit {key!r}", hint=there)
        return LimitRow(**row)

    async def clear(self, key: str) -> LimitRow:
        """Lift one, and forget the pace it was slowed down to; running processes notice within a second.

        What waits for it goes on. Returns what it was.
        """
        before, now = await self.show(key), present(self._database, self._clock)
        # Whoever met it later has the same reason, and waits until the same moment.
        same = (job_executions.c.reason == before.reason, job_executions.c.not_before <= before.until + _ALIKE)
        async with self._database.writing() as connection:
            await connection.execute(delete(limits).where(limits.c.key == key))
            await end_waits(connection, and_(*same), now)
        return before
