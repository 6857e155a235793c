"""The breakers of the whole fleet. Table: `breakers`, written by whoever meets a failure or probes; never by a call
that goes well through a closed one. The pruner forgets those that nothing has happened to for a day.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import select, update

from floodmark.errors import NotFound
from floodmark.model.clean_text import clean
from floodmark.model.clock import Clock
from floodmark.model.limits import BreakerRow
from floodmark.rules.breaker import Breaker, BreakerState, closed, refusal_of
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.database import Database
from floodmark.store.dialects import insert_into, present, present_moment
from floodmark.store.tables import job_executions
from floodmark.store.types import from_text, to_text

from .end_waits import end_waits
from .port import BreakerMove, Move
from .tables import breakers

MOST_SHOWN = 500


class Breakers:
    """Reads breakers, and moves them: one process after the other, so that only one of them gets to probe."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def read(self, key: str) -> tuple[Breaker, datetime]:
        """The breaker, a closed one if there is none, and what time it is for the database."""
        query = select(breakers, present(self._database, self._clock).label("now")).where(breakers.c.key == key)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().first()
            if row is None:
                return Breaker(), await present_moment(self._database, self._clock, connection)
            return _breaker(row), row["now"]

    async def change(self, key: str, move: Move) -> BreakerMove:
        """Move a breaker by a pure function of it and the time."""
        async with self._database.writing() as connection:
            await connection.execute(insert_into(self._database, breakers).values(key=key).on_conflict_do_nothing())
            # PostgreSQL locks the row; SQLite has locked everything since the transaction began.
            query = select(breakers).where(breakers.c.key == key).with_for_update()
            before = _breaker((await connection.execute(query)).mappings().one())
            now = await present_moment(self._database, self._clock, connection)
            after = move(before, now)
            if after != before:
                await self._write(connection, key, after)
            return BreakerMove(before=before, after=after, now=now)

    async def _write(self, connection: AsyncConnection, key: str, breaker: Breaker) -> None:
        statement = update(breakers).where(breakers.c.key == key)
        await connection.execute(
            statement.values(
                state=breaker.state.value,
                failures=len(breaker.failed_at),
                window_began=breaker.failed_at[0] if breaker.failed_at else None,
                failed_at=[to_text(moment) for moment in breaker.failed_at] or None,
                open_until=breaker.open_until,
                probe_until=breaker.probe_until,
                trips=breaker.trips,
                reason=clean(breaker.reason),
                updated_at=present(self._database, self._clock),
            )
        )

    async def page(self, *, limit: int = 100) -> list[BreakerRow]:
        """Those that are not simply closed first, then by their keys."""
        query = select(*(breakers.c[name] for name in BreakerRow.__struct_fields__)).order_by(
            breakers.c.state == BreakerState.CLOSED.value, breakers.c.key
        )
        async with self._database.reading() as connection:
            rows = await connection.execute(query.limit(max(1, min(limit, MOST_SHOWN))))
            return [BreakerRow(**row) for row in rows.mappings()]

    async def show(self, key: str) -> BreakerRow:
        """One of them."""
        query = select(*(breakers.c[name] for name in BreakerRow.__struct_fields__)).where(breakers.c.key == key)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().first()
        if row is None:
            others = [other.key for other in await self.page(limit=5)]
            raise NotFound(f"there is no breaker {key!r}", hint=_there_are(others))
        return BreakerRow(**row)

    async def reset(self, key: str) -> BreakerRow:
        """Close one, whatever state it is in; running processes notice within a second. What it was before.

        What waits for it goes on.
        """
        before, now = await self.show(key), present(self._database, self._clock)
        async with self._database.writing() as connection:
            await self.change(key, lambda breaker, _: closed(breaker))
            refused = job_executions.c.reason.startswith(refusal_of(key), autoescape=True)
            await end_waits(connection, refused, now)
        return before


def _breaker(row: Any) -> Breaker:
    return Breaker(
        state=BreakerState(row["state"]),
        failed_at=tuple(from_text(moment) for moment in row["failed_at"] or ()),
        open_until=row["open_until"],
        probe_until=row["probe_until"],
        trips=row["trips"],
        reason=row["reason"],
    )


def _there_are(keys: list[str]) -> str:
    return f"There are: {', '.join(keys)}" if keys else "There are none: nothing has failed recently"
