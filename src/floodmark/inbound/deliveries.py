"""Deliveries from outside and their executions and hints, written in one transaction.

Tables: `trigger_deliveries`, `execution_hops` (both deleted after a while), `triggers` (its counts), `executions`,
`jobs` (the hints). In all processes together a trigger accepts a delivery id once, and a signature once.

Locks are taken in the same order as by workers and operators: triggers by id, executions, jobs by id.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import msgspec
from msgspec import Struct, field
from sqlalchemy import delete, select, update

from floodmark.errors import FloodmarkError
from floodmark.model.clean_text import clean
from floodmark.model.clock import Clock
from floodmark.model.execution import Hold, Queued, State
from floodmark.model.ids import new_id
from floodmark.model.job import SCHEDULER_VERSION, Priority, ScheduleType
from floodmark.repositories.hints import hint_jobs
from floodmark.repositories.repository import Repository
from floodmark.rules.dependencies import is_unmet
from floodmark.rules.holding import wait_for_execution, wait_for_success
from floodmark.rules.rank import rank_of
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.database import Database, encode_json
from floodmark.store.dialects import chunks, insert_into, present_moment
from floodmark.store.execution_rows import find_under_way
from floodmark.store.tables import execution_hops, job_dependencies, job_executions, jobs

from .tables import trigger_deliveries, triggers

_JOB_COLUMNS = (
    "job_id",
    "name",
    "priority",
    "paused",
    "pause_reason",
    "schedule_enabled",
    "schedule_type",
    "scheduler_version",
)
_MICROSECOND = timedelta(microseconds=1)
# A sink may be behind for days.
_HOPS_KEPT = timedelta(days=7)
_RESTING = "debounced: starts once for all deliveries that arrive until then"


class Replayed(FloodmarkError):
    """The signature was used before, with another delivery id or with none."""


class JobGroup(Struct, frozen=True):
    """Jobs to fire with the same params, by id. `indifferent`: those whose sources use none of the params."""

    params: Mapping[str, Any]
    job_ids: tuple[str, ...]
    indifferent: frozenset[str] = frozenset()

    def may_hint(self, job_id: str) -> bool:
        """Return whether a run on any schedule would be the same, so that an adaptive job needs only a hint."""
        return not self.params or job_id in self.indifferent


class Shot(Struct, frozen=True, kw_only=True):
    """The jobs that one trigger fires. `scope` is its id, or a digest of a pattern that only jobs name."""

    scope: str
    trigger: str
    """As stored with executions: `webhook:/sources/*/crawl`."""
    groups: tuple[JobGroup, ...]
    debounce: timedelta = timedelta()
    is_registered: bool = True
    unknown: tuple[str, ...] = ()
    """Jobs that it names and that do not exist."""


class FiredExecution(Struct, frozen=True, kw_only=True):
    """An execution that a delivery has created, or was folded into."""

    execution_id: str
    job_id: str
    job_name: str
    trigger: str
    state: State
    scheduled_for: datetime
    reason: str | None = None
    is_folded: bool = field(default=False, name="folded")


class HintedJob(Struct, frozen=True, kw_only=True):
    """An adaptive job that a delivery has hinted: the leader fires it as soon as its budget allows."""

    job_id: str
    job_name: str
    trigger: str


class Skipped(Struct, frozen=True, kw_only=True):
    """A job that was not fired, and the reason."""

    job: str
    reason: str


class Taken(Struct, frozen=True, kw_only=True):
    """The answer to a delivery. `debounced_until`: when its executions start, if they wait for a debounce."""

    delivery_id: str
    executions: tuple[FiredExecution, ...] = ()
    hinted: tuple[HintedJob, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    is_duplicate: bool = field(default=False, name="duplicate")
    debounced_until: datetime | None = None


class Outcome(Struct, frozen=True, kw_only=True):
    """The answer, the executions to put on the queue, and the numbers of new executions and of hinted jobs."""

    taken: Taken
    queued: Sequence[Queued]
    written: int
    hinted: int = 0


class _Part(Struct):
    """The result of one shot, while it is being built."""

    shot: Shot
    is_old: bool = False
    fires_at: datetime | None = None
    is_resting: bool = False
    executions: list[FiredExecution] = []
    hinted: list[HintedJob] = []
    skipped: list[Skipped] = []

    @property
    def debounced_until(self) -> datetime | None:
        # Hints are not debounced: a job has at most one, and its budget limits the runs.
        has_only_hints = bool(self.hinted) and not self.executions
        return self.fires_at if self.is_resting and not has_only_hints else None

    @property
    def answer(self) -> Taken:
        return Taken(
            delivery_id="",
            executions=tuple(self.executions),
            hinted=tuple(self.hinted),
            skipped=tuple(self.skipped),
            debounced_until=self.debounced_until,
        )


class Deliveries(Repository):
    """Turns deliveries into executions and hints, each once."""

    def __init__(self, database: Database, clock: Clock, *, patience: timedelta) -> None:
        super().__init__(database, clock)
        self._patience = patience

    async def take(
        self,
        subject: str,
        shots: Sequence[Shot],
        *,
        delivery_id: str | None = None,
        signature: str | None = None,
        traceparent: str | None = None,
        hops: int = 0,
    ) -> Outcome:
        """Write the executions and hints. A delivery that was taken before gets the same answer and fires nothing.

        `traceparent` is the parent of the executions in a trace; `hops` is stored with them. `Replayed` if the
        signature came with another delivery: then nothing was changed.
        """
        delivery_id = clean(delivery_id or new_id())
        if signature is not None:
            await self._refuse_replayed(shots, signature, delivery_id)
        async with self._database.writing() as connection:
            there = [
                shot for shot in sorted(shots, key=lambda shot: shot.scope) if await _lock_trigger(connection, shot)
            ]
            # Read under the locks: otherwise the second delivery could have the earlier time.
            now = await present_moment(self._database, self._clock, connection)
            parts: list[_Part] = []
            for shot in there:
                row = {
                    "trigger_id": shot.scope,
                    "delivery_id": delivery_id,
                    "signature": signature if shot.is_registered else None,
                    "subject": clean(subject),
                    "received_at": now,
                    "answer": {},
                }
                parts.append(await self._begin(connection, shot, row))
            new = [part for part in parts if not part.is_old]
            queued = await self._fire(connection, new, now, traceparent)
            await self._store_answers(connection, new, delivery_id, now)
            if hops:
                await self._store_hops(connection, new, hops, now)
        return _outcome(delivery_id, parts, queued)

    async def forget(self, older_than: timedelta) -> int:
        """Delete deliveries that can no longer be repeated; return how many."""
        async with self._database.writing() as connection:
            now = await present_moment(self._database, self._clock, connection)
            cell = trigger_deliveries.c
            gone = await connection.execute(delete(trigger_deliveries).where(cell.received_at < now - older_than))
            too_old = execution_hops.c.created_at < now - max(older_than, _HOPS_KEPT)
            await connection.execute(delete(execution_hops).where(too_old))
            return int(gone.rowcount)

    async def last_id(self, scope: str) -> str | None:
        """Return the id of the delivery that a trigger took last."""
        cell = trigger_deliveries.c
        query = select(cell.delivery_id).where(cell.trigger_id == scope).order_by(cell.received_at.desc()).limit(1)
        found: str | None = await self._database.fetch_value(query)
        return found

    async def _refuse_replayed(self, shots: Sequence[Shot], signature: str, delivery_id: str) -> None:
        """Refuse without writing: a repeated webhook of somebody else must not take the write lock."""
        cell, scopes = trigger_deliveries.c, [shot.scope for shot in shots if shot.is_registered]
        same = (cell.trigger_id.in_(scopes), cell.signature == signature, cell.delivery_id != delivery_id)
        if await self._database.fetch_value(select(cell.delivery_id).where(*same).limit(1)) is not None:
            raise _replayed()

    async def _begin(self, connection: AsyncConnection, shot: Shot, row: Mapping[str, Any]) -> _Part:
        """Claim the delivery for one trigger."""
        statement = insert_into(self._database, trigger_deliveries).values(**row).on_conflict_do_nothing()
        if (await connection.execute(statement.returning(trigger_deliveries.c.trigger_id))).scalar() is None:
            return await self._load_answer(connection, shot, row["delivery_id"])
        part = _Part(shot)
        if shot.debounce:
            await self._debounce(connection, part, row["subject"], row["received_at"])
        return part

    async def _load_answer(self, connection: AsyncConnection, shot: Shot, delivery_id: str) -> _Part:
        cell = trigger_deliveries.c
        query = select(cell.answer).where(cell.trigger_id == shot.scope, cell.delivery_id == delivery_id)
        answer = (await connection.execute(query)).scalar()
        if answer is None:
            raise _replayed()
        taken = msgspec.convert({"delivery_id": delivery_id, **answer}, Taken)
        return _Part(
            shot,
            is_old=True,
            executions=list(taken.executions),
            hinted=list(taken.hinted),
            skipped=list(taken.skipped),
            fires_at=taken.debounced_until,
            is_resting=taken.debounced_until is not None,
        )

    async def _debounce(self, connection: AsyncConnection, part: _Part, subject: str, now: datetime) -> None:
        """Decide when a trigger with a debounce fires, and fold the delivery into executions that wait for it."""
        cell = trigger_deliveries.c
        query = (
            select(cell.fires_at, cell.answer)
            .where(cell.trigger_id == part.shot.scope, cell.subject == subject, cell.fires_at.is_not(None))
            .order_by(cell.fires_at.desc(), cell.received_at.desc())
        )
        last = (await connection.execute(query.limit(1))).first()
        if last is None or last.fires_at + part.shot.debounce <= now:
            part.fires_at = now
            return
        part.is_resting = True
        if last.fires_at <= now:
            part.fires_at = last.fires_at + part.shot.debounce
            return
        part.fires_at = last.fires_at
        waiting = [entry["execution_id"] for entry in last.answer.get("executions", ())]
        for group in part.shot.groups:
            part.executions += await self._fold(connection, part.shot, group, waiting)

    async def _fold(
        self, connection: AsyncConnection, shot: Shot, group: JobGroup, waiting: Sequence[str]
    ) -> list[FiredExecution]:
        """Count this delivery in executions that have not started, and give them its params."""
        cell, folded = job_executions.c, []
        for some in chunks(waiting):
            statement = (
                update(job_executions)
                .where(cell.execution_id.in_(some), cell.job_id.in_(group.job_ids), cell.state == State.WAITING)
                .values(coalesced=cell.coalesced + 1, params=dict(group.params) or None)
                .returning(cell.execution_id, cell.job_id, cell.job_name, cell.state, cell.scheduled_for, cell.reason)
            )
            rows = await connection.execute(statement)
            folded += [
                FiredExecution(**{**row, "state": State(row["state"])}, trigger=shot.trigger, is_folded=True)
                for row in rows.mappings()
            ]
        return folded

    async def _store_answers(
        self, connection: AsyncConnection, parts: Sequence[_Part], delivery_id: str, now: datetime
    ) -> None:
        """Store the answer of each trigger, and count the delivery."""
        cell = trigger_deliveries.c
        for part in parts:
            answer = _stored_answer(part.answer)
            await connection.execute(
                update(trigger_deliveries)
                .where(cell.trigger_id == part.shot.scope, cell.delivery_id == delivery_id)
                .values(answer=answer, fires_at=part.fires_at)
            )
            if part.shot.is_registered:
                made, count = sum(not fired.is_folded for fired in part.executions), triggers.c
                counts = {
                    "fired": count.fired + 1,
                    "matched": count.matched + made,
                    "hinted": count.hinted + len(part.hinted),
                    "last_fired_at": now,
                }
                await connection.execute(update(triggers).where(count.trigger_id == part.shot.scope).values(**counts))

    async def _store_hops(self, connection: AsyncConnection, parts: Sequence[_Part], hops: int, now: datetime) -> None:
        """Store the hops of executions; those of a folded delivery count if they are more."""
        ids = {fired.execution_id for part in parts for fired in part.executions}
        for some in chunks(sorted(ids)):
            rows = [{"execution_id": execution_id, "hops": hops, "created_at": now} for execution_id in some]
            statement = insert_into(self._database, execution_hops).values(rows)
            is_more = execution_hops.c.hops < hops
            await connection.execute(
                statement.on_conflict_do_update(index_elements=["execution_id"], set_={"hops": hops}, where=is_more)
            )

    async def _fire(
        self, connection: AsyncConnection, parts: Sequence[_Part], now: datetime, traceparent: str | None
    ) -> list[Queued]:
        """Write the executions and hints of all parts; a job in several parts gets one."""
        wanted = _jobs_to_fire(parts)
        queued: list[Queued] = []
        for some in chunks(sorted(wanted)):
            found = await _lock_jobs(connection, some)
            others, unmet = await find_under_way(connection, some), await _find_unmet(connection, found)
            rows: list[dict[str, Any]] = []
            hinted: list[str] = []
            for job_id in some:
                part, group = wanted[job_id]
                job = found.get(job_id)
                reason = why_not(job)
                if job is None or reason is not None:
                    part.skipped.append(Skipped(job=job_id if job is None else job.name, reason=str(reason)))
                    continue
                if job.schedule_type == ScheduleType.ADAPTIVE and group.may_hint(job_id):
                    hinted.append(job_id)
                    part.hinted.append(HintedJob(job_id=job_id, job_name=job.name, trigger=part.shot.trigger))
                    continue
                row = {**self._row(job, part, group.params, now), "traceparent": traceparent}
                rows.append(_hold(row, others.get(job_id), unmet.get(job_id, ())))
            if hinted:
                await connection.execute(hint_jobs(jobs.c.job_id.in_(hinted), self._now()))
            for row in await self._insert(connection, rows, now):
                part, _ = wanted[row["job_id"]]
                part.executions.append(_make_fired(row))
                if row["state"] == State.QUEUED:
                    queued.append(Queued(row["execution_id"], Priority(row["priority"]), traceparent))
        return queued

    def _row(self, job: Any, part: _Part, params: Mapping[str, Any], now: datetime) -> dict[str, Any]:
        is_resting = part.is_resting
        return {
            "execution_id": new_id(),
            "job_id": job.job_id,
            "job_name": job.name,
            "state": State.WAITING if is_resting else State.QUEUED,
            "priority": job.priority,
            "trigger": part.shot.trigger,
            "params": dict(params) or None,
            "reason": _RESTING if is_resting else None,
            "hold": None,
            "not_before": part.fires_at if is_resting else None,
            "queue_rank": None if is_resting else rank_of(job.priority, now, self._patience),
            "created_at": now,
        }

    async def _insert(
        self, connection: AsyncConnection, rows: Sequence[dict[str, Any]], now: datetime
    ) -> list[dict[str, Any]]:
        """Write executions, each at the first microsecond from `now` on that is free for its job."""
        written: list[dict[str, Any]] = []
        left = {row["execution_id"]: row for row in rows}
        for step in count():
            if not left:
                break
            for row in left.values():
                row["scheduled_for"] = now + step * _MICROSECOND
            statement = insert_into(self._database, job_executions).values(list(left.values()))
            statement = statement.on_conflict_do_nothing(index_elements=["job_id", "scheduled_for"])
            made = await connection.execute(statement.returning(job_executions.c.execution_id))
            written += [left.pop(execution_id) for execution_id in made.scalars().all()]
        return written


async def _lock_trigger(connection: AsyncConnection, shot: Shot) -> bool:
    """Return whether the trigger still exists, and lock it until the end of the transaction."""
    if not shot.is_registered:
        return True
    query = select(triggers.c.trigger_id).where(triggers.c.trigger_id == shot.scope).with_for_update()
    return (await connection.execute(query)).scalar() is not None


def _jobs_to_fire(parts: Sequence[_Part]) -> dict[str, tuple[_Part, JobGroup]]:
    """Return the part that fires each job, the first one that names it; without jobs that have an execution."""
    done = {fired.job_id for part in parts for fired in part.executions}
    wanted: dict[str, tuple[_Part, JobGroup]] = {}
    for part in parts:
        part.skipped += [Skipped(job=text, reason="there is no such job") for text in part.shot.unknown]
        for group in part.shot.groups:
            for job_id in group.job_ids:
                if job_id not in done:
                    wanted.setdefault(job_id, (part, group))
    return wanted


async def _lock_jobs(connection: AsyncConnection, job_ids: Sequence[str]) -> dict[str, Any]:
    columns = [jobs.c[name] for name in (*_JOB_COLUMNS, "last_run")]
    query = select(*columns).where(jobs.c.job_id.in_(job_ids)).order_by(jobs.c.job_id)
    rows = await connection.execute(query.with_for_update(key_share=True))
    return {row.job_id: row for row in rows}


def why_not(job: Any) -> str | None:
    """Return why a job is not fired, None if it is."""
    if job is None:
        return "there is no such job"
    if job.scheduler_version != SCHEDULER_VERSION:
        return "it belongs to the old scheduler"
    if not job.schedule_enabled:
        return "it is disabled"
    if job.paused:
        return f"it is paused: {job.pause_reason}" if job.pause_reason else "it is paused"
    return None


async def _find_unmet(connection: AsyncConnection, found: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names of the jobs that each job still waits for.

    The comparison is not in the query: with `jobs` on both sides of the join, a planner that believes the table is
    empty pairs every job with every other.
    """
    query = (
        select(job_dependencies.c.job_id, jobs.c.name, jobs.c.last_success)
        .join(jobs, jobs.c.job_id == job_dependencies.c.depends_on)
        .where(job_dependencies.c.job_id.in_(list(found)))
        .order_by(jobs.c.name)
    )
    unmet: dict[str, list[str]] = {}
    for job_id, name, last_success in await connection.execute(query):
        if is_unmet(last_success, found[job_id].last_run):
            unmet.setdefault(job_id, []).append(name)
    return unmet


