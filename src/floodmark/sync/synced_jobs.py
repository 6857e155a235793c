"""The jobs that syncs have created, and the last response.

Tables: `jobs` (those whose `declared` is the mark of a sync), `audit`; of `facts`:
    sync_answer   the last valid response, written together with its jobs
    sync_last     the result of the last sync; this row is locked during a sync
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import func, insert, select

from floodmark.model.audit import Actor
from floodmark.model.clock import Clock
from floodmark.model.ids import new_id
from floodmark.repositories.audit import AuditEntry, AuditLog
from floodmark.repositories.job_changes import write_changes
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.database import Database
from floodmark.store.dialects import chunks, insert_into, present, present_moment
from floodmark.store.tables import facts, jobs

from .difference import COLUMNS, Step, SyncedJob, is_mark

_ANSWER, _LAST = "sync_answer", "sync_last"


class SyncedJobs:
    """Opens the transaction of a sync."""

    def __init__(self, database: Database, clock: Clock, audit: AuditLog) -> None:
        self._database, self._clock, self._audit = database, clock, audit

    @asynccontextmanager
    async def reading(self) -> AsyncIterator["Syncing"]:
        """Open a transaction that only reads."""
        async with self._database.reading() as connection:
            yield Syncing(self._database, self._clock, connection, self._audit)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator["Syncing"]:
        """Open a transaction that writes all or nothing. A second sync waits for its end."""
        async with self._database.writing() as connection:
            found = Syncing(self._database, self._clock, connection, self._audit)
            await found.lock()
            yield found


class Syncing:
    """The steps of a sync in one transaction."""

    def __init__(self, database: Database, clock: Clock, connection: AsyncConnection, audit: AuditLog) -> None:
        self._database, self._clock, self._connection, self._audit = database, clock, connection, audit

    async def lock(self) -> None:
        """Prevent other syncs."""
        now = present(self._database, self._clock)
        statement = insert_into(self._database, facts).values(name=_LAST, value={}, updated_at=now)
        await self._connection.execute(
            statement.on_conflict_do_update(index_elements=["name"], set_={"updated_at": now})
        )

    async def lock_jobs(self, job_ids: Iterable[str]) -> None:
        """Prevent changes of these jobs by others."""
        for some in chunks(sorted(job_ids)):
            query = select(jobs.c.job_id).where(jobs.c.job_id.in_(some)).order_by(jobs.c.job_id)
            await self._connection.execute(query.with_for_update(key_share=True))

    async def find_synced(self) -> list[SyncedJob]:
        """Return the jobs that syncs have created, by name, with the columns that every sync reads."""
        query = select(jobs.c.job_id, jobs.c.name, jobs.c.declared, jobs.c.schedule_enabled)
        made = query.where(jobs.c.declared.like("sync:%")).order_by(jobs.c.name)
        return [
            SyncedJob(
                job_id=row.job_id, name=row.name, mark=row.declared, columns={"schedule_enabled": row.schedule_enabled}
            )
            for row in await self._connection.execute(made)
            if is_mark(row.declared)
        ]

    async def count(self) -> int:
        """Return the number of jobs that syncs have created."""
        made = (jobs.c.declared.is_not(None), jobs.c.declared.like("sync:%:%"))
        query = select(func.count()).select_from(jobs).where(*made)
        return int((await self._connection.execute(query)).scalar_one())

    async def columns(self, job_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the columns that a sync may set, by the id of the job."""
        found: dict[str, dict[str, Any]] = {}
        for some in chunks(sorted(job_ids)):
            query = select(jobs.c.job_id, *(jobs.c[name] for name in COLUMNS)).where(jobs.c.job_id.in_(some))
            rows = (await self._connection.execute(query)).mappings()
            found.update({row["job_id"]: {name: row[name] for name in COLUMNS} for row in rows})
        return found

    async def find_taken(self, names: Iterable[str]) -> set[str]:
        """Return the names that belong to jobs that no sync has created."""
        found: set[str] = set()
        for some in chunks(sorted(set(names))):
            query = select(jobs.c.name, jobs.c.declared).where(jobs.c.name.in_(some))
            rows = await self._connection.execute(query)
            found.update(row.name for row in rows if not is_mark(row.declared))
        return found

    async def answer(self) -> Any:
        """Return the last valid response; None before the first one."""
        return await self._fact(_ANSWER)

    async def last(self) -> Any:
        """Return the result of the last sync; None before the first one."""
        return await self._fact(_LAST) or None

    async def keep_answer(self, value: Any) -> None:
        """Store the last valid response."""
        await self._set_fact(_ANSWER, value)

    async def keep_last(self, value: Any) -> None:
        """Store the result of this sync."""
        await self._set_fact(_LAST, value)

    async def apply(self, steps: Sequence[Step], usual: Mapping[str, Any], actor: Actor) -> None:
        """Create and change jobs. `usual`: the columns of a new job that its step does not set."""
        now = await present_moment(self._database, self._clock, self._connection)
        times = {"created_at": now, "updated_at": now}
        made = [
            {**usual, **step.change.after, "job_id": new_id(), "declared": step.mark, **times}
            for step in steps
            if step.job_id is None
        ]
        if made:
            await self._connection.execute(insert(jobs), made)
        changes = {
            step.job_id: {**step.change.after, "declared": step.mark} for step in steps if step.job_id is not None
        }
        await write_changes(self._connection, changes, present(self._database, self._clock))
        await self._audit.record_within(self._connection, actor, [_entry(step) for step in steps if step.change.after])

    async def note(self, actor: Actor, action: str, after: Mapping[str, Any]) -> None:
        """Record the sync in the audit log."""
        await self._audit.record_within(self._connection, actor, [AuditEntry(action=action, what="sync", after=after)])

    async def _fact(self, name: str) -> Any:
        return (await self._connection.execute(select(facts.c.value).where(facts.c.name == name))).scalar()

    async def _set_fact(self, name: str, value: Any) -> None:
        now = present(self._database, self._clock)
        statement = insert_into(self._database, facts).values(name=name, value=value, updated_at=now)
        changes = {"value": statement.excluded.value, "updated_at": now}
        await self._connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=changes))


def _entry(step: Step) -> AuditEntry:
    action = "job.added" if step.job_id is None else "job.changed"
    change = step.change
    return AuditEntry(action=action, what=f"job:{change.name}", before=change.before, after=change.after)
