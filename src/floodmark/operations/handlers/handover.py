"""Moving over from an older scheduler."""

from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property

from msgspec.structs import replace

from floodmark.coordination.signals.port import Topic
from floodmark.errors import InvalidInput
from floodmark.importers.handover import MovedJobs
from floodmark.importers.shadow import Shadow
from floodmark.importers.shadow_fires import ShadowFires
from floodmark.model.handover import Imports, Moved, NewJob, OldRunsTable, ParityReport, Recorded, ShadowStatus, Which
from floodmark.operations.handover import HandoverOperations

from .base import Handlers

_AT_ONCE = timedelta()


class HandoverHandlers(HandoverOperations, Handlers):
    """The shadow and the jobs in the store."""

    async def shadow(self) -> ShadowStatus:
        return await self._shadow.status()

    async def start_shadow(self, back: timedelta = _AT_ONCE) -> ShadowStatus:
        async with self.changing():
            if await self._shadow.start(back):
                await self.note("shadow.started", "shadow", after={"back_seconds": back.total_seconds()})
        return await self._shadow.status()

    async def stop_shadow(self) -> ShadowStatus:
        async with self.changing():
            if await self._shadow.stop():
                await self.note("shadow.stopped", "shadow")
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
        names = [(await self.job_store.get(text)).name for text in jobs] or None
        record = record or OldRunsTable(time_column=time_column)
        return await self._shadow.report(hours=hours, tolerance=tolerance, record=record, names=names)

    async def migrate_jobs(self, which: Which, *, back: bool = False, dry_run: bool = False) -> Moved:
        moved = await self._moved.move(which, self.actor, back=back, dry_run=dry_run)
        await self._tell(dry_run)
        return moved

    async def import_jobs(
        self,
        new: Sequence[NewJob],
        *,
        take_over: bool = False,
        dry_run: bool = False,
        usual: bool = False,
    ) -> Imports:
        if usual:
            policy = self.resources.settings.default_policy()
            new = [replace(one, spec=replace(one.spec, policy=policy)) for one in new]
        new = [replace(one, spec=await self.complete(one.spec)) for one in new]
        imports = await self._moved.bring(new, self.actor, take_over=take_over, dry_run=dry_run)
        await self._tell(dry_run)
        return imports

    async def _tell(self, dry_run: bool) -> None:
        if not dry_run:
            await self.resources.signals.notify(Topic.JOBS)

    @cached_property
    def _shadow(self) -> Shadow:
        return Shadow(ShadowFires(self.resources.database, self.resources.clock))

    @cached_property
    def _moved(self) -> MovedJobs:
        return MovedJobs(self.resources.database, self.resources.clock)