def _hold(row: dict[str, Any], other: Any, unmet: Sequence[str]) -> dict[str, Any]:
    """Return the row, held if it has to wait for another job or execution; a debounced one waits for its time first."""
    if unmet:
        hold, reason = Hold.DEPENDENCY, wait_for_success(unmet)
    elif other is None or row["not_before"] is not None:
        return row
    else:
        hold, reason = Hold.OVERLAP, wait_for_execution(other.execution_id, other.state)
    return {**row, "state": State.WAITING, "hold": hold, "reason": reason, "not_before": None, "queue_rank": None}


def _make_fired(row: Mapping[str, Any]) -> FiredExecution:
    return FiredExecution(**{name: row[name] for name in FiredExecution.__struct_fields__ if name in row})


def _outcome(delivery_id: str, parts: Sequence[_Part], queued: Sequence[Queued]) -> Outcome:
    taken = Taken(
        delivery_id=delivery_id,
        executions=tuple(fired for part in parts for fired in part.executions),
        hinted=tuple(hinted for part in parts for hinted in part.hinted),
        skipped=tuple(skipped for part in parts for skipped in part.skipped),
        is_duplicate=bool(parts) and all(part.is_old for part in parts),
        debounced_until=max((part.debounced_until for part in parts if part.debounced_until), default=None),
    )
    written = sum(not fired.is_folded for part in parts if not part.is_old for fired in part.executions)
    hinted = sum(len(part.hinted) for part in parts if not part.is_old)
    return Outcome(taken=taken, queued=queued, written=written, hinted=hinted)


def answer_text(taken: Taken) -> str:
    """Return the answer to a delivery as it is stored: JSON without the id."""
    return encode_json(_stored_answer(taken))


def _stored_answer(taken: Taken) -> dict[str, Any]:
    answer: dict[str, Any] = msgspec.to_builtins(taken)
    del answer["delivery_id"]
    return answer


def _replayed() -> Replayed:
    return Replayed("the signature was used before", hint="sign each delivery with its own timestamp")
