"""Jobs. A change and its entry in the audit are one transaction; others are notified when it is committed."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import asdict

from floodmark.coordination.signals.port import Topic
from floodmark.errors import InvalidInput
from floodmark.model.job import Job
from floodmark.model.job_fields import columns_of
from floodmark.model.page import Page, last_key, page_of
from floodmark.model.shapes import job_shape
from floodmark.model.spec import JobSpec
from floodmark.observability.tracing import triggered
from floodmark.operations.jobs import ANY_JOB, Asked, JobFilter, JobOperations, Runs
from floodmark.operations.views import Views
from floodmark.rules.explain import Explanation, explain
from floodmark.sources.validation import unmask_changes
from floodmark.store.staleness import Staleness
from floodmark.triggers import instants
from floodmark.triggers.cron import cron as cron_trigger
from floodmark.triggers.upcoming import runs_shape, upcoming

from .base import Handlers
from .job_columns import changes_of, refuse_second, spec_of

# What changes by itself with every change of a job, and says nothing about it.
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
        also = None if stale is None else self._staleness.condition(is_stale=stale)
        after = last_key("jobs", cursor, str)
        rows = await self.job_store.find(**wanted, also=also, after=after, limit=limit + 1)
        return page_of(rows, limit, "jobs", lambda job: [job.name])

    async def job(self, name: str) -> Job:
        return await self.job_store.get(name)

    async def explain(self, name: str) -> Explanation:
        views = Views(self.resources.database, self.resources.clock)
        return explain(await views.load(await self.job_store.get(name), leader=await self.find_leader()))

    async def upcoming_runs(self, name: str, count: int = 5) -> Runs:
        job, now = await self.job_store.get(name), self.resources.clock.now()
        return _runs(upcoming(job, now, count), now, job.when.timezone)

    async def upcoming_of(self, cron: str, timezone: str = "UTC", count: int = 5) -> Runs:
        now = self.resources.clock.now()
        return _runs(list(islice(instants(cron_trigger(cron, timezone), now), count)), now, timezone)

    async def add_job(self, columns: Mapping[str, Any] | JobSpec) -> Job:
        return await self.create_job(columns if isinstance(columns, JobSpec) else await self.spec_of(columns))

    async def spec_of(self, columns: Mapping[str, Any]) -> JobSpec:
        """Return the job that these columns describe, as its source wants it; the settings have the rest."""
        spec = await self.complete(spec_of(columns, self.resources.settings))
        if spec.name is None and self.resources.validation.has_one_job_per_target(spec.source):
            await refuse_second(spec, self.job_store)
        return spec

    async def create_job(self, spec: JobSpec, *, job_id: str | None = None) -> Job:
        """Create a job, under an id that was promised already if there is one.

        With JOB_REPLACE_EXISTING_INSTANCE it may replace one of the same name; its version is then above 1.
        """
        replaces = self.resources.settings.job_replace_existing_instance
        spec = await self.complete(spec)
        async with self.changing():
            before = await self.job_store.named(spec.name) if replaces and spec.name is not None else None
            job = await self.job_store.add(spec, job_id=job_id, replace_existing=replaces)
            if before is not None and before.job_id == job.job_id:
                await self._note_changed("job.replaced", before, job)
            else:
                await self.note("job.added", f"job:{job.name}", after=job_shape(job))
        await self.resources.signals.notify(Topic.JOBS)
        return job

    async def replace_job(self, name: str, columns: Mapping[str, Any], *, version: int | None = None) -> Job:
        before = await self.job_store.get(name)
        spec = await self.spec_of({"name": before.name, **unmask_changes(before, columns)})
        changes = {**columns_of(spec), "depends_on": list(spec.depends_on)}
        # Whose job it is, the old scheduler's or ours, is for moving over to say.
        del changes["scheduler_version"]
        return await self._update(before.job_id, changes, version)

    async def change_job(self, name: str, columns: Mapping[str, Any], *, version: int | None = None) -> Job:
        return await self._update(name, changes_of(columns), version)

    async def _update(self, name: str, changes: Mapping[str, Any], version: int | None) -> Job:
        async with self.changing():
            before = await self.job_store.get(name)
            wanted = await self._changes(before, changes)
            after = await self.job_store.update(before, wanted, version)
            await self._note_changed("job.changed", before, after)
        await self.resources.signals.notify(Topic.JOBS)
        return after

    async def remove_job(self, name: str, *, version: int | None = None) -> Job:
        async with self.changing():
            job = await self.job_store.get(name)
            await self.job_store.remove(job, version)
            await self.note("job.removed", f"job:{job.name}", before=job_shape(job))
        await self.resources.signals.notify(Topic.CANCEL)
        return job

    async def pause_job(self, name: str, reason: str | None = None) -> Job:
        async with self.changing():
            before = await self.job_store.get(name)
            after = await self.job_store.pause(before, reason)
            await self._note_changed("job.paused", before, after)
        await self.resources.signals.notify(Topic.JOBS)
        return after

    async def resume_job(self, name: str) -> Job:
        async with self.changing():
            before = await self.job_store.get(name)
            after = await self.job_store.resume(before)
            await self._note_changed("job.resumed", before, after)
        await self.resources.signals.notify(Topic.JOBS)
        return after

    async def cancel_job(self, name: str) -> int:
        async with self.changing():
            job = await self.job_store.get(name)
            count = await self.job_store.cancel(job)
            await self.note("job.cancelled", f"job:{job.name}", after={"executions": count})
        await self.resources.signals.notify(Topic.CANCEL)
        return count

    async def run_job(self, name: str, params: Mapping[str, Any] | None = None) -> Asked:
        with triggered(self.resources.tracing, "manual", name) as traceparent:
            async with self.changing():
                job = await self.job_store.get(name)
                if params:
                    await self.validate(job.target, lambda: self.resources.validation.run(job, params), None)
                forced = await self.job_store.force_run(job, params=params or None, traceparent=traceparent)
                told = {"execution_id": forced.execution_id, "params": dict(params or {})}
                await self.note("job.run", f"job:{job.name}", after=told)
            if forced.queued is not None:
                await self.resources.queue.put([forced.queued])
        return Asked(execution_id=forced.execution_id, scheduled_for=forced.scheduled_for, reason=forced.reason)

    async def _note_changed(self, action: str, before: Job, after: Job) -> None:
        """Write down what differs; a change that changes nothing is none."""
        was, now = job_shape(before), job_shape(after)
        differs = [name for name in now if was[name] != now[name] and name not in _BOOKKEEPING]
        if differs:
            await self.note(
                action,
                f"job:{after.name}",
                before={name: was[name] for name in differs},
                after={name: now[name] for name in differs},
            )

    async def _changes(self, before: Job, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        target = str(changes.get("target", before.target))
        return await self.validate(target, lambda: self.resources.validation.change(before, changes), changes)

    @cached_property
    def _staleness(self) -> Staleness:
        age = timedelta(hours=self.resources.settings.lpa_max_age_hours)
        return Staleness(self.resources.database, self.resources.clock, telegram_max_age=age)


def _without_state(which: JobFilter) -> dict[str, Any]:
    """Return the filters, with `state` as what it means."""
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
