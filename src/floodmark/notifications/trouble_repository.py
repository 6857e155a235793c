"""Reads problems and stores the state of the notifier. Tables: `executions`, `accounts`, `jobs`, `facts`.

Dead letters are read through the index `ix_job_executions_dead`. The state is one fact, `notifying`.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import literal, select

from floodmark.model.clock import Clock
from floodmark.model.execution import State
from floodmark.repositories.repository import Repository
from floodmark.repositories.staleness import StaleJob, Staleness
from floodmark.sources.telegram.tables import accounts
from floodmark.store.database import Database
from floodmark.store.dialects import insert_into, present, present_moment
from floodmark.store.tables import facts, job_executions, jobs

MOST_AT_ONCE = 1000
_FACT = "notifying"
_e = job_executions.c


class TroubleRepository(Repository):
    """Reads problems, and stores the state of the notifier."""

    def __init__(self, database: Database, clock: Clock, staleness: Staleness) -> None:
        super().__init__(database, clock)
        self._staleness = staleness

    async def now(self) -> datetime:
        """Return the time of the clock that dates dead letters."""
        async with self._database.reading() as connection:
            return await present_moment(self._database, self._clock, connection)

    async def dead_letters(self, since: datetime) -> list[Any]:
        """Return dead letters after `since`, the oldest first: job_id, job_name, completed_at, error_message."""
        query = select(_e.job_id, _e.job_name, _e.completed_at, _e.error_message)
        # A literal: with a parameter the planner cannot use the partial index.
        query = query.where(_e.state == literal(State.DEAD, literal_execute=True), _e.completed_at > since)
        async with self._database.reading() as connection:
            return list(await connection.execute(query.order_by(_e.completed_at).limit(MOST_AT_ONCE)))

    async def parked_accounts(self) -> list[tuple[str, str]]:
        """Return the accounts that cannot be used, each with the reason."""
        query = select(accounts.c.name, accounts.c.reason).where(accounts.c.state == "parked")
        rows = await self._database.fetch(query.order_by(accounts.c.updated_at).limit(MOST_AT_ONCE))
        return [(row["name"], row["reason"] or "") for row in rows]

    async def stale_jobs(self) -> list[StaleJob]:
        """Return stale jobs, the longest unchecked first."""
        return await self._staleness.page(limit=MOST_AT_ONCE)

    async def active_accounts(self, names: Collection[str]) -> set[str]:
        """Return those of the accounts that can be used."""
        query = select(accounts.c.name).where(accounts.c.name.in_(names), accounts.c.state == "active")
        return await self._select(query) if names else set()

    async def active_jobs(self, job_ids: Collection[str]) -> set[str]:
        """Return those of the jobs that exist and are neither paused nor disabled."""
        query = select(jobs.c.job_id).where(jobs.c.job_id.in_(job_ids), jobs.c.schedule_enabled, ~jobs.c.paused)
        return await self._select(query) if job_ids else set()

    async def load_state(self) -> Any:
        """Return the stored state; None before the first one."""
        return await self._database.fetch_value(select(facts.c.value).where(facts.c.name == _FACT))

    async def store_state(self, value: dict[str, Any]) -> bool:
        """Store the state if its `turn` is higher than the stored one; False if another leader has stored it."""
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

    async def _select(self, query: Any) -> set[str]:
        async with self._database.reading() as connection:
            return set((await connection.execute(query)).scalars())
