"""The base of all handlers."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

from floodmark.coordination.signals.port import Topic
from floodmark.errors import FloodmarkError, NotFound
from floodmark.model.audit import Actor
from floodmark.model.spec import JobSpec
from floodmark.model.tokens import Role
from floodmark.operations.declaration import AsyncCaller
from floodmark.sources.python import UnknownCollector
from floodmark.wiring.resources import Resources

T = TypeVar("T")


class Handlers(AsyncCaller):
    """Operations on the resources of this process, for `actor`, who has the role `role`.

    `deadline` limits a call to another server, if it is less than the limit of the settings.
    """

    def __init__(
        self, resources: Resources, actor: Actor, *, role: Role = "admin", deadline: timedelta | None = None
    ) -> None:
        self.resources, self.actor, self.role, self.deadline = resources, actor, role, deadline
        self.store = resources.repositories

    @asynccontextmanager
    async def transaction(self, topic: Topic | None = None) -> AsyncIterator[None]:
        """Commit the changes and the audit entries of the block together, or none; then notify followers of `topic`."""
        async with self.resources.database.writing():
            yield
        if topic is not None:
            await self.resources.signals.notify(topic)

    async def record(self, action: str, what: str, **values: Mapping[str, Any] | None) -> None:
        """Write a change to the audit log, with the values `before` and `after`, in the `transaction` that makes it."""
        await self.store.audit.record(self.actor, action, what, **values)

    async def find_leader(self) -> str | None:
        """Return the name of the process that schedules, if there is one."""
        return await self.resources.leases.holder(self.resources.settings.scheduler_leader_key)

    async def find_job_id(self, text: str | None) -> str | None:
        """Return the id of a job. A text that names no job is returned as it is: the job may have been deleted."""
        return None if text is None else await self.store.executions.find_job_id(text)

    async def find_items_stream(self, text: str) -> str:
        """Return the stream with the items of a stream or job: that of a channel is named by its id."""
        if await self.store.watermarks.holds_items(text):
            return text
        name = await self.find_stream(text)
        try:
            state = await self.store.watermarks.show(name)
        except NotFound:
            # A job that has not run yet.
            return name
        return state.items_stream or state.stream

    async def find_stream(self, text: str) -> str:
        """Return a stream by its name, or by the name of a job that collects it, or will."""
        if await self.store.watermarks.is_known(text):
            return text
        with suppress(FloodmarkError):
            return (await self.store.jobs.get(text)).stream
        # This error names streams: the caller asked for a stream.
        return (await self.store.watermarks.show(text)).stream

    async def complete_spec(self, spec: JobSpec) -> JobSpec:
        """Return a new job in the form its source wants, or raise `InvalidInput`."""
        return await self.validate(spec.target, lambda: self.resources.validation.complete(spec), spec)

    async def validate(self, target: str, check: Callable[[], T], otherwise: T) -> T:
        """Return what `check` returns. A collector of another process is known by the job it declared."""
        try:
            return check()
        except UnknownCollector:
            if not await self.store.jobs.is_declared(target):
                raise
            return otherwise
