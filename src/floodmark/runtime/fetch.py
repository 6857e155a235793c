"""Fetches given days of given chats at once, with ordinary jobs that a worker of this process or of a server runs.

Each chat and day has a job with the stream `fetch:<target>:<day>`, so limits, fences, retries and watermarks apply as
to any other job, and an interrupted fetch continues. A job is removed when its day is read; its watermark stays and
shows whether the day is complete.
"""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.exc import DBAPIError

from floodmark.coordination.service import Service, run_services
from floodmark.coordination.signals.port import Bell
from floodmark.errors import Conflict, NotFound, Unavailable
from floodmark.model.audit import Actor
from floodmark.model.execution import ACTIVE, ENDED, Execution, Lease, Queued, State
from floodmark.model.job import Job, Priority, ScheduleType, When
from floodmark.model.spec import JobSpec
from floodmark.model.streams import StreamState
from floodmark.observability.events import BatchKept, ExecutionSettled, SlotsChanged, StepFailed
from floodmark.operations.declared import AsyncOperations
from floodmark.operations.jobs import JobFilter, columns_to_send
from floodmark.operations.local import LocalOperations
from floodmark.operations.posts import read_posts
from floodmark.sinks.files import Artifacts, path_of
from floodmark.sources.port import Source
from floodmark.sources.telegram.plans import parse_mark
from floodmark.sources.telegram.stored_posts import ChatDay, Posts
from floodmark.store.port import Extended, Leasing, Offer, Settlement
from floodmark.wiring.resources import Resources
from floodmark.wiring.write_check import WriteCheck, is_disk_full

from .fetch_patience import Patience
from .scheduler_role import death_watch
from .worker_role import WorkerRole

TAG = "fetch"

_POLL, _SWEEP = timedelta(milliseconds=250), timedelta(seconds=1)
# The executions of a server: often at first, because many days are short, then less and less often.
_POLL_SERVER = (timedelta(milliseconds=100), timedelta(seconds=2))
_ACTOR = Actor(who="fetch")
_AT_ONCE = 100
# Short, because a person waits after Ctrl-C. Stored messages stay; the next fetch reads the rest.
_GRACE = timedelta(seconds=4)


class Wanted(Struct, frozen=True, kw_only=True):
    """The chats, in normal form, and days to fetch, from `first` to `last` inclusive."""

    targets: tuple[str, ...]
    first: date
    last: date
    account: str | None = None
    tenant_id: str | None = None

    @property
    def days(self) -> list[date]:
        """Return every day, in order."""
        return [self.first + timedelta(days=n) for n in range((self.last - self.first).days + 1)]

    def spec(self, target: str, day: date) -> JobSpec:
        """Return the job that reads one day. Each tenant has its own, because tenants do not share items."""
        words = ["fetch", *([self.tenant_id] if self.tenant_id else []), target, day.isoformat()]
        return JobSpec(
            source="telegram",
            target=target,
            when=When(schedule_type=ScheduleType.EVENT),
            name="-".join(word.removeprefix("@") for word in words),
            stream=":".join(words),
            params={"day": day.isoformat()},
            tags=(TAG,),
            account=self.account,
            tenant_id=self.tenant_id,
        )


class Progress(Struct, frozen=True, kw_only=True):
    """The progress of one chat. `messages`: the number of new ones so far, on all its days."""

    target: str
    day: date
    days_done: int
    messages: int
    waits_until: datetime | None = None
    reason: str | None = None


class FetchedDay(Struct, frozen=True, kw_only=True):
    """A day whose messages were read and whose file was written."""

    day: date
    messages: int
    """The number of new messages."""
    last_processed_msg_id: int | None
    complete: bool
    """Whether the day is over and was read to its end."""
    file: Path
    written: bool
    """Whether the file is new or has changed."""


class FetchedChat(Struct, frozen=True, kw_only=True):
    """The result of one chat. `error` is the reason why the rest of its days are missing."""

    target: str
    days: tuple[FetchedDay, ...]
    error: str | None = None
    execution_id: str | None = None


Watch = Callable[[Progress], None]


