"""The verbs for moving over from an older scheduler: on this installation, or on a server."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from floodmark.coordination.signals.port import Topic
from floodmark.errors import InvalidInput
from floodmark.importers.handover import Imports, Moved, MovedJobs, NewJob, Which
from floodmark.importers.shadow import ParityReport, Recorded, Shadow, ShadowStatus
from floodmark.importers.shadow_fires import OldRunsTable, ShadowFires

from .local import LocalOffice
from .port import Office

if TYPE_CHECKING:
    from floodmark.client import Client

_RECORD = OldRunsTable()
# Half of what a request may be (API_BODY_MAX), and half as many as one may hold.
_BYTES_AT_ONCE, _JOBS_AT_ONCE = 500_000, 250


class MovingVerbs(Protocol):
    """What can be asked and told about the jobs of an older scheduler."""

    async def status(self) -> ShadowStatus:
        """Whether the shadow is on, and how far it is."""
        ...

    async def start(self, back: timedelta = ...) -> ShadowStatus:
        """Record what would be fired, from now or from `back` ago. One that is on goes on as it is."""
        ...

    async def stop(self) -> ShadowStatus:
        """Record no more, and forget what was recorded."""
        ...

    async def step(self) -> Recorded:
        """Record up to now, without waiting for the scheduler to do it."""
        ...

    async def report(
        self,
        *,
        hours: float = 24,
        tolerance: timedelta | None = None,
        record: OldRunsTable = ...,
        jobs: Sequence[str] = (),
    ) -> ParityReport:
        """Compare with what the old scheduler recorded."""
        ...

    async def move(self, which: Which, *, back: bool = False, dry_run: bool = False) -> Moved:
        """Give jobs to this scheduler, or back to the old one."""
        ...

    async def bring(
        self,
        new: Sequence[NewJob],
        *,
        take_over: bool = False,
        dry_run: bool = False,
        usual: bool = False,
    ) -> Imports:
        """Make jobs that were read elsewhere; those that are there already stay as they are.

        With `usual` they get the policy that the settings of the installation have for new jobs.
        """
        ...


def moving_of(office: Office) -> MovingVerbs:
    """Moving over, of the installation that an office is for."""
    if isinstance(office, LocalOffice):
        return LocalMoving(office)
    from .remote import RemoteOffice  # noqa: PLC0415 - needs an HTTP client, which a server does not

    assert isinstance(office, RemoteOffice)
    return RemoteMoving(office.client)


class LocalMoving:
    """The verbs on the store of this installation, with an audit of every change."""

    def __init__(self, office: LocalOffice) -> None:
        self._office, self._parts = office, office.parts
        given = (office.parts.database, office.parts.clock)
        self._shadow, self._jobs = Shadow(ShadowFires(*given)), MovedJobs(*given)

    async def status(self) -> ShadowStatus:
        """Whether the shadow is on, and how far it is."""
        return await self._shadow.status()

    async def start(self, back: timedelta = timedelta()) -> ShadowStatus:
        """Record what would be fired, from now or from `back` ago. One that is on goes on as it is."""
        async with self._office.changing():
            if await self._shadow.start(back):
                await self._office.note("shadow.started", "shadow", after={"back_seconds": back.total_seconds()})
        return await self._shadow.status()

    async def stop(self) -> ShadowStatus:
        """Record no more, and forget what was recorded."""
        async with self._office.changing():
            if await self._shadow.stop():
                await self._office.note("shadow.stopped", "shadow")
        return await self._shadow.status()

    async def step(self) -> Recorded:
        """Record up to now, without waiting for the scheduler to do it."""
        while True:
            recorded = await self._shadow.step()
            if recorded is None:
                raise InvalidInput("the shadow is off", hint="begin with: floodmark shadow start")
            if not recorded.is_behind:
                return recorded

    async def report(
        self,
        *,
        hours: float = 24,
        tolerance: timedelta | None = None,
        record: OldRunsTable = _RECORD,
        jobs: Sequence[str] = (),
    ) -> ParityReport:
        """Compare with what the old scheduler recorded."""
        names = [(await self._office.job(text)).name for text in jobs] or None
        return await self._shadow.report(hours=hours, tolerance=tolerance, record=record, names=names)

    async def move(self, which: Which, *, back: bool = False, dry_run: bool = False) -> Moved:
        """Give jobs to this scheduler, or back to the old one."""
        moved = await self._jobs.move(which, self._office.actor, back=back, dry_run=dry_run)
        await self._tell(dry_run)
        return moved

    async def bring(
        self,
        new: Sequence[NewJob],
        *,
        take_over: bool = False,
        dry_run: bool = False,
        usual: bool = False,
    ) -> Imports:
        """Make jobs that were read elsewhere; those that are there already stay as they are."""
        if usual:
            policy = self._parts.settings.default_policy()
            new = [replace(one, spec=replace(one.spec, policy=policy)) for one in new]
        new = [replace(one, spec=await self._office.complete(one.spec)) for one in new]
        imports = await self._jobs.bring(new, self._office.actor, take_over=take_over, dry_run=dry_run)
        await self._tell(dry_run)
        return imports

    async def _tell(self, dry_run: bool) -> None:
        if not dry_run:
            await self._parts.signals.notify(Topic.JOBS)


class RemoteMoving:
    """The same behind a server."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    async def status(self) -> ShadowStatus:
        """Whether the shadow is on, and how far it is."""
        return await self._client.shadow()

    async def start(self, back: timedelta = timedelta()) -> ShadowStatus:
        """Record what would be fired, from now or from `back` ago. One that is on goes on as it is."""
        return await self._client.start_shadow(back)

    async def stop(self) -> ShadowStatus:
        """Record no more, and forget what was recorded."""
        return await self._client.stop_shadow()

    async def step(self) -> Recorded:
        """Record up to now, without waiting for the scheduler to do it."""
        return await self._client.step_shadow()

    async def report(
        self,
        *,
        hours: float = 24,
        tolerance: timedelta | None = None,
        record: OldRunsTable = _RECORD,
        jobs: Sequence[str] = (),
    ) -> ParityReport:
        """Compare with what the old scheduler recorded. A server reads no table but that of its executions."""
        if (record.table, record.job_column) != (_RECORD.table, _RECORD.job_column):
            raise InvalidInput(
                "a server compares with job_executions only, not with another table",
                hint="type it where the database is, or leave out --table and --job-column",
            )
        return await self._client.shadow_report(
            hours=hours, tolerance=tolerance, time_column=record.time_column, jobs=jobs
        )

    async def move(self, which: Which, *, back: bool = False, dry_run: bool = False) -> Moved:
        """Give jobs to this scheduler, or back to the old one."""
        return await self._client.migrate_jobs(which, back=back, dry_run=dry_run)

    async def bring(
        self,
        new: Sequence[NewJob],
        *,
        take_over: bool = False,
        dry_run: bool = False,
        usual: bool = False,
    ) -> Imports:
        """Make jobs that were read elsewhere. More than fit into one request are all tried before any is made."""
        portions = list(_portions(new))
        if len(portions) > 1 and not dry_run:
            await self.bring(new, take_over=take_over, dry_run=True, usual=usual)
        parts = [
            await self._client.import_jobs(some, take_over=take_over, dry_run=dry_run, usual=usual) for some in portions
        ]
        return Imports(
            made=tuple(name for part in parts for name in part.made),
            already=tuple(name for part in parts for name in part.already),
        )


def _portions(new: Sequence[NewJob]) -> Iterator[list[NewJob]]:
    """As many at once as a request may hold."""
    some, size = list[NewJob](), 0
    for one in new:
        bytes_of = len(msgspec.json.encode(one))
        if some and (len(some) == _JOBS_AT_ONCE or size + bytes_of > _BYTES_AT_ONCE):
            yield some
            some, size = [], 0
        some.append(one)
        size += bytes_of
    if some:
        yield some
