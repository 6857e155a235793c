"""Leases in the table `leases`: one row per name, taken over when it has expired.

Times come from the clock of the database on PostgreSQL and of this machine on SQLite. A row stays when its lease ends,
so that `term` grows with every new holder and never starts again.
"""

from datetime import UTC, datetime, timedelta

from sqlalchemy import case, or_, select, update

from floodmark.repositories.repository import Repository

from .tables import leases

_ENDED = datetime(1970, 1, 1, tzinfo=UTC)


class SqlLeases(Repository):
    """Leases in the database of the installation."""

    async def acquire(self, name: str, *, holder: str, ttl: timedelta, yields: bool = False) -> bool:
        """Take or renew the lease. A process that asks without `yields` takes it from a holder that `yields`."""
        until = self._now(ttl)
        statement = self._insert_into(leases).values(name=name, holder=holder, lease_until=until, yields=yields)
        is_free = or_(leases.c.holder == holder, leases.c.lease_until < self._now())
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
        """End the lease if `holder` still holds it."""
        this = update(leases).where(leases.c.name == name, leases.c.holder == holder)
        async with self._database.writing() as connection:
            await connection.execute(this.values(lease_until=_ENDED))

    async def holder(self, name: str) -> str | None:
        """Return the current holder, if any."""
        is_held = leases.c.lease_until >= self._now()
        query = select(leases.c.holder).where(leases.c.name == name, is_held)
        found: str | None = await self._database.fetch_value(query)
        return found