class Fetch:
    """Fetches several chats at once, the days of each in order. Cancel `run` to stop it cleanly."""

    def __init__(
        self,
        resources: Resources,
        sources: Mapping[str, Source],
        folder: Path,
        *,
        parallelism: int,
        actor: Actor = _ACTOR,
    ) -> None:
        self._patience, self._trouble = Patience(resources.settings.fetch_give_up_after), Bell()
        self._own, self._shared = _OwnQueue(resources.leasing), resources.queue
        self._deaths = death_watch(resources)
        resources = replace(resources, queue=self._own)
        self._resources, self._sources, self._parallelism = resources, sources, parallelism
        self._operations, self._chats = LocalOperations(resources, actor), list[_Chat]()
        self._artifacts = Artifacts(Posts(resources.database), folder, schema_version=resources.settings.schema_version)

    async def run(self, wanted: Wanted, watch: Watch) -> list[FetchedChat]:
        """Fetch everything. Return the chats in the given order, including those that failed.

        `Unavailable` if the database or the folder cannot be written.
        """
        try:
            return await self._run(wanted, watch)
        except (DBAPIError, sqlite3.Error, asyncpg.PostgresError, OSError) as error:
            await self._require_writable()
            if is_disk_full(error):
                raise _unwritable(str(error)) from error
            raise

    async def _run(self, wanted: Wanted, watch: Watch) -> list[FetchedChat]:
        task = _Task(
            operations=self._operations,
            add=self._add,
            artifacts=self._artifacts,
            wanted=wanted,
            watch=watch,
            unfinished=await _find_unfinished(self._operations),
            queue=lambda execution_id: self._own.put([Queued(execution_id)]),
            poll=(_POLL, _POLL),
            patience=self._patience,
        )
        self._chats = [_Chat(task, target) for target in wanted.targets]
        async with self._run_worker() as work:
            chats, guard = _fetch_all(self._chats, self._parallelism), asyncio.create_task(self._guard())
            try:
                all_three: list[asyncio.Future[Any]] = [work, chats, guard]
                await asyncio.wait(all_three, return_when=asyncio.FIRST_COMPLETED)
                if chats.done():
                    return chats.result()
                if guard.done():
                    guard.result()
                # A worker that ends by itself has failed.
                work.result()
                return await chats
            finally:
                guard.cancel()
                await asyncio.wait([guard])
                await _abandon(chats)

    async def _guard(self) -> None:
        """Raise when the database cannot be written: a worker would retry to store an outcome for ever."""
        while True:
            await self._trouble.wait(_SWEEP * 3600)
            await self._require_writable()

    async def _require_writable(self) -> None:
        problem = await WriteCheck(self._resources.database).problem()
        if problem is not None:
            raise _unwritable(problem)

    async def _add(self, spec: JobSpec) -> Job:
        settings = self._resources.settings
        return await self._operations.add_job(
            replace(spec, timeout=settings.scheduler_job_timeout, retry_max=settings.parser_retry_max)
        )

    @asynccontextmanager
    async def _run_worker(self) -> AsyncIterator["asyncio.Task[None]"]:
        """Run a worker for the executions of this fetch, and for no others, until the block ends."""
        resources, leaving = self._resources, asyncio.Event()
        changes = {
            "scheduler_worker_pool_size": self._parallelism,
            "shutdown_grace": min(resources.settings.shutdown_grace, _GRACE),
        }
        settings = resources.settings.model_copy(update=changes)
        role = WorkerRole(replace(resources, settings=settings), self._sources, name="fetch")
        listeners = [
            resources.events.listen(BatchKept, self._count),
            resources.events.listen(ExecutionSettled, self._ring),
            resources.events.listen(StepFailed, lambda _: self._trouble.ring()),
            *self._patience.listen(resources.events),
        ]
        await role.announce()
        work = asyncio.create_task(role.run(leaving))
        try:
            async with run_services([Service("sweep", self._sweep, _SWEEP)], resources.events):
                try:
                    yield work
                finally:
                    leaving.set()
                    await work
        finally:
            # A Pushgateway keeps the metrics of a fetch, which has no slots any more.
            resources.events.emit(SlotsChanged(0, 0))
            for stop in listeners:
                stop()

    def _count(self, kept: BatchKept) -> None:
        for chat in self._chats:
            chat.count(kept)

    async def _sweep(self) -> None:
        """Wake and rescue executions while there is no leader to do it."""
        resources = self._resources
        await self._deaths.step()
        if await resources.leases.holder(resources.settings.scheduler_leader_key) is None:
            await self._shared.put(await resources.upkeep.wake(limit=_AT_ONCE), again=True)
            rescued = await resources.upkeep.rescue(limit=_AT_ONCE, rescue_max=resources.settings.execution_rescue_max)
            await self._shared.put(rescued.queued, again=True)

    def _ring(self, _: ExecutionSettled) -> None:
        for chat in self._chats:
            chat.bell.ring()


