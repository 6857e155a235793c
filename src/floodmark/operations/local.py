"""The verbs on the store of this installation, with an audit of every change."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from msgspec.structs import asdict

from floodmark.coordination.signals.port import Topic
from floodmark.model.audit import Actor
from floodmark.model.job import Job
from floodmark.model.shapes import job_shape
from floodmark.model.spec import JobSpec
from floodmark.model.tokens import Role
from floodmark.observability.tracing import triggered
from floodmark.operations.handlers.accounts import AccountHandlers
from floodmark.operations.handlers.fleet import FleetHandlers, InstallationHandlers
from floodmark.operations.handlers.reports import ReportHandlers
from floodmark.operations.handlers.streams import StreamHandlers
from floodmark.operations.handlers.sync import SyncHandlers
from floodmark.operations.handlers.triggers import TriggerHandlers
from floodmark.rules.explain import Explanation, explain
from floodmark.sources.python import UnknownCollector
from floodmark.wiring.resources import Resources

from .handlers.executions import DeadLetterHandlers, ExecutionHandlers
from .handlers.limits import LimitHandlers
from .handlers.tokens import TokenHandlers
from .port import Asked, JobFilter, Office
from .views import Views

T = TypeVar("T")

_ANY = JobFilter()
# What changes by itself with every change of a job, and says nothing about it.
_BOOKKEEPING = ("version", "updated_at", "planned_until")


class LocalOffice(
    ReportHandlers,
    StreamHandlers,
    AccountHandlers,
    SyncHandlers,
    TriggerHandlers,
    ExecutionHandlers,
    DeadLetterHandlers,
    LimitHandlers,
    FleetHandlers,
    InstallationHandlers,
    TokenHandlers,
    Office,
):
    """The office of the process at hand. `actor` is who asks and tells."""

    def __init__(
        self, parts: Resources, actor: Actor, *, role: Role = "admin", deadline: timedelta | None = None
    ) -> None:
        super().__init__(parts, actor, role=role, deadline=deadline)
        given = (parts.database, parts.clock)
        self._jobs = parts.repositories.jobs
        self._views = Views(*given)
        self._staleness = parts.repositories.staleness

    # Asking

    async def jobs(self, which: JobFilter = _ANY, *, after: str | None = None, limit: int = 100) -> list[Job]:
        """In order of name. The next page is `after` the name of the last one."""
        wanted = asdict(which)
        stale = wanted.pop("stale")
        also = None if stale is None else self._staleness.condition(is_stale=stale)
        return await self._jobs.find(**wanted, also=also, after=after, limit=limit)

    async def job(self, text: str) -> Job:
        """One job."""
        return await self._jobs.get(text)

    async def explain(self, text: str) -> Explanation:
        """Why it is not running, or what it is doing."""
        return explain(await self._views.load(await self._jobs.get(text), leader=await self.find_leader()))

    # Telling: the change and its entry in the audit are one transaction; others are told of it when that is committed.

    async def complete(self, spec: JobSpec) -> JobSpec:
        """A new job in the form its source wants, or `InvalidInput`."""
        return await self._validated(spec.target, lambda: self.parts.validation.complete(spec), spec)

    async def add_job(self, spec: JobSpec, *, job_id: str | None = None) -> Job:
        """Make a job, under an id that was promised already if there is one.

        With JOB_REPLACE_EXISTING_INSTANCE it may replace one of the same name; its version is then above 1.
        """
        replaces = self.parts.settings.job_replace_existing_instance
        spec = await self.complete(spec)
        async with self.changing():
            before = await self._jobs.named(spec.name) if replaces and spec.name is not None else None
            job = await self._jobs.add(spec, job_id=job_id, replace_existing=replaces)
            if before is not None and before.job_id == job.job_id:
                await self._note_changed("job.replaced", before, job)
            else:
                await self.note("job.added", f"job:{job.name}", after=job_shape(job))
        await self.parts.signals.notify(Topic.JOBS)
        return job

    async def update_job(self, text: str, changes: Mapping[str, Any], *, version: int | None = None) -> Job:
        """Set columns of a job, if it is still at `version`."""
        async with self.changing():
            before = await self._jobs.get(text)
            wanted = await self._changes(before, changes)
            after = await self._jobs.update(before, wanted, version)
            await self._note_changed("job.changed", before, after)
        await self.parts.signals.notify(Topic.JOBS)
        return after

    async def remove_job(self, text: str, *, version: int | None = None) -> Job:
        """Delete a job, if it is still at `version`; what it was. Its history and its items stay."""
        async with self.changing():
            job = await self._jobs.get(text)
            await self._jobs.remove(job, version)
            await self.note("job.removed", f"job:{job.name}", before=job_shape(job))
        await self.parts.signals.notify(Topic.CANCEL)
        return job

    async def pause_job(self, text: str, reason: str | None = None) -> Job:
        """Let nothing of it start."""
        async with self.changing():
            before = await self._jobs.get(text)
            after = await self._jobs.pause(before, reason)
            await self._note_changed("job.paused", before, after)
        await self.parts.signals.notify(Topic.JOBS)
        return after

    async def resume_job(self, text: str) -> Job:
        """Undo a pause."""
        async with self.changing():
            before = await self._jobs.get(text)
            after = await self._jobs.resume(before)
            await self._note_changed("job.resumed", before, after)
        await self.parts.signals.notify(Topic.JOBS)
        return after

    async def cancel_job(self, text: str) -> int:
        """End what is unfinished of it; how many."""
        async with self.changing():
            job = await self._jobs.get(text)
            count = await self._jobs.cancel(job)
            await self.note("job.cancelled", f"job:{job.name}", after={"executions": count})
        await self.parts.signals.notify(Topic.CANCEL)
        return count

    async def run_job(self, text: str, params: Mapping[str, Any] | None = None) -> Asked:
        """Run it now, whatever its schedule says."""
        with triggered(self.parts.tracing, "manual", text) as traceparent:
            async with self.changing():
                job = await self._jobs.get(text)
                if params:
                    await self._validated(job.target, lambda: self.parts.validation.run(job, params), None)
                forced = await self._jobs.force_run(job, params=params or None, traceparent=traceparent)
                told = {"execution_id": forced.execution_id, "params": dict(params or {})}
                await self.note("job.run", f"job:{job.name}", after=told)
            if forced.queued is not None:
                await self.parts.queue.put([forced.queued])
        return Asked(execution_id=forced.execution_id, scheduled_for=forced.scheduled_for, reason=forced.reason)

    async def _note_changed(self, action: str, before: Job, after: Job) -> None:
        """Only what differs is written down; a change that changes nothing is none."""
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
        return await self._validated(target, lambda: self.parts.validation.change(before, changes), changes)

    async def _validated(self, target: str, check: Callable[[], T], otherwise: T) -> T:
        """What `check` gives. A collector that only other processes have is known by the job it declared."""
        try:
            return check()
        except UnknownCollector:
            if not await self._jobs.is_declared(target):
                raise
            return otherwise
