"""Handlers of the migration from an older scheduler."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from floodmark.coordination.signals.port import Topic
from floodmark.errors import InvalidInput
from floodmark.importers.handover import MovedJobs
from floodmark.importers.shadow import Shadow
from floodmark.importers.shadow_fires import ShadowFires
from floodmark.model.handover import Imports, Moved, NewJob, OldRunsTable, ParityReport, Recorded, ShadowStatus, Which
from floodmark.operations.handover import HandoverOperations

from .base import Handlers
from .jobs import JobHandlers

_AT_ONCE = timedelta()


class HandoverHandlers(HandoverOperations, Handlers):
    """The shadow and the jobs in the store."""

    async def shadow(self) -> ShadowStatus:
        return await self._shadow.status()

    async def start_shadow(self, back: timedelta = _AT_ONCE) -> ShadowStatus:
        async with self.transaction():
            if await self._shadow.start(back):
                await self.record("shadow.started", "shadow", after={"back_seconds": back.total_seconds()})
        return await self._shadow.status()

    async def stop_shadow(self) -> ShadowStatus:
        async with self.transaction():
            if await self._shadow.stop():
                await self.record("shadow.stopped", "shadow")
        return await self._shadow.status()

    async def step_shadow(self) -> Recorded:
        while True:
            recorded = await self._shadow.step()
            if recorded is None:
                raise InvalidInput("the shadow is off", hint="begin with: floodmark shadow start")
            if not recorded.is_behind:
                return recorded

    async def shadow_report(
        self,
        *,
        hours: float = 24,
        tolerance: timedelta | None = None,
        time_column: str = "scheduled_for",
        jobs: Sequence[str] = (),
        record: OldRunsTable | None = None,
    ) -> ParityReport:
        names = [(await self.store.jobs.get(text)).name for text in jobs] or None
        record = record or OldRunsTable(time_column=time_column)
        return await self._shadow.report(hours=hours, tolerance=tolerance, record=record, names=names)

    async def migrate_jobs(self, which: Which, *, back: bool = False, dry_run: bool = False) -> Moved:
        moved = await self._moved.move(which, self.actor, back=back, dry_run=dry_run)
        await self._notify(dry_run)
        return moved

    async def import_jobs(
        self,
        new: Sequence[NewJob | Mapping[str, Any]],
        *,
        take_over: bool = False,
        dry_run: bool = False,
        usual: bool = False,
    ) -> Imports:
        jobs = [one if isinstance(one, NewJob) else await self._new_job(one) for one in new]
        names = [one.spec.name for one in jobs]
        if len(set(names)) < len(names):
            raise InvalidInput("two jobs have the same name", hint="names are unique: give each job its own")
        if usual:
            policy = self.resources.settings.default_policy()
            jobs = [replace(one, spec=replace(one.spec, policy=policy)) for one in jobs]
        jobs = [replace(one, spec=await self.complete_spec(one.spec)) for one in jobs]
        imports = await self._moved.bring(jobs, self.actor, take_over=take_over, dry_run=dry_run)
        await self._notify(dry_run)
        return imports

    async def _new_job(self, given: Mapping[str, Any]) -> NewJob:
        """Return the job that a request to import jobs describes."""
        columns = given["job"]
        if "name" not in columns:
            raise InvalidInput("a job has no name", hint="name it: a second import knows the job by its name")
        if columns.get("depends_on"):
            hint = "leave out depends_on; set it afterwards"
            raise InvalidInput(f"{columns['name'][:60]} depends on other jobs", hint=hint)
        spec = await JobHandlers(self.resources, self.actor).spec_of(columns)
        return NewJob(spec=spec, anchor=_anchor_of(given.get("anchor")), pause_reason=given.get("pause_reason"))

    async def _notify(self, dry_run: bool) -> None:
        if not dry_run:
            await self.resources.signals.notify(Topic.JOBS)

    @cached_property
    def _shadow(self) -> Shadow:
        return Shadow(ShadowFires(self.resources.database, self.resources.clock))

    @cached_property
    def _moved(self) -> MovedJobs:
        return MovedJobs(self.resources.database, self.resources.clock, self.store.audit, self.store.budgets)


def _anchor_of(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        anchor: datetime = msgspec.convert(text, Annotated[datetime, msgspec.Meta(tz=True)])
        return anchor.astimezone(UTC)
    except (msgspec.ValidationError, OverflowError):
        raise InvalidInput(f"anchor {text!r} is not a time", hint="write it like 2026-01-31T08:00:00Z") from None
