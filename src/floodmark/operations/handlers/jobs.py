"""Handlers of jobs."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import asdict

from floodmark.coordination.signals.port import Topic
from floodmark.errors import InvalidInput, NotFound
from floodmark.model.job import Job
from floodmark.model.job_fields import columns_of
from floodmark.model.page import Page, last_key, page_of
from floodmark.model.shapes import job_shape
from floodmark.model.spec import JobSpec
from floodmark.operations.jobs import ANY_JOB, JobFilter, JobOperations, Runs
from floodmark.operations.views import Views
from floodmark.rules.explain import Explanation, explain
from floodmark.sources.validation import unmask_changes
from floodmark.triggers import instants
from floodmark.triggers.cron import cron as cron_trigger
from floodmark.triggers.upcoming import runs_shape, upcoming

from .base import Handlers
from .job_columns import changes_of, refuse_second, spec_of

# Columns that every change of a job sets.
_BOOKKEEPING = ("version", "updated_at", "planned_until")
_STATES: Mapping[str, Mapping[str, bool]] = {
    "active": {"enabled": True, "paused": False},
    "paused": {"paused": True},
    "disabled": {"enabled": False},
}


class JobHandlers(JobOperations, Handlers):
    """Jobs in the store."""

    async def jobs(self, which: JobFilter = ANY_JOB, *, cursor: str | None = None, limit: int = 50) -> Page[Job]:
        wanted = _without_state(which)
        stale = wanted.pop("stale")
        also = None if stale is None else self.store.staleness.condition(is_stale=stale)
        after = last_key("jobs", cursor, str)
        rows = await self.store.jobs.find(**wanted, also=also, after=after, limit=limit + 1)
        return page_of(rows, limit, "jobs", lambda job: [job.name])

    async def job(self, name: str) -> Job:
        return await self.store.jobs.get(name)

    async def explain(self, name: str) -> Explanation:
        views = Views(self.resources.database, self.resources.clock)
        return explain(await views.load(await self.store.jobs.get(name), leader=await self.find_leader()))

    async def upcoming_runs(self, name: str, count: int = 5) -> Runs:
        job, now = await self.store.jobs.get(name), self.resources.clock.now()
        return _runs(upcoming(job, now, count), now, job.when.timezone)

    async def upcoming_of(self, cron: str, timezone: str = "UTC", count: int = 5) -> Runs:
        now = self.resources.clock.now()
        return _runs(list(islice(instants(cron_trigger(cron, timezone), now), count)), now, timezone)

    async def add_job(
        self, columns: Mapping[str, Any] | JobSpec, *, job_id: str | None = None, may_exist: bool = False
    ) -> Job:
        """Create a job, under `job_id` if an earlier request was promised that id, which `may_exist` already.

        With JOB_REPLACE_EXISTING_INSTANCE it may replace a job of the same name; its version is then above 1.
        """
        if job_id is not None and may_exist:
            with suppress(NotFound):
                job = await self.store.jobs.get(job_id)
                if job.job_id == job_id:
                    return job
        spec = columns if isinstance(columns, JobSpec) else await self.spec_of(columns)
        replaces = self.resources.settings.job_replace_existing_instance
        spec = await self.complete_spec(spec)
        async with self.transaction(Topic.JOBS):
            before = await self.store.jobs.find_by_name(spec.name) if replaces and spec.name is not None else None
            job = await self.store.jobs.add(spec, job_id=job_id, replace_existing=replaces)
            if before is not None and before.job_id == job.job_id:
                await self._record_change("job.replaced", before, job)
            else:
                await self.record("job.added", f"job:{job.name}", after=job_shape(job))
        return job

    async def spec_of(self, columns: Mapping[str, Any]) -> JobSpec:
        """Return the job that these columns describe, completed by its source and by the settings."""
        spec = await self.complete_spec(spec_of(columns, self.resources.settings))
        if spec.name is None and self.resources.validation.has_one_job_per_target(spec.source):
            await refuse_second(spec, self.store.jobs)
        return spec

    async def replace_job(self, name: str, columns: Mapping[str, Any], *, version: int | None = None) -> Job:
        before = await self.store.jobs.get(name)
        spec = await self.spec_of({"name": before.name, **unmask_changes(before, columns)})
        changes = {**columns_of(spec), "depends_on": list(spec.depends_on)}
        # Only `migrate_jobs` changes which scheduler owns a job.
        del changes["scheduler_version"]
        return await self._update(before.job_id, changes, version)

    async def change_job(self, name: str, columns: Mapping[str, Any], *, version: int | None = None) -> Job:
        return await self._update(name, changes_of(columns), version)

    async def _update(self, name: str, changes: Mapping[str, Any], version: int | None) -> Job:
        async def update(before: Job) -> Job:
            target = str(changes.get("target", before.target))
            wanted = await self.validate(target, lambda: self.resources.validation.change(before, changes), changes)
            return await self.store.jobs.update(before, wanted, version)

        return await self._change(name, "job.changed", update)

    async def remove_job(self, name: str, *, version: int | None = None) -> Job:
        async with self.transaction(Topic.CANCEL):
            job = await self.store.jobs.get(name)
            await self.store.jobs.remove(job, version)
            await self.record("job.removed", f"job:{job.name}", before=job_shape(job))
        return job

    async def pause_job(self, name: str, reason: str | None = None) -> Job:
        return await self._change(name, "job.paused", lambda job: self.store.jobs.pause(job, reason))

    async def resume_job(self, name: str) -> Job:
        return await self._change(name, "job.resumed", self.store.jobs.resume)

    async def cancel_job(self, name: str) -> int:
        async with self.transaction(Topic.CANCEL):
            job = await self.store.jobs.get(name)
            count = await self.store.jobs.cancel(job)
            await self.record("job.cancelled", f"job:{job.name}", after={"executions": count})
        return count

    async def _change(self, name: str, action: str, change: Callable[[Job], Awaitable[Job]]) -> Job:
        async with self.transaction(Topic.JOBS):
            before = await self.store.jobs.get(name)
            after = await change(before)
            await self._record_change(action, before, after)
        return after

    async def _record_change(self, action: str, before: Job, after: Job) -> None:
        """Record the columns that differ; a change without any is not recorded."""
        was, now = job_shape(before), job_shape(after)
        differs = [name for name in now if was[name] != now[name] and name not in _BOOKKEEPING]
        if differs:
            old, new = ({name: shape[name] for name in differs} for shape in (was, now))
            await self.record(action, f"job:{after.name}", before=old, after=new)


def _without_state(which: JobFilter) -> dict[str, Any]:
    """Return the filters, with `state` replaced by the columns it stands for."""
    wanted = asdict(which)
    state = wanted.pop("state")
    for name, value in _STATES.get(state or "", {}).items():
        if wanted[name] not in (None, value):
            given = "true" if wanted[name] else "false"
            raise InvalidInput(f"state={state} and {name}={given} contradict each other", hint="leave one of them out")
        wanted[name] = value
    return wanted


def _runs(runs: list[datetime], now: datetime, zone: str) -> Runs:
    return msgspec.convert({"timezone": zone, "runs": runs_shape(runs, now, zone)}, Runs)
