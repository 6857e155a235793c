"""The jobs people make, change and remove.

Tables: `jobs`, `job_dependencies`; of `executions` those that are forced or cancelled. A change of a
when-column fires the database trigger, which clears `next_run` and counts the version by itself; our own
count says the same, so that every change of a job is one step of its version on both databases.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import ColumnElement, bindparam, delete, func, or_, select, update
from sqlalchemy.exc import IntegrityError

from floodmark.errors import Conflict, InvalidInput, NotFound
from floodmark.model.clock import Clock
from floodmark.model.execution import Execution, Hold, Queued, State
from floodmark.model.ids import new_id
from floodmark.model.job import SCHEDULER_VERSION, Job, Priority
from floodmark.model.job_fields import columns_of
from floodmark.model.spec import JobSpec, declaration, slug
from floodmark.rules.holding import wait_for_execution
from floodmark.rules.starting import FORCED, JOB_DELETED

from .async_engine import AsyncConnection
from .database import Database
from .dependencies import dependency_names, set_all_dependencies, set_dependencies
from .dialects import insert_into, json_has, present, raw
from .execution_rows import SELECT_EXECUTION, execution_from_row, find_under_way
from .job_checks import SETTABLE_COLUMNS, check_columns, check_job, check_json
from .name_search import find_job, find_jobs
from .rows import JOB_COLUMNS, job_from_row
from .tables import WHEN_COLUMNS, job_executions, jobs

MOST_FOUND = 500

_JOB = select(*(raw(jobs.c[name]) for name in JOB_COLUMNS))
_MICROSECOND = timedelta(microseconds=1)
_CANCELLED = "cancelled by operator"


class Forced(Struct, frozen=True, kw_only=True):
    """An execution a person asked for. `queued` is None while it has to wait, and `reason` says for what."""

    execution_id: str
    scheduled_for: datetime
    queued: Queued | None
    reason: str | None = None


class Declared(Struct, frozen=True, kw_only=True):
    """A job declared in code, and whether the declaration made or changed it."""

    job: Job
    changed: bool


class Jobs:
    """Everything a person can do to jobs. What is refused changes nothing."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def add(self, spec: JobSpec, *, job_id: str | None = None, replace_existing: bool = False) -> Job:
        """Make a job. `InvalidInput` for what makes no sense, `Conflict` for a name that is taken.

        `job_id`: its id, if that was promised to someone already. `replace_existing`: a job that has the name given in
        the spec becomes what the spec says, and goes on if it was paused. It keeps its id, history and watermark.
        """
        columns = self._checked(spec)
        async with self._database.writing() as connection:
            names = [columns["name"]] if spec.name is not None else _numbered(columns["name"])
            for name in names:
                values = {**columns, "name": name, "declared": spec.declared, "job_id": job_id or new_id()}
                made = await self._insert(connection, values)
                if made is not None:
                    await self._link(connection, made, name, spec.depends_on)
                    return await _read(connection, made)
            if replace_existing and spec.name is not None:
                return await self._replace(connection, columns, spec)
        raise _taken(columns["name"])

    async def declare(self, spec: JobSpec) -> Declared:
        """Make the job a declaration in code describes, or bring it up to date if the declaration has changed.

        While it says the same, an operator's changes stay. A job that was added by hand is not taken over.
        """
        async with self._database.writing() as connection:
            [(job_id, changed)] = await self._declare(connection, [spec])
            return Declared(job=await _read(connection, job_id), changed=changed)

    async def declare_all(self, specs: Sequence[JobSpec]) -> int:
        """The same for many declarations at once, with a handful of statements; how many jobs were made or changed.

        They may depend on each other, in any order. If one is refused nothing is changed.
        """
        async with self._database.writing() as connection:
            return sum(changed for _, changed in await self._declare(connection, specs))

    async def _declare(self, connection: AsyncConnection, specs: Sequence[JobSpec]) -> list[tuple[str, bool]]:
        """The id of each job, and whether it was made or changed."""
        if not specs:
            return []
        wanted = [{**self._checked(spec), "declared": declaration(spec)} for spec in specs]
        names = [columns["name"] for columns in wanted]
        there = await _declared(connection, names)
        # In order of name: two processes that start at once do not wait for each other crosswise.
        new = sorted((columns for columns in wanted if columns["name"] not in there), key=lambda it: str(it["name"]))
        made = {columns["name"]: new_id() for columns in new}
        if new:
            now = present(self._database, self._clock)
            statement = insert_into(self._database, jobs).values(created_at=now, updated_at=now)
            rows = [{**columns, "job_id": made[columns["name"]]} for columns in new]
            await connection.execute(statement.on_conflict_do_nothing(index_elements=["name"]), rows)
            # Another process may have been quicker.
            there = await _declared(connection, names)
        for name in names:
            _require_declared(name, there[name][1])
        outdated = {
            there[columns["name"]][0]: columns for columns in wanted if there[columns["name"]][1] != columns["declared"]
        }
        changed = await self._write_all(connection, outdated) if outdated else set()
        changed |= {job_id for name, job_id in made.items() if there[name][0] == job_id}
        await self._link_all(connection, {there[n][0]: spec for n, spec in zip(names, specs, strict=True)}, changed)
        return [(there[name][0], there[name][0] in changed) for name in names]

    async def _write_all(self, connection: AsyncConnection, wanted: Mapping[str, Mapping[str, Any]]) -> set[str]:
        """Bring the columns of several jobs up to date, in one step of their versions; the ids of those that were not.

        One statement for all that differ in the same columns, as they do when a default has changed.
        """
        alike, written = defaultdict[tuple[str, ...], list[dict[str, Any]]](list), set[str]()
        for job_id, current in (await _all_current(connection, list(wanted))).items():
            if current["declared"] != wanted[job_id]["declared"]:
                written.add(job_id)
                differing = {name: value for name, value in wanted[job_id].items() if value != current[name]}
                alike[tuple(differing)].append({"this": job_id, **{f"new_{n}": v for n, v in differing.items()}})
        now = present(self._database, self._clock)
        for columns, rows in alike.items():
            values = {name: bindparam(f"new_{name}", type_=jobs.c[name].type) for name in columns}
            this = update(jobs).where(jobs.c.job_id == bindparam("this"))
            await connection.execute(this.values(**values, version=jobs.c.version + 1, updated_at=now), rows)
            if not set(columns).isdisjoint(WHEN_COLUMNS):
                # As in `_write`.
                planned = this.values(planned_until=now, updated_at=now)
                await connection.execute(planned, [{"this": row["this"]} for row in rows])
        return written

    async def _link_all(self, connection: AsyncConnection, specs: Mapping[str, JobSpec], changed: set[str]) -> None:
        """Let the changed ones among these jobs wait for the others that their declarations name."""
        ids = {spec.name: job_id for job_id, spec in specs.items()}
        wanted = dict[str, list[str]]()
        for job_id in changed:
            spec = specs[job_id]
            needed = [ids.get(name) or await find_job(connection, name) for name in spec.depends_on]
            wanted[job_id] = list(dict.fromkeys(needed))
            _refuse_itself(job_id, str(spec.name), wanted[job_id])
        if wanted:
            await set_all_dependencies(connection, self._database, wanted)

    async def get(self, text: str) -> Job:
        """The job with this name or id, or the only one whose name or id begins so.

        `NotFound` names those that come close, `InvalidInput` those that an ambiguous beginning fits.
        """
        async with self._database.reading() as connection:
            return await _read(connection, await find_job(connection, text))

    async def named(self, name: str) -> Job | None:
        """The job of exactly this name, if there is one."""
        async with self._database.reading() as connection:
            found = await _jobs(connection, _JOB.where(jobs.c.name == name))
            return found[0] if found else None

    async def is_declared(self, target: str) -> bool:
        """Whether a declaration in code has made a job for the collector of this name."""
        this = select(jobs.c.job_id).where(jobs.c.source == "python", jobs.c.target == target)
        async with self._database.reading() as connection:
            found = await connection.execute(this.where(jobs.c.declared.is_not(None)).limit(1))
            return found.scalar() is not None

    async def find(
        self,
        *,
        source: str | None = None,
        domain: str | None = None,
        domain_config_id: str | None = None,
        tag: str | None = None,
        priority: Priority | None = None,
        enabled: bool | None = None,
        paused: bool | None = None,
        text: str | None = None,
        also: ColumnElement[bool] | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Jobs in order of name. The next page is `after` the name of the last one; at most 500 at once.

        `also` is a condition that other stores know of.
        """
        equal = {
            "source": source,
            "domain": domain,
            "domain_config_id": domain_config_id,
            "priority": priority,
            "schedule_enabled": enabled,
            "paused": paused,
        }
        where: list[ColumnElement[bool]] = [jobs.c[name] == v for name, v in equal.items() if v is not None]
        if tag is not None:
            where.append(json_has(self._database, jobs.c.tags, tag))
        if text is not None:
            where.append(_mentions(text))
        if also is not None:
            where.append(also)
        if after is not None:
            where.append(jobs.c.name > after)
        async with self._database.reading() as connection:
            query = _JOB.where(*where).order_by(jobs.c.name).limit(max(1, min(limit, MOST_FOUND)))
            return await _jobs(connection, query)

    async def update(self, job: Job, changes: Mapping[str, Any], expected_version: int | None = None) -> Job:
        """Set columns (and `depends_on`) of a job. One change, one version; what is already so is no change.

        `Conflict` if the job is no longer at `expected_version`.
        """
        wanted = dict(changes)
        on = wanted.pop("depends_on", None)
        if on is not None and (isinstance(on, str) or not all(isinstance(name, str) for name in on)):
            raise InvalidInput("depends_on is not a list of names", hint='for example ["first-job", "second-job"]')
        columns = check_columns(wanted)
        async with self._database.writing() as connection:
            current = await _current(connection, job.job_id, job.name)
            if expected_version is not None and current["version"] != expected_version:
                raise _changed(current, expected_version)
            check_job({**current, **columns}, now=self._clock.now())
            await self._write(connection, job.job_id, columns, on)
            return await _read(connection, job.job_id)

    async def remove(self, job: Job, expected_version: int | None = None) -> None:
        """Delete a job. Its unfinished executions are cancelled; its history and its items stay.

        `Conflict` if the job is no longer at `expected_version`.
        """
        async with self._database.writing() as connection:
            # Executions before the job, as a worker settles them: the other way round two could wait for each other.
            await self._cancel(connection, job.job_id, JOB_DELETED)
            this = delete(jobs).where(jobs.c.job_id == job.job_id)
            guarded = this if expected_version is None else this.where(jobs.c.version == expected_version)
            if not (await connection.execute(guarded)).rowcount:
                raise _changed(await _current(connection, job.job_id, job.name), expected_version)

    async def pause(self, job: Job, reason: str | None = None) -> Job:
        """Let nothing of the job start until it is resumed, except what a person forces."""
        return await self._set(job, {"paused": True, "pause_reason": reason})

    async def resume(self, job: Job) -> Job:
        """Undo `pause`, whoever paused it. Instants that passed meanwhile are not made up for."""
        return await self._set(job, {"paused": False, "pause_reason": None})

    async def force_run(
        self,
        job: Job,
        *,
        params: Mapping[str, Any] | None = None,
        trigger: str = FORCED,
        now: datetime | None = None,
        traceparent: str | None = None,
    ) -> Forced:
        """Write an execution for now, whatever the schedule says. Put its `queued` on the queue.

        While another execution of the job is under way it waits for that one. One that is itself held, by a
        pause or a dependency, is not waited for: it may be held for ever.
        """
        given = None if params is None else check_json("params", dict(params), hint='for example {"depth": 2}')
        async with self._database.writing() as connection:
            # Locked, so that of two forced at once the second sees the first.
            current = await _current(connection, job.job_id, job.name)
            if current["scheduler_version"] != SCHEDULER_VERSION:
                raise Conflict(
                    f"{current['name']} belongs to the old scheduler, which may be running it",
                    hint=f"take it over first: floodmark migrate-jobs {current['name']}",
                )
            other = (await find_under_way(connection, [job.job_id])).get(job.job_id)
            reason = None if other is None else wait_for_execution(other.execution_id, other.state)
            row = {
                "execution_id": new_id(),
                "job_id": job.job_id,
                "job_name": current["name"],
                "state": State.QUEUED if reason is None else State.WAITING,
                "priority": current["priority"],
                "trigger": trigger,
                "params": given,
                "reason": reason,
                "hold": None if reason is None else Hold.OVERLAP,
                "queue_rank": present(self._database, self._clock) if reason is None else None,
                "created_at": present(self._database, self._clock),
                "traceparent": traceparent,
            }
            scheduled_for = await self._insert_execution(connection, row, now or self._clock.now())
        # Someone is waiting for it: it stands in line with the most urgent.
        queued = Queued(row["execution_id"], Priority.HIGH, traceparent) if reason is None else None
        return Forced(execution_id=row["execution_id"], scheduled_for=scheduled_for, queued=queued, reason=reason)

    async def cancel(self, job: Job) -> int:
        """End what is unfinished: at once if it has not started, else as soon as its worker hears of it. How many."""
        async with self._database.writing() as connection:
            return await self._cancel(connection, job.job_id, _CANCELLED)

    async def cancel_execution(self, execution: Execution) -> Execution:
        """The same for one execution. `Conflict` if it has ended already."""
        async with self._database.writing() as connection:
            mine = job_executions.c.execution_id == execution.execution_id
            if not await self._cancel_where(connection, mine, _CANCELLED):
                raise Conflict(
                    f"execution {execution.execution_id} has ended already: it is {execution.state}",
                    hint=f"see how it went with: floodmark history --id {execution.execution_id}",
                )
            row = (await connection.execute(SELECT_EXECUTION.where(mine))).one()
            return execution_from_row(row)

    async def depends(self, job: Job, on: Sequence[str]) -> Job:
        """Let the job wait for exactly these others, by name or id. `Conflict` shows the cycle this would close."""
        return await self.update(job, {"depends_on": on})

    async def dependencies(self, job: Job) -> list[str]:
        """The names of the jobs it waits for."""
        async with self._database.reading() as connection:
            return list((await dependency_names(connection, [job.job_id])).get(job.job_id, ()))

    def _checked(self, spec: JobSpec) -> dict[str, Any]:
        given = columns_of(spec)
        columns = check_columns({**given, "name": slug(spec)} if spec.name is None else given)
        check_job(columns, now=self._clock.now())
        return columns

    async def _insert(self, connection: AsyncConnection, columns: Mapping[str, Any]) -> str | None:
        """The id of the new job, None if its name is taken."""
        now = present(self._database, self._clock)
        values = {"job_id": new_id(), **columns, "created_at": now, "updated_at": now}
        statement = insert_into(self._database, jobs).values(values).on_conflict_do_nothing(index_elements=["name"])
        found: str | None = (await connection.execute(statement.returning(jobs.c.job_id))).scalar()
        return found

    async def _replace(self, connection: AsyncConnection, columns: Mapping[str, Any], spec: JobSpec) -> Job:
        """Let the job of this name be what the spec says. Whose it is, the old scheduler's or ours, stays."""
        job_id = await _locked_by_name(connection, columns["name"])
        values = {name: value for name, value in columns.items() if name != "scheduler_version"}
        await self._write(connection, job_id, {**values, "paused": False, "pause_reason": None}, spec.depends_on)
        return await _read(connection, job_id)

    async def _write(
        self, connection: AsyncConnection, job_id: str, columns: Mapping[str, Any], on: Sequence[str] | None
    ) -> None:
        """Bring these columns up to date, in one step of the version; what is already so is not written."""
        current = await _current(connection, job_id)
        changed = {name: value for name, value in columns.items() if value != current[name]}
        relinked = on is not None and await self._link(connection, job_id, current["name"], on)
        if not changed and not relinked:
            return
        now = present(self._database, self._clock)
        this = update(jobs).where(jobs.c.job_id == job_id)
        try:
            await connection.execute(this.values(**changed, version=jobs.c.version + 1, updated_at=now))
        except IntegrityError as error:
            raise _taken(changed.get("name", current["name"])) from error
        if not changed.keys().isdisjoint(WHEN_COLUMNS):
            # The trigger of SQLite knows only the machine's clock; the process may live by another.
            await connection.execute(this.values(planned_until=now, updated_at=now))

    async def _set(self, job: Job, values: Mapping[str, Any]) -> Job:
        """Change columns that need no checking: a job that has become invalid can still be paused."""
        async with self._database.writing() as connection:
            await self._write(connection, job.job_id, values, None)
            return await _read(connection, job.job_id)

    async def _link(self, connection: AsyncConnection, job_id: str, name: str, on: Sequence[str]) -> bool:
        needed = await find_jobs(connection, on)
        _refuse_itself(job_id, name, needed)
        return await set_dependencies(connection, self._database, job_id, needed)

    async def _insert_execution(self, connection: AsyncConnection, row: Mapping[str, Any], now: datetime) -> datetime:
        """Write it for the first microsecond from `now` on that this job has not used."""
        for step in count():
            scheduled_for = now + step * _MICROSECOND
            statement = insert_into(self._database, job_executions).values(**row, scheduled_for=scheduled_for)
            statement = statement.on_conflict_do_nothing(index_elements=["job_id", "scheduled_for"])
            if (await connection.execute(statement.returning(job_executions.c.execution_id))).scalar() is not None:
                return scheduled_for
        raise AssertionError("unreachable")

    async def _cancel(self, connection: AsyncConnection, job_id: str, reason: str) -> int:
        return await self._cancel_where(connection, job_executions.c.job_id == job_id, reason)

    async def _cancel_where(self, connection: AsyncConnection, which: ColumnElement[bool], reason: str) -> int:
        cell, now = job_executions.c, present(self._database, self._clock)
        mine = update(job_executions).where(which)
        asked = await connection.execute(
            mine.where(cell.state == State.RUNNING).values(
                cancel_requested=func.coalesce(cell.cancel_requested, reason)
            )
        )
        ended = await connection.execute(
            mine.where(cell.state.in_((State.QUEUED, State.WAITING))).values(
                state=State.CANCELLED, reason=reason, hold=None, not_before=None, completed_at=now
            )
        )
        return int(asked.rowcount + ended.rowcount)


async def _current(connection: AsyncConnection, job_id: str, name: str = "it") -> dict[str, Any]:
    """The columns a person may change, and their version; locked until the transaction ends."""
    wanted = [*SETTABLE_COLUMNS, "paused", "pause_reason", "declared", "version"]
    query = select(*(jobs.c[column] for column in wanted)).where(jobs.c.job_id == job_id)
    # The weaker lock (key_share): others may still point at this job with a dependency of theirs.
    row = (await connection.execute(query.with_for_update(key_share=True))).mappings().first()
    if row is None:
        raise _gone(name)
    return dict(row)


async def _all_current(connection: AsyncConnection, job_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The same of several jobs, by id; locked in order of name."""
    wanted = [*SETTABLE_COLUMNS, "paused", "pause_reason", "declared", "version"]
    query = select(jobs.c.job_id, *(jobs.c[column] for column in wanted)).where(jobs.c.job_id.in_(job_ids))
    rows = await connection.execute(query.order_by(jobs.c.name).with_for_update(key_share=True))
    return {row["job_id"]: dict(row) for row in rows.mappings()}


async def _declared(connection: AsyncConnection, names: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    """By name, the id of a job and the declaration it was made from."""
    query = select(jobs.c.name, jobs.c.job_id, jobs.c.declared).where(jobs.c.name.in_(names))
    return {row.name: (row.job_id, row.declared) for row in await connection.execute(query)}


async def _locked_by_name(connection: AsyncConnection, name: str) -> str:
    query = select(jobs.c.job_id).where(jobs.c.name == name).with_for_update(key_share=True)
    return str((await connection.execute(query)).scalar_one())


async def _read(connection: AsyncConnection, job_id: str) -> Job:
    found = await _jobs(connection, _JOB.where(jobs.c.job_id == job_id))
    if not found:
        raise _gone(job_id)
    return found[0]


async def _jobs(connection: AsyncConnection, query: Any) -> list[Job]:
    found = [job_from_row(tuple(row)) for row in await connection.execute(query)]
    names = await dependency_names(connection, [job.job_id for job in found]) if found else {}
    return [replace(job, depends_on=names[job.job_id]) if job.job_id in names else job for job in found]


def _mentions(text: str) -> ColumnElement[bool]:
    columns = (jobs.c.name, jobs.c.target, jobs.c.url, jobs.c.domain)
    return or_(*(func.lower(column).contains(text.lower(), autoescape=True) for column in columns))


def _numbered(name: str) -> list[str]:
    """Names to try in turn for a job that was given none."""
    return [name, *(f"{name}-{number}" for number in range(2, 1000))]


def _require_declared(name: str, declared: str | None) -> None:
    """Refuse to take a job over that no declaration in code has made."""
    if declared is None or declared.startswith("sync:"):
        origin = "added by hand" if declared is None else "made by a sync"
        raise Conflict(
            f"the job {name!r} was {origin}: the one declared in code does not replace it",
            hint=f"rename one of them, or remove this one with: floodmark rm {name}",
        )


def _refuse_itself(job_id: str, name: str, needed: Sequence[str]) -> None:
    if job_id in needed:
        raise Conflict(f"{name} cannot wait for itself: {name} -> {name}", hint="leave it out of depends_on")


def _taken(name: str) -> Conflict:
    return Conflict(
        f"there is already a job {name!r}",
        hint=f"choose another name, or change that one: floodmark show {name}",
    )


def _changed(current: Mapping[str, Any], expected_version: int | None) -> Conflict:
    return Conflict(
        f"{current['name']} was changed meanwhile: it is at version {current['version']}, not {expected_version}",
        hint=f"look at it again with: floodmark show {current['name']}",
    )


def _gone(name: str) -> NotFound:
    return NotFound(f"the job {name!r} is gone: someone has deleted it", hint="see what there is with: floodmark ls")
