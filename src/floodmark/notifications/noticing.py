"""What somebody should be told of, and what they were told. Tables: `executions`, `accounts`, `jobs`, `facts`.

Dead letters are read through `ix_job_executions_dead`, from a time on. What was told is one fact, `notifying`.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import literal, select

from floodmark.model.clock import Clock
from floodmark.model.execution import State
from floodmark.sources.telegram.tables import accounts
from floodmark.store.database import Database
from floodmark.store.dialects import insert_into, present, present_moment
from floodmark.store.staleness import StaleJob, Staleness
from floodmark.store.tables import facts, job_executions, jobs

MOST_AT_ONCE = 1000
_FACT = "notifying"
_e = job_executions.c


class Noticing:
    """Looks for trouble, and remembers what was told of it."""

    def __init__(self, database: Database, clock: Clock, staleness: Staleness) -> None:
        self._database, self._clock, self._staleness = database, clock, staleness

    async def now(self) -> datetime:
        """The time by which letters are dated."""
        async with self._database.reading() as connection:
            return await present_moment(self._database, self._clock, connection)

    async def letters(self, since: datetime) -> list[Any]:
        """Dead letters from behind `since`, the oldest first: job_id, job_name, completed_at, error_message."""
        query = select(_e.job_id, _e.job_name, _e.completed_at, _e.error_message)
        # Spelled out: a parameter would hide from the planner that the index of dead letters will do.
        query = query.where(_e.state == literal(State.DEAD, literal_execute=True), _e.completed_at > since)
        async with self._database.reading() as connection:
            return list(await connection.execute(query.order_by(_e.completed_at).limit(MOST_AT_ONCE)))

    async def parked(self) -> list[tuple[str, str]]:
        """Accounts that cannot be used, and why."""
        query = select(accounts.c.name, accounts.c.reason).where(accounts.c.state == "parked")
        async with self._database.reading() as connection:
            rows = await connection.execute(query.order_by(accounts.c.updated_at).limit(MOST_AT_ONCE))
            return [(row.name, row.reason or "") for row in rows]

    async def stale(self) -> list[StaleJob]:
        """Jobs that are stale, the longest unchecked first."""
        return await self._staleness.page(limit=MOST_AT_ONCE)

    async def working(self, names: Collection[str]) -> set[str]:
        """Which of these accounts can be used."""
        query = select(accounts.c.name).where(accounts.c.name.in_(names), accounts.c.state == "active")
        return await self._found(query) if names else set()

    async def due(self, job_ids: Collection[str]) -> set[str]:
        """Which of these jobs run by themselves: neither paused nor switched off nor deleted."""
        query = select(jobs.c.job_id).where(jobs.c.job_id.in_(job_ids), jobs.c.schedule_enabled, ~jobs.c.paused)
        return await self._found(query) if job_ids else set()

    async def told(self) -> Any:
        """What `tell` kept, None before the first time."""
        async with self._database.reading() as connection:
            return (await connection.execute(select(facts.c.value).where(facts.c.name == _FACT))).scalar()

    async def tell(self, value: dict[str, Any]) -> bool:
        """Keep `value` if its `turn` is behind that of what is kept; else another leader was here, and False."""
        now = present(self._database, self._clock)
        statement = insert_into(self._database, facts).values(name=_FACT, value=value, updated_at=now)
        upsert = statement.on_conflict_do_update(index_elements=["name"], set_={"value": value, "updated_at": now})
        async with self._database.writing() as connection:
            query = select(facts.c.value).where(facts.c.name == _FACT).with_for_update()
            before = (await connection.execute(query)).scalar()
            if before is not None and before.get("turn", 0) >= value["turn"]:
                return False
            await connection.execute(upsert)
        return True

    async def _found(self, query: Any) -> set[str]:
        async with self._database.reading() as connection:
            return set((await connection.execute(query)).scalars())


def without(known: Sequence[str], found: Collection[str]) -> list[str]:
    """Those known that were not found."""
    return [each for each in known if each not in found]
