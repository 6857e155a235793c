"""What every handler works with."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from datetime import timedelta
from typing import Any, TypeVar

from floodmark.errors import FloodmarkError, NotFound
from floodmark.model.audit import Actor
from floodmark.model.spec import JobSpec
from floodmark.model.tokens import Role
from floodmark.operations.declaration import AsyncCaller
from floodmark.sources.python import UnknownCollector
from floodmark.store.audit import AuditLog
from floodmark.store.jobs import Jobs
from floodmark.store.watermarks import Watermarks
from floodmark.wiring.resources import Resources

T = TypeVar("T")


class Handlers(AsyncCaller):
    """Operations on the resources of this process, for `actor`, who has the role `role`.

    `deadline`: the time that a call to another server may take at most, if that is less than the settings say.
    """

    def __init__(
        self, resources: Resources, actor: Actor, *, role: Role = "admin", deadline: timedelta | None = None
    ) -> None:
        self.resources, self.actor, self.role, self.deadline = resources, actor, role, deadline

    def changing(self) -> AbstractAsyncContextManager[object]:
        """Commit the changes and the audit entries of the block together, or none. Notify others after the block."""
        return self.resources.database.writing()

    async def note(
        self,
        action: str,
        what: str,
        *,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a change into the audit, within the `changing` block that makes it."""
        await self.audit_log.record(self.actor, action, what, before=before, after=after)

    async def find_leader(self) -> str | None:
        """Return the name of the process that schedules, if there is one."""
        return await self.resources.leases.holder(self.resources.settings.scheduler_leader_key)

    async def find_job_id(self, text: str | None) -> str | None:
        """Return the id of a job. A text that names no job is returned as it is: the job may have been deleted."""
        if text is None:
            return None
        try:
            return (await self.job_store.get(text)).job_id
        except NotFound:
            return text

    async def find_items_stream(self, text: str) -> str:
        """Return the stream that holds the items of a stream or job: a channel's is named by its number."""
        if await self.watermark_store.holds_items(text):
            return text
        name = await self.find_stream(text)
        try:
            state = await self.watermark_store.show(name)
        except NotFound:
            # A job that has not run yet.
            return name
        return state.items_stream or state.stream

    async def find_stream(self, text: str) -> str:
        """Return a stream by its name, or by the name of a job that collects it, or will."""
        if await self.watermark_store.is_known(text):
            return text
        with suppress(FloodmarkError):
            return (await self.job_store.get(text)).stream
        # The error names streams, not jobs: a stream was asked for.
        return (await self.watermark_store.show(text)).stream

    async def complete(self, spec: JobSpec) -> JobSpec:
        """Return a new job in the form its source wants, or raise `InvalidInput`."""
        return await self.validate(spec.target, lambda: self.resources.validation.complete(spec), spec)

    async def validate(self, target: str, check: Callable[[], T], otherwise: T) -> T:
        """Return what `check` returns. A collector of another process is known by the job it declared."""
        try:
            return check()
        except UnknownCollector:
            if not await self.job_store.is_declared(target):
                raise
            return otherwise

    @property
    def job_store(self) -> Jobs:
        """The jobs."""
        return self.resources.repositories.jobs

    @property
    def watermark_store(self) -> Watermarks:
        """The watermarks."""
        return self.resources.repositories.watermarks

    @property
    def audit_log(self) -> AuditLog:
        """The audit."""
        return self.resources.repositories.audit