class RemoteFetch:
    """Fetches through a server: its workers read the days, and this process writes the files."""

    def __init__(
        self,
        operations: AsyncOperations,
        folder: Path,
        *,
        parallelism: int,
        schema_version: str = "1.0.0",
        give_up_after: timedelta = timedelta(minutes=5),
    ) -> None:
        self._patience = Patience(give_up_after)
        self._operations, self._folder = operations, folder
        self._parallelism, self._schema_version = parallelism, schema_version

    async def run(self, wanted: Wanted, watch: Watch) -> list[FetchedChat]:
        """Fetch everything, as `Fetch.run`. After a cancellation the server completes the days that were started."""
        async with read_posts(self._operations) as posts:
            task = _Task(
                operations=self._operations,
                add=lambda spec: self._operations.add_job(columns_to_send(spec, ("timeout_seconds", "retry_max"))),
                artifacts=Artifacts(posts, self._folder, schema_version=self._schema_version),
                wanted=wanted,
                watch=watch,
                unfinished=await _find_unfinished(self._operations),
                queue=None,
                poll=_POLL_SERVER,
                patience=self._patience,
            )
            chats = _fetch_all([_Chat(task, target) for target in wanted.targets], self._parallelism)
            try:
                return await chats
            finally:
                await _abandon(chats)


async def _find_unfinished(operations: AsyncOperations) -> frozenset[str]:
    return frozenset([job.name async for job in operations.each_job(JobFilter(tag=TAG))])


def _fetch_all(chats: Sequence["_Chat"], parallelism: int) -> "asyncio.Future[list[FetchedChat]]":
    room = asyncio.Semaphore(parallelism)

    async def one(chat: _Chat) -> FetchedChat:
        async with room:
            return await chat.fetch()

    return asyncio.gather(*(one(chat) for chat in chats))


class _Task(Struct, frozen=True, kw_only=True):
    """The common data of all chats of a fetch."""

    operations: AsyncOperations
    add: Callable[[JobSpec], Awaitable[Job]]
    artifacts: Artifacts
    wanted: Wanted
    watch: Watch
    unfinished: frozenset[str]
    """The names of jobs that an earlier fetch did not finish."""
    queue: Callable[[str], Awaitable[object]] | None
    """Queues an execution for the worker of this process; None: a server does that."""
    poll: tuple[timedelta, timedelta]
    """The first and the longest interval between two reads of an execution."""
    patience: Patience


class _Chat:
    """Fetches the days of one chat in order."""

    def __init__(self, task: _Task, target: str) -> None:
        self._task, self._operations, self._wanted, self._target = task, task.operations, task.wanted, target
        self._done: list[FetchedDay] = []
        self.bell, self._kept = Bell(), Counter[str]()
        self._streams = {str(self._wanted.spec(target, day).stream) for day in self._wanted.days}

    def count(self, kept: BatchKept) -> None:
        """Count the new messages of a batch, if it belongs to this chat."""
        if kept.stream in self._streams:
            self._kept[kept.stream] += kept.new

    async def fetch(self) -> FetchedChat:
        """Fetch all days, or those before the first one that fails: the next ones would fail the same way."""
        for day in self._wanted.days:
            spec = self._wanted.spec(self._target, day)
            self._report(day)
            state, messages = await self._state(spec), 0
            # A complete day whose execution was not settled is settled now, without a call to Telegram.
            if state is None or not parse_mark(state.value).complete or spec.name in self._task.unfinished:
                ended = await self._read(spec, day)
                if ended.state is not State.DONE:
                    why = self._task.patience.verdict or ended.error_message or ended.reason or ended.state
                    return FetchedChat(
                        target=self._target, days=tuple(self._done), error=why, execution_id=ended.execution_id
                    )
                state, messages = await self._state(spec), ended.items_new
                self._kept[str(spec.stream)] = max(messages, self._kept[str(spec.stream)])
            assert state is not None
            self._done.append(await self._write(state, day, messages))
            self._report(day)
        return FetchedChat(target=self._target, days=tuple(self._done))

    async def _state(self, spec: JobSpec) -> StreamState | None:
        try:
            return await self._operations.watermark(str(spec.stream))
        except NotFound:
            return None

    async def _read(self, spec: JobSpec, day: date) -> Execution:
        """Read a day, however often it has to wait. Return the execution when it has ended or patience is over."""
        job = await self._add_job(spec)
        execution_id = await self._start(job)
        pause, longest = self._task.poll
        while True:
            execution = await self._operations.execution(execution_id)
            self._task.patience.look(execution)
            if execution.state in ENDED or self._task.patience.verdict is not None:
                break
            if execution.state is State.QUEUED and self._task.queue is not None:
                await self._task.queue(execution_id)
            why = await self._explain(job, execution) if pause == longest else None
            self._report(day, execution, why or self._task.patience.warning)
            await self.bell.wait(pause)
            pause = min(2 * pause, longest)
        if execution.state is State.DONE:
            # The watermark stays. Jobs of every fetched day would clutter the list of jobs.
            await self._operations.remove_job(job.job_id)
        return execution

    async def _explain(self, job: Job, execution: Execution) -> str | None:
        """Return why the workers of a server do not run a queued execution."""
        if self._task.queue is not None or execution.state is not State.QUEUED:
            return None
        return (await self._operations.explain(job.job_id)).sentence

    async def _add_job(self, spec: JobSpec) -> Job:
        try:
            return await self._task.add(spec)
        except Conflict:
            job = await self._operations.job(str(spec.name))
        if job.stream != spec.stream:
            raise Conflict(
                f"the job {job.name} collects {job.stream}, not {spec.stream}",
                hint=f"rename or remove it first: floodmark rm {job.name}",
            )
        if job.account != spec.account:
            job = await self._operations.change_job(job.job_id, {"account": spec.account})
        # A new fetch also resumes a job that was paused.
        return await self._operations.resume_job(job.job_id) if job.paused else job

    async def _start(self, job: Job) -> str:
        """Return the id of an unfinished execution, or start a new one."""
        unfinished = (await self._operations.executions(job=job.job_id, states=ACTIVE)).items
        if unfinished:
            return unfinished[-1].execution_id
        return (await self._operations.run_job(job.job_id)).execution_id

    async def _write(self, state: StreamState, day: date, messages: int) -> FetchedDay:
        of, mark = ChatDay(str(state.items_stream), day), parse_mark(state.value)
        written = await self._task.artifacts.write(of)
        return FetchedDay(
            day=day,
            messages=messages,
            last_processed_msg_id=mark.id,
            complete=mark.complete,
            file=path_of(self._task.artifacts.folder, of),
            written=written,
        )

    def _report(self, day: date, execution: Execution | None = None, why: str | None = None) -> None:
        waiting = execution if execution is not None and execution.state is State.WAITING else None
        self._task.watch(
            Progress(
                target=self._target,
                day=day,
                days_done=len(self._done),
                messages=self._kept.total(),
                waits_until=None if waiting is None else waiting.not_before,
                reason=why if waiting is None else waiting.reason,
            )
        )


