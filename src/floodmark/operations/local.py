"""The verbs on the store of this installation, with an audit of every change."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, TypeVar

from msgspec.structs import asdict

from floodmark.coordination.signals.port import Topic
from floodmark.errors import FloodmarkError, NotFound
from floodmark.model.execution import Execution, State
from floodmark.model.job import Job, Priority
from floodmark.model.shapes import job_shape
from floodmark.model.spec import JobSpec
from floodmark.observability.tracing import triggered
from floodmark.outbound.breakers import BreakerRow, Breakers
from floodmark.outbound.limits import LimitRow, Limits
from floodmark.rules.explain import Explanation, explain
from floodmark.security.vault import Vault
from floodmark.sources.python import UnknownCollector
from floodmark.sources.telegram.accounts import AccountRow, Accounts
from floodmark.store.audit import Actor, AuditLog, AuditRow
from floodmark.store.dead_letters import DeadLetters, Group
from floodmark.store.events import EventLog, ItemHistory, StoredItem
from floodmark.store.fleet import Fleet, WorkerInfo
from floodmark.store.history import History
from floodmark.store.jobs import Jobs
from floodmark.store.port import Event
from floodmark.store.staleness import Staleness
from floodmark.store.watermarks import StreamState, Watermarks
from floodmark.wiring.resources import Resources

from .doctor import Finding, doctor_of
from .health import health_of, scheduler_status
from .overview import MOST_SHOWN, Glance, Overview
from .port import Asked, JobFilter, Letters
from .views import Views

T = TypeVar("T")

_ANY = JobFilter()
# What changes by itself with every change of a job, and says nothing about it.
_BOOKKEEPING = ("version", "updated_at", "planned_until")


class LocalOffice:
    """The office of the process at hand. `actor` is who asks and tells."""

    def __init__(self, parts: Resources, actor: Actor) -> None:
        self.parts, self.actor = parts, actor
        given = (parts.database, parts.clock)
        self._jobs, self._history, self._letters = Jobs(*given), History(*given), DeadLetters(*given)
        self._watermarks, self._log, self._fleet = Watermarks(*given), EventLog(*given), Fleet(*given)
        self._limits, self._breakers, self._views = Limits(*given), Breakers(*given), Views(*given)
        self._audit, self._glance = AuditLog(*given), Glance(*given)
        self._staleness = Staleness(*given, telegram_max_age=timedelta(hours=parts.settings.lpa_max_age_hours))

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
        return explain(await self._views.load(await self._jobs.get(text), leader=await self.leader()))

    async def executions(
        self,
        *,
        job: str | None = None,
        states: Sequence[State] | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[Execution]:
        """Newest first, also of jobs that are gone. The next page is `before` the id of the last one."""
        return await self._history.page(await self._job_id(job), states, before, limit)

    async def recent(self, hours: float, limit: int = 100) -> list[Execution]:
        """What was written down, died or was unfinished within the last hours, newest first."""
        return await self._history.get_recent_executions(hours, limit)

    async def execution(self, execution_id: str) -> Execution:
        """One execution; the beginning of its id is enough."""
        return await self._history.get_execution(execution_id)

    async def statistics(self, days: float, job: str | None = None) -> dict[str, Any]:
        """How the executions of the last days went."""
        job_id = None if job is None else (await self._jobs.get(job)).job_id
        return await self._history.get_execution_statistics(days, job_id)

    async def letters(
        self, *, job: str | None = None, before: Execution | None = None, limit: int = 50
    ) -> list[Execution]:
        """Executions that failed for good, newest first."""
        return await self._letters.page(await self._job_id(job), before, limit)

    async def letter_groups(self, job: str | None = None) -> list[Group]:
        """The same by error, most frequent first."""
        return await self._letters.groups(await self._job_id(job))

    async def watermarks(self, *, after: str | None = None, limit: int = 100) -> list[StreamState]:
        """How far each stream is collected, in order of name."""
        return await self._watermarks.page(after, limit)

    async def watermark(self, text: str) -> StreamState:
        """How far one stream is collected."""
        return await self._watermarks.show(await self._stream(text))

    async def items_stream(self, text: str) -> str:
        """The stream that holds the items of a stream or job: of a channel, under its number, whatever its name."""
        if await self._watermarks.holds_items(text):
            return text
        name = await self._stream(text)
        try:
            state = await self._watermarks.show(name)
        except NotFound:
            # A job that has not run yet.
            return name
        return state.items_stream or state.stream

    async def items(self, stream: str, *, after: str | None = None, limit: int = 100) -> list[StoredItem]:
        """Items of a stream in order of key. The next page is `after` the key of the last one."""
        return await self._log.items(await self.items_stream(stream), after, limit)

    async def newest_items(
        self, stream: str, *, since: datetime | None = None, before: str | None = None, limit: int = 100
    ) -> list[StoredItem]:
        """Items of a stream, newest first. The next page is `before` the key of the last one."""
        name = await self.items_stream(stream)
        return await self._log.newest(name, since=since, before_key=before, limit=limit)

    async def items_between(
        self,
        stream: str,
        since: datetime | None,
        before: datetime | None,
        *,
        after: tuple[datetime, str] | None = None,
        limit: int = 100,
    ) -> list[StoredItem]:
        """What happened in a time, in order of that. The next page is `after` the time and key of the last one."""
        name = await self.items_stream(stream)
        return await self._log.items_between(name, since, before, after=after, limit=limit)

    async def item(self, stream: str, key: str) -> ItemHistory:
        """One item with its revisions."""
        return await self._log.item(await self.items_stream(stream), key)

    async def count_items(self, stream: str) -> int:
        """How many items a stream holds."""
        return await self._log.count(await self.items_stream(stream))

    async def events(self, *, after: int = 0, limit: int = 100, stream: str | None = None) -> list[Event]:
        """Events behind a position, in order."""
        return await self._log.after(after, limit, None if stream is None else await self.items_stream(stream))

    async def last_position(self) -> int:
        """The position of the newest event."""
        return await self._log.last_position()

    async def limits(self, *, with_past: bool = False, limit: int = 100) -> list[LimitRow]:
        """What has to wait, the longest first."""
        return await self._limits.page(with_past=with_past, limit=limit)

    async def breakers(self, *, limit: int = 100) -> list[BreakerRow]:
        """The breakers that have ever had something to do."""
        return await self._breakers.page(limit=limit)

    async def accounts(self, *, after: str | None = None, limit: int = 100) -> list[AccountRow]:
        """The accounts that sources log in with, in order of name, without their secrets."""
        store = Accounts(self.parts.database, self.parts.clock, Vault.of(self.parts.settings))
        return await store.page(after, limit)

    async def workers(self) -> list[WorkerInfo]:
        """The processes of the fleet."""
        return await self._fleet.workers()

    async def leader(self) -> str | None:
        """Who schedules."""
        return await self.parts.leases.holder(self.parts.settings.scheduler_leader_key)

    async def is_draining(self) -> bool:
        """Whether the workers were told to take no more work."""
        return await self._fleet.is_draining()

    async def overview(self) -> Overview:
        """Everything at a glance; cheap enough to be asked every second."""
        executions, depth = await self._glance.executions(), await self.parts.queue.depth()
        freshness, measured_at = await self._glance.freshness()
        tick, now = await self._fleet.last_tick_and_now()
        return Overview(
            **asdict(executions),
            leader=await self.leader(),
            scheduler=scheduler_status(tick, now),
            draining=await self._fleet.is_draining(),
            workers=await self._fleet.workers(),
            queue={priority.name.lower(): depth.get(priority, 0) for priority in Priority},
            limits=await self._limits.page(limit=MOST_SHOWN),
            breakers=[row for row in await self._breakers.page(limit=MOST_SHOWN) if row.state != "closed"],
            freshness=freshness,
            measured_at=measured_at,
        )

    async def health(self) -> dict[str, Any]:
        """Is everything well?"""
        return await health_of(self.parts)

    async def examine(self) -> list[Finding]:
        """Does everything answer, does everything hold? In the order in which one would mend it."""
        return await doctor_of(self.parts).check()

    async def audit(self, *, what: str | None = None, before: int | None = None, limit: int = 50) -> list[AuditRow]:
        """Who changed what, newest first."""
        return await self._audit.page(what=what, before=before, limit=limit)

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

    async def cancel_execution(self, execution_id: str) -> Execution:
        """End one execution: at once if it has not started, else as soon as its worker hears of it."""
        async with self.changing():
            before = await self._history.get_execution(execution_id)
            after = await self._jobs.cancel_execution(before)
            was, now = {"state": before.state}, {"state": after.state}
            await self.note("execution.cancelled", f"execution:{after.execution_id}", before=was, after=now)
        await self.parts.signals.notify(Topic.CANCEL)
        return after

    async def cleanup_old_executions(self, days: float) -> int:
        """Delete executions that ended and were written down more than `days` ago; how many. The unfinished stay."""
        deleted = await self._history.cleanup_old_executions(days)
        async with self.changing():
            await self.note("executions.cleaned", "executions", after={"days": days, "deleted": deleted})
        return deleted

    async def retry_letters(self, which: Letters) -> int:
        """Run dead letters again; how many."""
        async with self.changing():
            job, patience = await self._job_id(which.job), self.parts.settings.queue_patience
            queued = await self._letters.retry(which.ids, group=which.group, job=job, patience=patience)
            retried = [one.execution_id for one in queued]
            await self.note("letters.retried", _letters_of(which), after={"executions": retried})
        # Again: the worker that gave it up may not have taken its old entry away yet.
        await self.parts.queue.put(queued, again=True)
        return len(queued)

    async def drop_letters(self, which: Letters) -> int:
        """Take dead letters off the list; how many."""
        async with self.changing():
            count = await self._letters.drop(which.ids, group=which.group, job=await self._job_id(which.job))
            await self.note("letters.dropped", _letters_of(which), after={"count": count})
        return count

    async def set_watermark(self, text: str, value: Mapping[str, Any]) -> StreamState:
        """Go on from there."""
        async with self.changing():
            stream = await self._stream(text)
            before = await self._watermark(stream)
            after = await self._watermarks.set(stream, value)
            was, now = {"value": before}, {"value": after.value}
            await self.note("watermark.set", f"stream:{stream}", before=was, after=now)
        return after

    async def reset_watermark(self, text: str) -> StreamState:
        """Begin again."""
        async with self.changing():
            stream = await self._stream(text)
            before = await self._watermark(stream)
            after = await self._watermarks.reset(stream)
            await self.note("watermark.reset", f"stream:{stream}", before={"value": before}, after={"value": None})
        return after

    async def clear_limit(self, key: str) -> LimitRow:
        """Lift a limit; what it was."""
        async with self.changing():
            limit = await self._limits.clear(key)
            await self.note("limit.cleared", f"limit:{key}", before={"until": limit.until, "reason": limit.reason})
        return limit

    async def set_limit(self, key: str, seconds: float, reason: str) -> LimitRow:
        """Let everything under a key wait."""
        async with self.changing():
            await self._limits.set(key, timedelta(seconds=seconds), reason)
            limit = await self._limits.show(key)
            await self.note("limit.set", f"limit:{key}", after={"until": limit.until, "reason": limit.reason})
        return limit

    async def reset_breaker(self, key: str) -> BreakerRow:
        """Close a breaker; what it was."""
        async with self.changing():
            before = await self._breakers.reset(key)
            was, now = {"state": before.state}, {"state": "closed"}
            await self.note("breaker.reset", f"breaker:{key}", before=was, after=now)
        return before

    async def drain(self) -> None:
        """Let workers take no more work."""
        async with self.changing():
            await self._fleet.drain()
            await self.note("workers.drained", "workers", after={"draining": True})
        await self.parts.signals.notify(Topic.WORKERS)

    async def undrain(self) -> None:
        """Let them work again."""
        async with self.changing():
            await self._fleet.resume()
            await self.note("workers.resumed", "workers", after={"draining": False})
        await self.parts.signals.notify(Topic.WORKERS)

    def changing(self) -> AbstractAsyncContextManager[object]:
        """What is changed and noted within is committed together, or not at all. Tell others of it behind the block."""
        return self.parts.database.writing()

    async def note(
        self,
        action: str,
        what: str,
        *,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a change into the audit, within the `changing` that makes it."""
        await self._audit.record(self.actor, action, what, before=before, after=after)

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

    async def _watermark(self, stream: str) -> Any:
        try:
            return (await self._watermarks.show(stream)).value
        except NotFound:
            return None

    async def _job_id(self, text: str | None) -> str | None:
        """The id of a job that may have been deleted: what is no job is taken for its id or name."""
        if text is None:
            return None
        try:
            return (await self._jobs.get(text)).job_id
        except NotFound:
            return text

    async def _stream(self, text: str) -> str:
        """A stream by its name, or by the name of a job that collects it, or will."""
        if await self._watermarks.is_known(text):
            return text
        try:
            return (await self._jobs.get(text)).stream
        except FloodmarkError:
            # Told of the stream: whoever names one does not think of jobs.
            return (await self._watermarks.show(text)).stream


def _letters_of(which: Letters) -> str:
    if which.ids:
        return f"execution:{which.ids[0]}" if len(which.ids) == 1 else f"executions:{len(which.ids)}"
    return f"letters:{which.group}" if which.group is not None else f"job:{which.job}"
