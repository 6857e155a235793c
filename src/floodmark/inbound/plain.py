"""Plain deliveries: those of one trigger without a debounce, whose jobs are neither adaptive nor depend on others, and
that no event of Floodmark has led to.

They are the usual ones. All that arrive together are read with one statement and written with another. Nothing is
locked between the two: the writing statement checks that the jobs may still be fired, and a delivery that does not fit,
that was taken before, or that is not plain is left to `Deliveries.take`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from msgspec import Struct

from floodmark.model.clean_text import clean
from floodmark.model.clock import Clock
from floodmark.model.execution import Queued, State
from floodmark.model.external_triggers import Kind
from floodmark.model.ids import new_id
from floodmark.model.job import SCHEDULER_VERSION, Priority, ScheduleType, Work
from floodmark.rules.holding import wait_for_execution
from floodmark.rules.rank import rank_of
from floodmark.store.database import Database, PostgresDatabase, SqliteDatabase, encode_json
from floodmark.store.rows import work_from_row

from .deliveries import FiredExecution, Outcome, Shot, Skipped, Taken, answer_text, why_not

# One statement must not take long: it writes at most this many executions.
_MOST_AT_ONCE = 2000
_MICROSECOND = timedelta(microseconds=1)
# The columns of a job that decide whether and how it is fired.
FACT_COLUMNS = (
    *("job_id", "name", "priority", "paused", "pause_reason"),
    *("schedule_enabled", "schedule_type", "scheduler_version"),
)


class JobFacts(Struct, frozen=True, kw_only=True):
    """A job that a delivery may fire. `pattern` is the one that it names itself.

    `other` is the execution that a new one has to wait for, with its state. `work` is a row for `work_from_row`.
    """

    job_id: str
    name: str
    priority: int
    paused: bool
    pause_reason: str | None
    schedule_enabled: bool
    schedule_type: str
    scheduler_version: int
    pattern: str | None
    other: tuple[str, str] | None
    has_dependencies: bool
    now: datetime
    work: tuple[Any, ...]

    def read_work(self) -> Work:
        """Return the part of the job that its source needs."""
        return work_from_row(self.work)


class WantedJobs(Struct, frozen=True, kw_only=True):
    """The jobs to read: by ids or names, and by the patterns that they name themselves."""

    kind: Kind
    texts: Sequence[str]
    patterns: Sequence[str]


class NewDelivery(Struct, frozen=True, kw_only=True):
    """A delivery to be written with its executions. `answer` and the params of executions are JSON."""

    scope: str
    delivery_id: str
    signature: str | None
    subject: str
    is_registered: bool
    answer: str
    executions: tuple["FiredRow", ...]


class FiredRow(Struct, frozen=True, kw_only=True):
    """An execution to be written; it waits if it has a reason. `params` is JSON."""

    execution_id: str
    job_id: str
    job_name: str
    scheduled_for: datetime
    priority: int
    trigger: str
    params: str | None
    reason: str | None
    queue_rank: datetime | None
    traceparent: str | None


class PlainStore(Protocol):
    """Reads jobs and writes plain deliveries."""

    async def read(self, wanted: WantedJobs) -> list[JobFacts]:
        """Return the jobs that exist."""
        ...

    async def find_signatures(self, scopes: Sequence[str], signatures: Sequence[str]) -> set[tuple[str, str]]:
        """Return those pairs of a scope and a signature that were taken before. It takes no lock."""
        ...

    async def write(self, new: Sequence[NewDelivery]) -> list[bool]:
        """Write deliveries with their executions, and count them. False for those of which nothing was written.

        That is so if the delivery or its signature was taken before, if the trigger does not exist any more, or if one
        of the jobs may no longer be fired.
        """
        ...


# The jobs that may be fired by a plain delivery; the same for both databases.
MAY_FIRE = (
    f"j.schedule_enabled AND NOT j.paused AND j.scheduler_version = {SCHEDULER_VERSION}"
    f" AND j.schedule_type <> '{ScheduleType.ADAPTIVE.value}'"
)


class ArrivedDelivery(Struct, frozen=True, kw_only=True):
    """A delivery that has arrived, and the triggers and jobs it concerns."""

    subject: str
    shots: Sequence[Shot]
    delivery_id: str | None = None
    signature: str | None = None
    traceparent: str | None = None
    hops: int = 0


class PlainDeliveries:
    """Takes many plain deliveries with one statement."""

    def __init__(self, database: Database, clock: Clock, *, patience: timedelta) -> None:
        self._store, self._patience = _store_of(database, clock), patience

    async def find_jobs(self, wanted: WantedJobs) -> list[JobFacts]:
        """Return the jobs that some deliveries concern."""
        return await self._store.read(wanted) if wanted.texts or wanted.patterns else []

    async def take(self, deliveries: Sequence[ArrivedDelivery], facts: Mapping[str, JobFacts]) -> list[Outcome | None]:
        """Write the plain ones of these deliveries. None for each of which nothing was written."""
        plans: list[tuple[NewDelivery, Outcome] | None] = []
        # What this call has used: the first and the last execution of each job, ids, and signatures.
        under_way: dict[str, tuple[FiredRow, FiredRow]] = {}
        seen = await self._find_replayed(deliveries)
        for delivery in deliveries:
            plan = self._plan(delivery, facts, under_way, seen) if is_plain(delivery, facts) else None
            plans.append(plan)
        is_written = iter(await self._write([plan[0] for plan in plans if plan is not None]))
        return [None if plan is None or not next(is_written) else plan[1] for plan in plans]

    async def _find_replayed(self, deliveries: Sequence[ArrivedDelivery]) -> set[tuple[str, str]]:
        """Return the marks of signatures that were taken before: a repeated webhook must not take the write lock."""
        signed = [
            (shot.scope, delivery.signature)
            for delivery in deliveries
            if delivery.signature is not None
            for shot in delivery.shots
        ]
        found = await self._store.find_signatures(*map(list, zip(*signed, strict=True))) if signed else ()
        return {(scope, _mark(signature)) for scope, signature in found}

    async def _write(self, new: Sequence[NewDelivery]) -> list[bool]:
        written: list[bool] = []
        some: list[NewDelivery] = []
        for one in new:
            if some and sum(len(each.executions) for each in (*some, one)) > _MOST_AT_ONCE:
                written += await self._store.write(some)
                some = []
            some.append(one)
        return written + (await self._store.write(some) if some else [])

    def _plan(
        self,
        delivery: ArrivedDelivery,
        facts: Mapping[str, JobFacts],
        under_way: dict[str, tuple[FiredRow, FiredRow]],
        seen: set[tuple[str, str]],
    ) -> tuple[NewDelivery, Outcome] | None:
        [shot] = delivery.shots
        delivery_id = clean(delivery.delivery_id or new_id())
        signature = delivery.signature if shot.is_registered else None
        # A second one with the same id has to wait for the answer of the first.
        marks = {(shot.scope, f"id {delivery_id}"), (shot.scope, _mark(signature or delivery_id))}
        if marks & seen:
            return None
        seen |= marks
        skipped = [Skipped(job=text, reason="there is no such job") for text in shot.unknown]
        rows: list[FiredRow] = []
        for job_id, params in _jobs_of(shot):
            job = facts[job_id]
            reason = why_not(job)
            if reason is not None:
                skipped.append(Skipped(job=job.name, reason=reason))
                continue
            row = self._row(job, shot, params, under_way.get(job_id), delivery.traceparent)
            under_way[job_id] = (under_way[job_id][0] if job_id in under_way else row, row)
            rows.append(row)
        taken = Taken(delivery_id=delivery_id, executions=tuple(map(_fired, rows)), skipped=tuple(skipped))
        queued = [Queued(row.execution_id, Priority(row.priority), row.traceparent) for row in rows if not row.reason]
        new = NewDelivery(
            scope=shot.scope,
            delivery_id=delivery_id,
            signature=signature,
            subject=clean(delivery.subject),
            is_registered=shot.is_registered,
            answer=answer_text(taken),
            executions=tuple(rows),
        )
        return new, Outcome(taken=taken, queued=queued, written=len(rows))

    def _row(
        self,
        job: JobFacts,
        shot: Shot,
        params: Mapping[str, Any],
        earlier: tuple[FiredRow, FiredRow] | None,
        traceparent: str | None,
    ) -> FiredRow:
        other = job.other
        if other is None and earlier is not None:
            # All wait for the first one, and each has an instant after the last one.
            other = (earlier[0].execution_id, State.QUEUED)
        reason = None if other is None else wait_for_execution(*other)
        # No two executions of a job have the same instant: those of earlier deliveries of this call are before it.
        scheduled_for = job.now if earlier is None else earlier[1].scheduled_for + _MICROSECOND
        return FiredRow(
            execution_id=new_id(),
            job_id=job.job_id,
            job_name=job.name,
            scheduled_for=scheduled_for,
            priority=job.priority,
            trigger=shot.trigger,
            params=encode_json(dict(params)) if params else None,
            reason=reason,
            queue_rank=rank_of(job.priority, job.now, self._patience) if reason is None else None,
            traceparent=traceparent,
        )


def _mark(signature: str) -> str:
    return f"signature {signature}"


def is_plain(delivery: ArrivedDelivery, facts: Mapping[str, JobFacts]) -> bool:
    """Return whether a delivery is plain."""
    if len(delivery.shots) != 1 or delivery.shots[0].debounce or delivery.hops:
        return False
    job_ids = [job_id for group in delivery.shots[0].groups for job_id in group.job_ids]
    if not 0 < len(job_ids) <= _MOST_AT_ONCE or len(set(job_ids)) < len(job_ids):
        return False
    found = [facts.get(job_id) for job_id in job_ids]
    return all(
        job is not None and not job.has_dependencies and job.schedule_type != ScheduleType.ADAPTIVE for job in found
    )


def _jobs_of(shot: Shot) -> list[tuple[str, Mapping[str, Any]]]:
    return [(job_id, group.params) for group in shot.groups for job_id in group.job_ids]


def _fired(row: FiredRow) -> FiredExecution:
    return FiredExecution(
        execution_id=row.execution_id,
        job_id=row.job_id,
        job_name=row.job_name,
        trigger=row.trigger,
        state=State.QUEUED if row.reason is None else State.WAITING,
        scheduled_for=row.scheduled_for,
        reason=row.reason,
    )


def _store_of(database: Database, clock: Clock) -> PlainStore:
    if isinstance(database, PostgresDatabase):
        from .plain_postgres import PostgresPlainStore  # noqa: PLC0415 - SQLite needs none of it

        return PostgresPlainStore(database)
    from .plain_sqlite import SqlitePlainStore  # noqa: PLC0415 - only one of both is needed

    assert isinstance(database, SqliteDatabase)
    return SqlitePlainStore(database, clock)


def facts_from_row(row: Sequence[Any], now: datetime) -> JobFacts:
    """Return the facts of a job from `FACT_COLUMNS`, pattern, other, its state, has_dependencies, and its work."""
    columns = dict(zip(FACT_COLUMNS, row, strict=False))
    pattern, other, state, has_dependencies = row[len(FACT_COLUMNS) : len(FACT_COLUMNS) + 4]
    return JobFacts(
        **columns,
        pattern=pattern,
        other=None if other is None else (other, state),
        has_dependencies=bool(has_dependencies),
        now=now,
        work=tuple(row[len(FACT_COLUMNS) + 4 :]),
    )
