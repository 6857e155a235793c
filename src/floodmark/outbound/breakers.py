"""Circuit breakers, shared by all processes. Table: `breakers`, written by failing calls and by probes, never by a
successful call through a closed breaker. The pruner deletes breakers that have not changed for a day.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import select, update

from floodmark.errors import NotFound
from floodmark.model.clean_text import clean
from floodmark.model.clock import Clock
from floodmark.model.limits import BreakerRow
from floodmark.rules.breaker import Breaker, BreakerState, close_breaker, refusal_of
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
    """Reads and changes breakers. Changes are serialized between processes, so that only one of them probes."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def read(self, key: str) -> tuple[Breaker, datetime]:
        """Return the breaker (a closed one if none is stored) and the time of the database."""
        query = select(breakers, present(self._database, self._clock).label("now")).where(breakers.c.key == key)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().first()
            if row is None:
                return Breaker(), await present_moment(self._database, self._clock, connection)
            return _breaker(row), row["now"]

    async def change(self, key: str, move: Move) -> BreakerMove:
        """Change a breaker by a pure function of the breaker and the time."""
        async with self._database.writing() as connection:
            await connection.execute(insert_into(self._database, breakers).values(key=key).on_conflict_do_nothing())
            # PostgreSQL locks the row; in SQLite the transaction locks the whole database.
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
        """Return breakers ordered by key, those that are not closed first."""
        query = select(*(breakers.c[name] for name in BreakerRow.__struct_fields__)).order_by(
            breakers.c.state == BreakerState.CLOSED.value, breakers.c.key
        )
        async with self._database.reading() as connection:
            rows = await connection.execute(query.limit(max(1, min(limit, MOST_SHOWN))))
            return [BreakerRow(**row) for row in rows.mappings()]

    async def show(self, key: str) -> BreakerRow:
        """Return the breaker of `key`; `NotFound` if there is none."""
        query = select(*(breakers.c[name] for name in BreakerRow.__struct_fields__)).where(breakers.c.key == key)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().first()
        if row is None:
            found = [other.key for other in await self.page(limit=5)]
            hint = (
                f"Existing breakers: {', '.join(found)}"
                if found
                else "No breakers are stored: nothing has failed recently"
            )
            raise NotFound(f"there is no breaker {key!r}", hint=hint)
        return BreakerRow(**row)

    async def reset(self, key: str) -> BreakerRow:
        """Close a breaker, wake the executions that wait for it, and return what it was.

        Running processes notice within a second.
        """
        before, now = await self.show(key), present(self._database, self._clock)
        async with self._database.writing() as connection:
            await self.change(key, lambda breaker, _: close_breaker(breaker))
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
