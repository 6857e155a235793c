"""Prepares a database that was restored from a backup for its next start.

Tables: `outbox`, `consumers` and `facts` for positions; the rows of processes in `workers` and `leases` are deleted.

The database has gone back in time, but programs that keep the position of an event themselves have not. If positions
continued where the backup ends, such a program would take new events for events that it has read. So positions continue
behind all that may have been given since the backup: the program reads everything since then again, with the same ids.
"""

from datetime import datetime, timedelta

from sqlalchemy import delete, func, or_, select, text, update

from floodmark.coordination.leases.tables import leases
from floodmark.model.audit import Actor
from floodmark.model.clock import Clock
from floodmark.repositories.audit import AuditLog
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.database import Database
from floodmark.store.dialects import insert_into, present_moment
from floodmark.store.tables import consumers, facts, outbox, workers

# More events than an installation stores.
_EVENTS_A_SECOND, _LEAST = 10_000, 1_000_000
# The names of facts: one for each gap in the positions, with the last position before it; one in every backup.
GAP, BACKUP = "gap.", "backup"

_LAST_SEQ = text("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'")
_SET_SEQ = text("UPDATE sqlite_sequence SET seq = :position WHERE name = 'outbox'")
_ADD_SEQ = text("INSERT INTO sqlite_sequence (name, seq) VALUES ('outbox', :position)")


async def mark_restored(
    database: Database, clock: Clock, actor: Actor, *, backup: str | None = None, made_at: datetime | None = None
) -> int:
    """Leave out positions, and forget processes. Return the position after which the next event comes.

    `made_at` is the time of the backup; by default that of the newest event.
    """
    async with database.writing() as connection:
        now = await present_moment(database, clock, connection)
        newest = (await connection.execute(select(func.max(outbox.c.created_at)))).scalar()
        position = await _skip_positions(connection, database, gap_after(now - (made_at or newest or now)))
        for table in (workers, leases):
            await connection.execute(delete(table))
        await connection.execute(delete(facts).where(facts.c.name == BACKUP))
        after = {"backup": backup, "made_at": made_at, "position": position}
        await AuditLog(database, clock).record(actor, "database.restored", "database", after=after)
        return position


def gap_after(age: timedelta) -> int:
    """Return how many positions to leave out if the backup is as old as this."""
    return _LEAST + int(max(age, timedelta()).total_seconds() * _EVENTS_A_SECOND)


async def _skip_positions(connection: AsyncConnection, database: Database, gap: int) -> int:
    skip = _skip_on_postgres if database.dialect == "postgresql" else _skip_on_sqlite
    newest, last_before_gap = await skip(connection, gap)
    # A reader that has processed all events has none to miss in the gap. Sinks stay: they compare their position with
    # that of the newest stored event.
    name = consumers.c.name
    is_reader = or_(name.startswith("reader:", autoescape=True), name.startswith("export:", autoescape=True))
    this = update(consumers).where(is_reader, consumers.c.position >= newest)
    await connection.execute(this.values(position=newest + gap))
    fact = insert_into(database, facts).values(name=f"{GAP}{last_before_gap}", value=last_before_gap)
    await connection.execute(fact.on_conflict_do_nothing())
    return newest + gap


async def _skip_on_sqlite(connection: AsyncConnection, gap: int) -> tuple[int, int]:
    """Move the counter of rows, which is the next position."""
    found = (await connection.execute(_LAST_SEQ)).scalar()
    last = int(found or 0)
    await connection.execute(_ADD_SEQ if found is None else _SET_SEQ, {"position": last + gap})
    return last, last


async def _skip_on_postgres(connection: AsyncConnection, gap: int) -> tuple[int, int]:
    """Move the newest event, from which the next position is counted; without events they begin with 1 again."""
    newest = int((await connection.execute(select(func.max(outbox.c.position)))).scalar() or 0)
    await connection.execute(update(outbox).where(outbox.c.position == newest).values(position=newest + gap))
    return newest, max(0, newest - 1)
