"""Leases in the table `leases`: one row a name, taken over when its time is up.

Times are those of the database on PostgreSQL, of this machine on SQLite. Rows stay when a lease ends, so that `term`
grows with every new holder and never begins again.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, case, func, or_, select, update

from floodmark.model.clock import Clock
from floodmark.store.database import Database
from floodmark.store.dialects import insert_into

from .tables import leases

_ENDED = datetime(1970, 1, 1, tzinfo=UTC)


class SqlLeases:
    """Leases kept by the database that holds everything else."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def acquire(self, name: str, *, holder: str, ttl: timedelta, yields: bool = False) -> bool:
        """Take or renew the lease. With `yields` it is ours only until someone without `yields` asks for it."""
        now = self._now()
        statement = insert_into(self._database, leases).values(
            name=name, holder=holder, lease_until=now + ttl, yields=yields
        )
        is_free = or_(leases.c.holder == holder, leases.c.lease_until < now)
        statement = statement.on_conflict_do_update(
            index_elements=[leases.c.name],
            set_={
                "holder": holder,
                "lease_until": statement.excluded.lease_until,
                "yields": yields,
                "term": case((leases.c.holder == holder, leases.c.term), else_=leases.c.term + 1),
            },
            where=is_free if yields else or_(is_free, leases.c.yields),
        )
        async with self._database.writing() as connection:
            row = (await connection.execute(statement.returning(leases.c.holder))).first()
        return row is not None

    async def release(self, name: str, *, holder: str) -> None:
        """Give it back, if it is still ours."""
        is_ours = and_(leases.c.name == name, leases.c.holder == holder)
        async with self._database.writing() as connection:
            await connection.execute(update(leases).where(is_ours).values(lease_until=_ENDED))

    async def holder(self, name: str) -> str | None:
        """Who holds it now."""
        async with self._database.reading() as connection:
            found = await connection.execute(
                select(leases.c.holder).where(leases.c.name == name, leases.c.lease_until >= self._now())
            )
            row = found.first()
        return None if row is None else str(row[0])

    def _now(self) -> ColumnElement[Any] | Any:
        return func.clock_timestamp() if self._database.dialect == "postgresql" else self._clock.now()
