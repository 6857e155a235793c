"""Fetch certain days of certain chats now: ordinary jobs and executions, run by a worker of our own, or by a server's.

For each chat and day there is a job of the stream `fetch:<target>:<day>`, so limits, fences, retries and watermarks
hold as for any other, and whatever was interrupted goes on where it stood. A job is removed once its day was read; its
watermark stays, and says whether there is anything left to do.
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
from floodmark.store.port import Extended, Leasing, Settlement
from floodmark.wiring.resources import Resources
from floodmark.wiring.write_check import WriteCheck, is_disk_full

from .fetch_patience import Patience
from .scheduler_role import death_watch
from .worker_role import WorkerRole

TAG = "fetch"

# Our own worker tells when it has settled something; others are looked after.
_LOOK, _SWEEP = timedelta(milliseconds=250), timedelta(seconds=1)
# Of a server: soon at first, because many days are short, then ever more seldom.
_LOOK_FAR = (timedelta(milliseconds=100), timedelta(seconds=2))
_ACTOR = Actor(who="fetch")
_AT_ONCE = 100
# Someone sits at the terminal and has pressed Ctrl-C: what is kept is kept, and the rest is read the next time.
_GRACE = timedelta(seconds=4)


class Wanted(Struct, frozen=True, kw_only=True):
    """What to fetch: chats in their one form, and days, both ends included."""

    targets: tuple[str, ...]
    first: date
    last: date
    account: str | None = None
    tenant_id: str | None = None

    @property
    def days(self) -> list[date]:
        """Every day, in order."""
        return [self.first + timedelta(days=n) for n in range((self.last - self.first).days + 1)]

    def spec(self, target: str, day: date) -> JobSpec:
        """The job that reads one day. Tenants do not share one: what one has collected the other has not."""
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
    """Where one chat stands right now. `messages`: how many were new so far, on all its days."""

    target: str
    day: date
    days_done: int
    messages: int
    waits_until: datetime | None = None
    reason: str | None = None


class FetchedDay(Struct, frozen=True, kw_only=True):
    """A day that is read and written."""

    day: date
    messages: int
    """How many were new."""
    last_processed_msg_id: int | None
    complete: bool
    """The day is over, and read to its end."""
    file: Path
    written: bool
    """Whether the file is new or has changed."""


class FetchedChat(Struct, frozen=True, kw_only=True):
    """How it went with one chat. `error` says why the rest of its days are missing."""

    target: str
    days: tuple[FetchedDay, ...]
    error: str | None = None
    execution_id: str | None = None


Watch = Callable[[Progress], None]


class Fetch:
    """Fetches several chats at once, and the days of each in order. Cancel `run` to stop in good order."""

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
        self._own, self._shared = _Own(resources.leasing), resources.queue
        self._deaths = death_watch(resources)
        resources = replace(resources, queue=self._own)
        self._resources, self._sources, self._parallelism = resources, sources, parallelism
        self._operations, self._chats = LocalOperations(resources, actor), list[_Chat]()
        self._artifacts = Artifacts(Posts(resources.database), folder, schema_version=resources.settings.schema_version)

    async def run(self, wanted: Wanted, watch: Watch) -> list[FetchedChat]:
        """Until everything is fetched or has failed; in the order in which the chats were named.

        `Unavailable` says that the database or the folder cannot be written.
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
            left=await _left(self._operations),
            queued=lambda execution_id: self._own.put([Queued(execution_id)]),
            look=(_LOOK, _LOOK),
            patience=self._patience,
        )
        self._chats = [_Chat(task, target) for target in wanted.targets]
        async with self._working() as work:
            chats, guard = _together(self._chats, self._parallelism), asyncio.create_task(self._guard())
            try:
                all_three: list[asyncio.Future[Any]] = [work, chats, guard]
                await asyncio.wait(all_three, return_when=asyncio.FIRST_COMPLETED)
                if chats.done():
                    return chats.result()
                if guard.done():
                    guard.result()
                # A worker that ends before it is told to has failed.
                work.result()
                return await chats
            finally:
                guard.cancel()
                await asyncio.wait([guard])
                await _abandon(chats)

    async def _guard(self) -> None:
        """Raise once the database cannot be written: a worker would try for ever to write an outcome down."""
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
    async def _working(self) -> AsyncIterator["asyncio.Task[None]"]:
        """A worker that runs what we ask for and nothing else, until the block ends."""
        resources, leaving = self._resources, asyncio.Event()
        changes = {
            "scheduler_worker_pool_size": self._parallelism,
            "shutdown_grace": min(resources.settings.shutdown_grace, _GRACE),
        }
        settings = resources.settings.model_copy(update=changes)
        role = WorkerRole(replace(resources, settings=settings), self._sources)
        deaf = [resources.events.listen(BatchKept, self._count), resources.events.listen(ExecutionSettled, self._ring)]
        deaf += [
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
            # The metrics of a fetch outlive it in a Pushgateway, its slots do not.
            resources.events.emit(SlotsChanged(0, 0))
            for stop in deaf:
                stop()

    def _count(self, kept: BatchKept) -> None:
        for chat in self._chats:
            chat.count(kept)

    async def _sweep(self) -> None:
        """What the leader does for executions that wait or were left lying, as long as there is none."""
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
    """The same from a server: its workers read the days, and the files are written here."""

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
        """Until everything is fetched or has failed. Stopped, the server goes on with the days that were begun."""
        async with read_posts(self._operations) as posts:
            task = _Task(
                operations=self._operations,
                add=lambda spec: self._operations.add_job(columns_to_send(spec, ("timeout_seconds", "retry_max"))),
                artifacts=Artifacts(posts, self._folder, schema_version=self._schema_version),
                wanted=wanted,
                watch=watch,
                left=await _left(self._operations),
                queued=None,
                look=_LOOK_FAR,
                patience=self._patience,
            )
            chats = _together([_Chat(task, target) for target in wanted.targets], self._parallelism)
            try:
                return await chats
            finally:
                await _abandon(chats)


async def _left(operations: AsyncOperations) -> frozenset[str]:
    """The jobs of earlier fetches that did not come to their end."""
    return frozenset([job.name async for job in operations.each_job(JobFilter(tag=TAG))])


def _together(chats: Sequence["_Chat"], parallelism: int) -> "asyncio.Future[list[FetchedChat]]":
    room = asyncio.Semaphore(parallelism)

    async def one(chat: _Chat) -> FetchedChat:
        async with room:
            return await chat.fetch()

    return asyncio.gather(*(one(chat) for chat in chats))


class _Task(Struct, frozen=True, kw_only=True):
    """What all chats of a fetch have in common."""

    operations: AsyncOperations
    add: Callable[[JobSpec], Awaitable[Job]]
    artifacts: Artifacts
    wanted: Wanted
    watch: Watch
    left: frozenset[str]
    """The names of jobs that an earlier fetch has left unfinished."""
    queued: Callable[[str], Awaitable[object]] | None
    """Told of an execution that waits to be run; None: others see to it."""
    look: tuple[timedelta, timedelta]
    """How often an execution is looked after, at first and at last."""
    patience: Patience


class _Chat:
    """The days of one chat, one after the other."""

    def __init__(self, task: _Task, target: str) -> None:
        self._task, self._operations, self._wanted, self._target = task, task.operations, task.wanted, target
        self._done: list[FetchedDay] = []
        self.bell, self._kept = Bell(), Counter[str]()
        self._streams = {str(self._wanted.spec(target, day).stream) for day in self._wanted.days}

    def count(self, kept: BatchKept) -> None:
        """A batch was kept, perhaps one of ours."""
        if kept.stream in self._streams:
            self._kept[kept.stream] += kept.new

    async def fetch(self) -> FetchedChat:
        """All days, or those before the first that could not be had: the next ones would fail like it."""
        for day in self._wanted.days:
            spec = self._wanted.spec(self._target, day)
            self._tell(day)
            state, messages = await self._state(spec), 0
            # One that is read to its end but was not settled is brought to an end, without asking anyone.
            if state is None or not parse_mark(state.value).complete or spec.name in self._task.left:
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
            self._tell(day)
        return FetchedChat(target=self._target, days=tuple(self._done))

    async def _state(self, spec: JobSpec) -> StreamState | None:
        try:
            return await self._operations.watermark(str(spec.stream))
        except NotFound:
            return None

    async def _read(self, spec: JobSpec, day: date) -> Execution:
        """Have the day read, however often it has to wait. Returns the execution that ended or was given up."""
        job = await self._job(spec)
        execution_id = await self._asked(job)
        pause, longest = self._task.look
        while True:
            execution = await self._operations.execution(execution_id)
            self._task.patience.look(execution)
            if execution.state in ENDED or self._task.patience.verdict is not None:
                break
            if execution.state is State.QUEUED and self._task.queued is not None:
                await self._task.queued(execution_id)
            why = await self._why(job, execution) if pause == longest else None
            self._tell(day, execution, why or self._task.patience.warning)
            await self.bell.wait(pause)
            pause = min(2 * pause, longest)
        if execution.state is State.DONE:
            # Its watermark stays; a job for each day that was ever fetched would bury the others.
            await self._operations.remove_job(job.job_id)
        return execution

    async def _why(self, job: Job, execution: Execution) -> str | None:
        """Why nobody runs it, when that is for others to do."""
        if self._task.queued is not None or execution.state is not State.QUEUED:
            return None
        return (await self._operations.explain(job.job_id)).sentence

    async def _job(self, spec: JobSpec) -> Job:
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
        # Someone wants it again, whatever stood in its way the last time.
        return await self._operations.resume_job(job.job_id) if job.paused else job

    async def _asked(self, job: Job) -> str:
        """The execution to wait for: one that was left unfinished goes on, else there is a new one."""
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

    def _tell(self, day: date, execution: Execution | None = None, why: str | None = None) -> None:
        is_waiting = execution is not None and execution.state is State.WAITING
        self._task.watch(
            Progress(
                target=self._target,
                day=day,
                days_done=len(self._done),
                messages=self._kept.total(),
                waits_until=execution.not_before if execution is not None and is_waiting else None,
                reason=execution.reason if execution is not None and is_waiting else why,
            )
        )


class _Own:
    """A queue of nothing but the executions that we ask for. Their rows are all there is to it."""

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
        """How many wait."""
        return {Priority.NORMAL: len(self._ids)}

    async def hand_on(self, worker: str) -> None:
        """Nothing is kept for a worker."""

    async def lease(self, limit: int, *, worker: str, ttl: timedelta, wait: timedelta) -> list[Lease]:
        """Claim them. What may not start now, or was taken by another worker, is looked after by whoever asked."""
        if not self._ids:
            await self._bell.wait(wait)
        ids = list(self._ids)[:limit]
        for execution_id in ids:
            del self._ids[execution_id]
        return await self._leasing.claim(ids, worker=worker, ttl=ttl) if ids else []

    async def extend(self, leases: Sequence[Lease], *, ttl: timedelta) -> Extended:
        """Keep them for another `ttl`."""
        return await self._leasing.extend(leases, ttl=ttl)

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Write the outcomes. What they let start is found by the workers of the installation."""
        return (await self._leasing.settle(settlements)).mine

    async def leave(self, worker: str) -> None:
        """Nothing is kept for a worker."""


async def _abandon(chats: "asyncio.Future[list[FetchedChat]]") -> None:
    """End those that are still under way; what they made of it is nobody's business any more."""
    chats.cancel()
    await asyncio.wait([chats])
    if not chats.cancelled():
        chats.exception()


def _unwritable(why: str) -> Unavailable:
    return Unavailable(
        f"the database cannot be written: {why}",
        hint="make room on its disk, then type the same command again: it goes on where it stopped",
    )
