"""Rate limits, shared by all processes. Table: `limits`, written when a call is rate-limited and when a snoozed
execution is settled; the pruner deletes a limit a day after it has ended.
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
# A longer limit is a mistake of the server or ours.
_LONGEST = timedelta(days=30)
# The slower pace lasts 30 times as long as the wait did, within these bounds.
_PACED_FOR, _PACED_AT_LEAST, _PACED_AT_MOST = 30, timedelta(minutes=10), timedelta(days=1)
# Clocks of different machines differ by less.
_CLOCK_TOLERANCE = timedelta(seconds=5)


def _paced_until(until: datetime, set_at: datetime) -> datetime:
    """Return until when a limit slows calls down after it has ended: the longer the wait was, the longer."""
    return until + min(max(_PACED_FOR * (until - set_at), _PACED_AT_LEAST), _PACED_AT_MOST)


class Limits:
    """Sets, lists and clears rate limits. All times are of the database's clock."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def set(self, key: str, after: timedelta, reason: str, rate: float | None = None) -> datetime:
        """Limit all calls under `key` and return the end of the limit. Never shortens an existing limit."""
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
        """Store a recovered rate and return True, unless the stored rate is no longer `before`."""
        query = update(limits).where(limits.c.key == key, limits.c.rate == before).values(rate=rate)
        async with self._database.writing() as connection:
            return bool((await connection.execute(query)).rowcount)

    async def holding(self, scope: str) -> Sequence[HeldLimit]:
        """Return the current limits on `scope` and its methods, and past ones that still have a rate."""
        query = select(limits.c.key, limits.c.until, limits.c.reason, limits.c.rate, limits.c.updated_at)
        under = limits.c.key.startswith(f"{scope}:", autoescape=True)
        query = query.where(or_(limits.c.key == scope, under)).order_by(limits.c.until.desc()).limit(MOST_SHOWN)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
            now = await present_moment(self._database, self._clock, connection) if rows else self._clock.now()
        found = [
            HeldLimit(
                key=key, rest=until - now, reason=reason, rate=rate if now < _paced_until(until, set_at) else None
            )
            for key, until, reason, rate, set_at in rows
            # SQLite's LIKE ignores case.
            if key == scope or key.startswith(f"{scope}:")
        ]
        return [limit for limit in found if limit.rest > timedelta() or limit.rate is not None]

    async def page(self, *, with_past: bool = False, limit: int = 100) -> list[LimitRow]:
        """Return the current limits, the longest first; with `with_past` those that have ended as well."""
        query = select(*(limits.c[name] for name in LimitRow.__struct_fields__)).order_by(limits.c.until.desc())
        if not with_past:
            query = query.where(limits.c.until > present(self._database, self._clock))
        async with self._database.reading() as connection:
            rows = await connection.execute(query.limit(max(1, min(limit, MOST_SHOWN))))
            return [LimitRow(**row) for row in rows.mappings()]

    async def show(self, key: str) -> LimitRow:
        """Return the current or past limit of `key`; `NotFound` if there is none."""
        query = select(*(limits.c[name] for name in LimitRow.__struct_fields__)).where(limits.c.key == key)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().first()
        if row is None:
            found = [other.key for other in await self.page(with_past=True, limit=5)]
            hint = f"Existing limits: {', '.join(found)}" if found else "No limits are stored"
            raise NotFound(f"there is no limit {key!r}", hint=hint)
        return LimitRow(**row)

    async def clear(self, key: str) -> LimitRow:
        """Delete a limit and its rate, wake the executions that wait for it, and return what it was.

        Running processes notice within a second.
        """
        before, now = await self.show(key), present(self._database, self._clock)
        # Every execution that waits for this limit has its reason and waits until its end.
        same = (
            job_executions.c.reason == before.reason,
            job_executions.c.not_before <= before.until + _CLOCK_TOLERANCE,
        )
        async with self._database.writing() as connection:
            await connection.execute(delete(limits).where(limits.c.key == key))
            await end_waits(connection, and_(*same), now)
        return before