class _OwnQueue:
    """A queue in memory for the executions of one fetch; everything else is in their rows."""

    def __init__(self, leasing: Leasing) -> None:
        self._leasing = leasing
        self._ids: dict[str, None] = {}
        self._bell = Bell()

    async def put(self, executions: Sequence[Queued], *, again: bool = False) -> int:
        """Make them available here. Putting the same id again changes nothing."""
        self._ids |= dict.fromkeys(queued.execution_id for queued in executions)
        self._bell.ring()
        return 0

    async def depth(self) -> Mapping[Priority, int]:
        """Return the number of waiting executions."""
        return {Priority.NORMAL: len(self._ids)}

    async def hand_on(self, worker: str) -> None:
        """Do nothing: the queue keeps nothing for a worker."""

    async def lease(self, limit: int, *, worker: str, ttl: timedelta, wait: timedelta) -> list[Lease]:
        """Claim executions. Those that may not start now or run elsewhere are left out; `_Chat` polls them."""
        if not self._ids:
            await self._bell.wait(wait)
        ids = list(self._ids)[:limit]
        for execution_id in ids:
            del self._ids[execution_id]
        return await self._leasing.claim(ids, worker=worker, ttl=ttl) if ids else []

    async def offer(self, offers: Sequence[Offer], *, within: timedelta) -> list[bool]:
        """Keep all leases: this process runs its executions itself."""
        return [False] * len(offers)

    async def lease_offers(self, limit: int, *, worker: str, ttl: timedelta, within: timedelta) -> list[Lease]:
        """Return nothing: nothing is offered to this process."""
        return []

    async def extend(self, leases: Sequence[Lease], *, ttl: timedelta) -> Extended:
        """Extend the leases by `ttl`."""
        return await self._leasing.extend(leases, ttl=ttl)

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Store the outcomes. The workers of the installation find the executions that may start now."""
        return (await self._leasing.settle(settlements)).mine

    async def leave(self, worker: str) -> None:
        """Do nothing: the queue keeps nothing for a worker."""


async def _abandon(chats: "asyncio.Future[list[FetchedChat]]") -> None:
    """Cancel the chats, and ignore their errors."""
    chats.cancel()
    await asyncio.wait([chats])
    if not chats.cancelled():
        chats.exception()


def _unwritable(why: str) -> Unavailable:
    return Unavailable(
        f"the database cannot be written: {why}",
        hint="free disk space, then run the same command again: it continues where it stopped",
    )
