"""Moving jobs between an older scheduler and Floodmark, and importing them.

Tables: `jobs`, `audit`. All changes are in one transaction. The database clears `next_run` with the change, so that
Floodmark plans from the moment of the move: instants before it belong to the old scheduler.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, insert, select, update

from floodmark.errors import Conflict, InvalidInput
from floodmark.model.audit import Actor
from floodmark.model.clock import Clock
from floodmark.model.handover import Imports, Moved, MovedJob, NewJob, Which
from floodmark.model.ids import new_id
from floodmark.model.job import SCHEDULER_VERSION, Job
from floodmark.repositories.audit import AuditEntry, AuditLog
from floodmark.repositories.budgets import Budgets
from floodmark.repositories.jobs import JOB_ROWS, Jobs
from floodmark.repositories.name_search import find_jobs
from floodmark.rules.budgets import DEFAULT_BUDGET
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.database import Database
from floodmark.store.dialects import chunks, json_has, present_moment
from floodmark.store.rows import job_from_row
from floodmark.store.tables import jobs
from floodmark.triggers import trigger_of

OLD_VERSION = 1

_SHOWN = 5


class MovedJobs(Jobs):
    """Moves jobs to Floodmark and back, and imports them."""

    def __init__(self, database: Database, clock: Clock, audit: AuditLog, budgets: Budgets | None = None) -> None:
        super().__init__(database, clock, budgets)
        self._audit = audit

    async def move(self, which: Which, actor: Actor, *, back: bool = False, dry_run: bool = False) -> Moved:
        """Move jobs to Floodmark, or back to the old scheduler. `Conflict` for a job that cannot be scheduled."""
        _check(which)
        goal = OLD_VERSION if back else SCHEDULER_VERSION
        async with self._database.writing() as connection:
            found = await self._chosen(connection, which, goal)
            moving = [job for job in found if job.scheduler_version != goal]
            now = await present_moment(self._database, self._clock, connection)
            if not back:
                _refuse_invalid(moving)
            if not dry_run:
                await self._move(connection, moving, goal, now)
                await self._audit.record_within(connection, actor, [_entry(job, goal) for job in moving])
        return Moved(
            jobs=tuple(_moved(job, goal, now) for job in moving),
            already=tuple(job.name for job in found if job.scheduler_version == goal),
            back=back,
            dry_run=dry_run,
        )

    async def bring(
        self, new: Sequence[NewJob], actor: Actor, *, take_over: bool = False, dry_run: bool = False
    ) -> Imports:
        """Create jobs, owned by the old scheduler unless they are taken over. A job with an existing name is not
        changed.
        """
        version = SCHEDULER_VERSION if take_over else OLD_VERSION
        async with self._database.writing() as connection:
            now = await present_moment(self._database, self._clock, connection)
            rows = [self._row(one, version, now) for one in new]
            there = await _find_taken(connection, [row["name"] for row in rows])
            made = [row for row in rows if row["name"] not in there]
            # A dry run creates no budget.
            named = {row["budget"] for row in made} - ({DEFAULT_BUDGET} if dry_run else set())
            await self._budgets.require(connection, named)
            if made and not dry_run:
                await connection.execute(insert(jobs), made)
                await self._audit.record_within(connection, actor, [_added(row) for row in made])
        return Imports(
            made=tuple(row["name"] for row in made),
            already=tuple(row["name"] for row in rows if row["name"] in there),
            dry_run=dry_run,
        )

    async def _chosen(self, connection: AsyncConnection, which: Which, goal: int) -> list[Job]:
        """Return the jobs, locked in a fixed order until the transaction ends, so that two moves do not deadlock."""
        where: list[ColumnElement[bool]] = []
        if not which.jobs:
            where.append(jobs.c.scheduler_version != goal)
        if which.tag is not None:
            where.append(json_has(self._database, jobs.c.tags, which.tag))
        if which.domain is not None:
            where.append(jobs.c.domain == which.domain)
        ids = await find_jobs(connection, which.jobs)
        chosen = [jobs.c.job_id.in_(some) for some in chunks(ids)] if ids else [jobs.c.job_id.is_not(None)]
        found: list[Job] = []
        for some in chosen:
            query = JOB_ROWS.where(some, *where).order_by(jobs.c.job_id).with_for_update(key_share=True)
            found += [job_from_row(tuple(row)) for row in await connection.execute(query)]
        return sorted(found, key=lambda job: job.name)

    async def _move(self, connection: AsyncConnection, moving: Sequence[Job], goal: int, now: datetime) -> None:
        for some in chunks([job.job_id for job in moving]):
            these = update(jobs).where(jobs.c.job_id.in_(some))
            await connection.execute(these.values(scheduler_version=goal, version=jobs.c.version + 1, updated_at=now))
            # The trigger of SQLite uses the machine's clock; the process may use another one.
            await connection.execute(these.values(planned_until=now, updated_at=now))

    def _row(self, new: NewJob, version: int, now: datetime) -> dict[str, Any]:
        assert new.spec.name is not None
        return {
            **self._check(new.spec),
            "job_id": new_id(),
            "scheduler_version": version,
            "paused": new.pause_reason is not None,
            "pause_reason": new.pause_reason,
            # An interval counts from the creation of its job: an imported job keeps its minutes.
            "created_at": new.anchor or now,
            "planned_until": now,
            "updated_at": now,
        }


def _check(which: Which) -> None:
    by_filter = which.tag is not None or which.domain is not None
    if sum((bool(which.jobs), by_filter, which.everything)) != 1:
        raise InvalidInput(
            "name the jobs: either by their names, or by a tag or domain, or all",
            hint="for example: floodmark migrate-jobs --tag news --dry-run",
        )


def _refuse_invalid(moving: Sequence[Job]) -> None:
    """Refuse jobs that no scheduler would run after the move."""
    invalid = []
    for job in moving:
        try:
            trigger_of(job.when, anchor=job.created_at)
        except InvalidInput as error:
            invalid.append(f"{job.name}: {error}")
    if invalid:
        more = f"; and {len(invalid) - _SHOWN} more" if len(invalid) > _SHOWN else ""
        raise Conflict(
            f"this scheduler cannot run {'; '.join(invalid[:_SHOWN])}{more}",
            hint="correct them first, or name the others",
        )


def _moved(job: Job, goal: int, now: datetime) -> MovedJob:
    is_due = goal == SCHEDULER_VERSION and job.schedule_enabled and not job.paused
    next_run = trigger_of(job.when, anchor=job.created_at).after(now) if is_due else None
    return MovedJob(job=job.name, job_id=job.job_id, scheduler_version=goal, next_run=next_run)


def _entry(job: Job, goal: int) -> AuditEntry:
    return AuditEntry(
        action="job.moved",
        what=f"job:{job.name}",
        before={"scheduler_version": job.scheduler_version},
        after={"scheduler_version": goal},
    )


def _added(row: Mapping[str, Any]) -> AuditEntry:
    after = {name: value for name, value in row.items() if value is not None and not isinstance(value, datetime)}
    return AuditEntry(action="job.added", what=f"job:{row['name']}", after=after)


async def _find_taken(connection: AsyncConnection, names: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for some in chunks(names):
        found.update((await connection.execute(select(jobs.c.name).where(jobs.c.name.in_(some)))).scalars())
    return found
