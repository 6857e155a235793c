"""Jobs as people create, change and remove them.

Tables: `jobs`, `job_dependencies`, and `executions` that are forced or cancelled. When one of `WHEN_COLUMNS` changes, a
database trigger clears `next_run` and sets the version to the old one plus one. Our updates set the same version, so
every change of a job increases it by one on both databases.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import ColumnElement, delete, func, literal_column, or_, select, update
from sqlalchemy.exc import IntegrityError

from floodmark.errors import Conflict, NotFound
from floodmark.model.clean_text import clean
from floodmark.model.clock import Clock
from floodmark.model.execution import Execution, State
from floodmark.model.ids import new_id
from floodmark.model.job import Job, Priority
from floodmark.model.job_fields import columns_of
from floodmark.model.spec import JobSpec, declaration, slug
from floodmark.rules.starting import FORCED, JOB_DELETED
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.database import Database
from floodmark.store.dialects import fits_pattern, is_unfinished, json_has, raw
from floodmark.store.execution_rows import SELECT_EXECUTION, execution_from_row
from floodmark.store.rows import JOB_COLUMNS, job_from_row
from floodmark.store.tables import WHEN_COLUMNS, job_executions, jobs

from .budgets import Budgets
from .dependencies import dependency_names, set_all_dependencies, set_dependencies
from .forcing import Forced, RequestedRuns
from .job_changes import write_changes
from .job_checks import SETTABLE_COLUMNS, check_columns, check_job, check_names, set_budget
from .name_search import find_job, find_jobs
from .repository import Repository, bound_limit

MOST_FOUND = 500

JOB_ROWS = select(*(raw(jobs.c[name]) for name in JOB_COLUMNS))
_CANCELLED = "cancelled by operator"


class Declared(Struct, frozen=True, kw_only=True):
    """A job declared in code, and whether the declaration created or changed it."""

    job: Job
    changed: bool


class Jobs(Repository):
    """Creates, finds, changes, runs and removes jobs. A refused operation changes nothing."""

    def __init__(self, database: Database, clock: Clock, budgets: Budgets | None = None) -> None:
        super().__init__(database, clock)
        self._budgets = budgets or Budgets(database, clock)
        self._runs = RequestedRuns(database, clock)

    async def add(self, spec: JobSpec, *, job_id: str | None = None, replace_existing: bool = False) -> Job:
        """Create a job. Raises `InvalidInput` for an invalid spec, `Conflict` for a name that is taken.

        `job_id`: the id of the job, if it is already known. `replace_existing`: change an existing job of that name to
        the spec and resume it. It keeps its id, history and watermark.
        """
        columns = self._check(spec)
        async with self._database.writing() as connection:
            await self._budgets.require(connection, [columns["budget"]])
            # A name that we chose ourselves gets a number if it is taken.
            numbers = range(2, 1000 if spec.name is None else 2)
            names = [columns["name"], *(f"{columns['name']}-{number}" for number in numbers)]
            for name in names:
                values = {**columns, "name": name, "declared": spec.declared, "job_id": job_id or new_id()}
                made = await self._insert(connection, values)
                if made is not None:
                    await self._link(connection, made, name, spec.depends_on)
                    return await _read_job(connection, made)
            if replace_existing and spec.name is not None:
                return await self._replace(connection, columns, spec)
        raise name_taken(columns["name"])

    async def declare(self, spec: JobSpec) -> Declared:
        """Create the job of a declaration in code, or update it if the declaration has changed.

        While the declaration stays the same, an operator's changes stay. A job that was added by hand is refused.
        """
        async with self._database.writing() as connection:
            [(job_id, changed)] = await self._declare(connection, [spec])
            return Declared(job=await _read_job(connection, job_id), changed=changed)

    async def declare_all(self, specs: Sequence[JobSpec]) -> int:
        """Do the same for many declarations, with few statements. Returns how many jobs were created or changed.

        They may depend on each other, in any order. If one is refused, nothing is changed.
        """
        async with self._database.writing() as connection:
            return sum(changed for _, changed in await self._declare(connection, specs))

    async def _declare(self, connection: AsyncConnection, specs: Sequence[JobSpec]) -> list[tuple[str, bool]]:
        """Return the id of each job, and whether it was created or changed."""
        if not specs:
            return []
        wanted = [{**self._check(spec), "declared": declaration(spec)} for spec in specs]
        await self._budgets.require(connection, {columns["budget"] for columns in wanted})
        names = [columns["name"] for columns in wanted]
        there = await _find_declared(connection, names)
        # In order of name, so that two processes that start at once cannot deadlock.
        new = sorted((columns for columns in wanted if columns["name"] not in there), key=lambda it: str(it["name"]))
        made = {columns["name"]: new_id() for columns in new}
        if new:
            now = self._now()
            statement = self._insert_into(jobs).values(created_at=now, updated_at=now)
            rows = [{**columns, "job_id": made[columns["name"]]} for columns in new]
            await connection.execute(statement.on_conflict_do_nothing(index_elements=["name"]), rows)
            # Another process may have been faster.
            there = await _find_declared(connection, names)
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
        """Update the columns of several jobs, and increase each version by one. Returns the ids of changed jobs."""
        changes = {
            job_id: {name: value for name, value in wanted[job_id].items() if value != current[name]}
            for job_id, current in (await lock_jobs(connection, list(wanted))).items()
            if current["declared"] != wanted[job_id]["declared"]
        }
        await write_changes(connection, changes, self._now())
        return set(changes)

    async def _link_all(self, connection: AsyncConnection, specs: Mapping[str, JobSpec], changed: set[str]) -> None:
        """Set the dependencies of the changed jobs to those of their declarations."""
        ids = {spec.name: job_id for job_id, spec in specs.items()}
        wanted = dict[str, list[str]]()
        for job_id in changed:
            spec = specs[job_id]
            needed = [ids.get(name) or await find_job(connection, name) for name in spec.depends_on]
            wanted[job_id] = list(dict.fromkeys(needed))
            refuse_itself(job_id, str(spec.name), wanted[job_id])
        if wanted:
            await set_all_dependencies(connection, self._database, wanted)

    async def get(self, text: str) -> Job:
        """Return the job with this name or id, or the only one whose name or id starts with the text.

        `NotFound` suggests similar names, `InvalidInput` lists the matches of an ambiguous beginning.
        """
        async with self._database.reading() as connection:
            return await _read_job(connection, await find_job(connection, text))

    async def get_exactly(self, texts: Sequence[str]) -> dict[str, Job]:
        """Return the jobs with these names or ids, by the text that names them. One without a job is left out."""
        typed = {text: clean(text.strip()) for text in texts}
        wanted = sorted(set(typed.values()))
        ids = sorted({*wanted, *(text.replace("-", "").lower() for text in wanted)})
        async with self._database.reading() as connection:
            found = await _read_jobs(connection, JOB_ROWS.where(or_(jobs.c.name.in_(wanted), jobs.c.job_id.in_(ids))))
        by_name = {job.name: job for job in found}
        by_id = {job.job_id: job for job in found}
        chosen = {
            text: by_name.get(one) or by_id.get(one) or by_id.get(one.replace("-", "").lower())
            for text, one in typed.items()
        }
        return {text: job for text, job in chosen.items() if job is not None}

    async def find_by_name(self, name: str) -> Job | None:
        """Return the job of exactly this name, if there is one."""
        async with self._database.reading() as connection:
            found = await _read_jobs(connection, JOB_ROWS.where(jobs.c.name == name))
            return found[0] if found else None

    async def is_declared(self, target: str) -> bool:
        """Return whether a declaration in code has created a job for the collector of this name."""
        this = select(jobs.c.job_id).where(jobs.c.source == "python", jobs.c.target == target)
        return await self._database.fetch_value(this.where(jobs.c.declared.is_not(None)).limit(1)) is not None

    async def find(
        self,
        *,
        source: str | None = None,
        target: str | None = None,
        domain: str | None = None,
        domain_config_id: str | None = None,
        tag: str | None = None,
        priority: Priority | None = None,
        enabled: bool | None = None,
        paused: bool | None = None,
        text: str | None = None,
        match: str | None = None,
        declared: bool | None = None,
        also: ColumnElement[bool] | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Return jobs in order of name, at most 500. The next page is `after` the name of the last one.

        `also` is one more condition.
        """
        equal = {
            "source": source,
            "target": target,
            "domain": domain,
            "domain_config_id": domain_config_id,
            "priority": priority,
            "schedule_enabled": enabled,
            "paused": paused,
        }
        where: list[ColumnElement[bool]] = [jobs.c[name] == v for name, v in equal.items() if v is not None]
        # As the conditions of the partial indexes are written: SQLite uses them for nothing else.
        where += [literal_column("jobs.paused")] if paused else []
        where += [literal_column("NOT jobs.schedule_enabled")] if enabled is False else []
        if tag is not None:
            where.append(json_has(self._database, jobs.c.tags, tag))
        if text is not None:
            where.append(_mentions(text))
        if match is not None:
            stream = func.coalesce(jobs.c.stream, jobs.c.source + ":" + jobs.c.target)
            where.append(or_(*(fits_pattern(self._database, one, match) for one in (jobs.c.name, stream))))
        if declared is not None:
            where.append(jobs.c.declared.is_not(None) if declared else jobs.c.declared.is_(None))
        if also is not None:
            where.append(also)
        if after is not None:
            where.append(jobs.c.name > after)
        async with self._database.reading() as connection:
            query = JOB_ROWS.where(*where).order_by(jobs.c.name).limit(bound_limit(limit, MOST_FOUND))
            return await _read_jobs(connection, query)

    async def update(self, job: Job, changes: Mapping[str, Any], expected_version: int | None = None) -> Job:
        """Set columns and `depends_on` of a job. The version increases by one, unless nothing changes.

        Raises `Conflict` if the job is not at `expected_version`.
        """
        wanted = dict(changes)
        on = wanted.pop("depends_on", None)
        if on is not None:
            check_names(on)
        columns = check_columns(wanted)
        async with self._database.writing() as connection:
            current = await _lock_job(connection, job.job_id, job.name)
            if expected_version is not None and current["version"] != expected_version:
                raise version_changed(current, expected_version)
            columns = set_budget(columns, current)
            check_job({**current, **columns}, now=self._clock.now())
            if "budget" in columns:
                await self._budgets.require(connection, [columns["budget"]])
            await self._write(connection, job.job_id, columns, on)
            return await _read_job(connection, job.job_id)

    async def remove(self, job: Job, expected_version: int | None = None) -> None:
        """Delete a job. Its unfinished executions are cancelled; its history and items stay.

        Raises `Conflict` if the job is not at `expected_version`.
        """
        async with self._database.writing() as connection:
            # Executions before the job, in the order of a worker that settles them, so that both cannot deadlock.
            await self._cancel_where(connection, is_unfinished(self._database.dialect, [job.job_id]), JOB_DELETED)
            this = delete(jobs).where(jobs.c.job_id == job.job_id)
            guarded = this if expected_version is None else this.where(jobs.c.version == expected_version)
            if not (await connection.execute(guarded)).rowcount:
                raise version_changed(await _lock_job(connection, job.job_id, job.name), expected_version)

    async def pause(self, job: Job, reason: str | None = None) -> Job:
        """Let no execution of the job start until it is resumed, except forced ones."""
        return await self._set(job, {"paused": True, "pause_reason": reason})

    async def resume(self, job: Job) -> Job:
        """Undo `pause`. Instants that passed meanwhile are not run."""
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
        """Create an execution for now, independent of the schedule. The caller puts `queued` on the queue.

        It waits for another execution of the job that is under way, but not for one that is held by a pause or a
        dependency: that may be held for ever.
        """
        request = self._runs.request(job.job_id, params, trigger=trigger, now=now, traceparent=traceparent)
        try:
            return await self._runs.force(request)
        except NotFound:
            raise _gone(job.name) from None

    async def cancel(self, job: Job) -> int:
        """Cancel all unfinished executions; running ones end with the next heartbeat. Returns how many."""
        async with self._database.writing() as connection:
            return await self._cancel_where(connection, is_unfinished(self._database.dialect, [job.job_id]), _CANCELLED)

    async def cancel_execution(self, execution: Execution) -> Execution:
        """Cancel one execution. Raises `Conflict` if it has ended."""
        async with self._database.writing() as connection:
            mine = job_executions.c.execution_id == execution.execution_id
            if not await self._cancel_where(connection, mine, _CANCELLED):
                raise Conflict(
                    f"execution {execution.execution_id} has ended already: it is {execution.state}",
                    hint=f"see how it went with: floodmark history --id {execution.execution_id}",
                )
            row = (await connection.execute(SELECT_EXECUTION.where(mine))).one()
            return execution_from_row(row)

    def _check(self, spec: JobSpec) -> dict[str, Any]:
        given = columns_of(spec)
        columns = set_budget(check_columns({**given, "name": slug(spec)} if spec.name is None else given), {})
        check_job(columns, now=self._clock.now())
        return columns

    async def _insert(self, connection: AsyncConnection, columns: Mapping[str, Any]) -> str | None:
        """Return the id of the new job, None if its name is taken."""
        now = self._now()
        values = {"job_id": new_id(), **columns, "created_at": now, "updated_at": now}
        statement = self._insert_into(jobs).values(values).on_conflict_do_nothing(index_elements=["name"])
        found: str | None = (await connection.execute(statement.returning(jobs.c.job_id))).scalar()
        return found

    async def _replace(self, connection: AsyncConnection, columns: Mapping[str, Any], spec: JobSpec) -> Job:
        """Change the job of this name to the spec, except for its `scheduler_version`."""
        query = select(jobs.c.job_id).where(jobs.c.name == columns["name"]).with_for_update(key_share=True)
        job_id = str((await connection.execute(query)).scalar_one())
        values = {name: value for name, value in columns.items() if name != "scheduler_version"}
        await self._write(connection, job_id, {**values, "paused": False, "pause_reason": None}, spec.depends_on)
        return await _read_job(connection, job_id)

    async def _write(
        self, connection: AsyncConnection, job_id: str, columns: Mapping[str, Any], on: Sequence[str] | None
    ) -> None:
        """Write the columns that differ, and increase the version by one if there are any."""
        current = await _lock_job(connection, job_id)
        changed = {name: value for name, value in columns.items() if value != current[name]}
        relinked = on is not None and await self._link(connection, job_id, current["name"], on)
        if not changed and not relinked:
            return
        now = self._now()
        this = update(jobs).where(jobs.c.job_id == job_id)
        try:
            await connection.execute(this.values(**changed, version=jobs.c.version + 1, updated_at=now))
        except IntegrityError as error:
            raise name_taken(changed.get("name", current["name"])) from error
        if not changed.keys().isdisjoint(WHEN_COLUMNS):
            # The database trigger of SQLite uses the clock of the machine; the clock of the process may be another.
            await connection.execute(this.values(planned_until=now, updated_at=now))

    async def _set(self, job: Job, values: Mapping[str, Any]) -> Job:
        """Set columns without checks: an invalid job can still be paused."""
        async with self._database.writing() as connection:
            await self._write(connection, job.job_id, values, None)
            return await _read_job(connection, job.job_id)

    async def _link(self, connection: AsyncConnection, job_id: str, name: str, on: Sequence[str]) -> bool:
        needed = await find_jobs(connection, on)
        refuse_itself(job_id, name, needed)
        return await set_dependencies(connection, self._database, job_id, needed)

    async def _cancel_where(self, connection: AsyncConnection, which: ColumnElement[bool], reason: str) -> int:
        cell, now = job_executions.c, self._now()
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


async def _lock_job(connection: AsyncConnection, job_id: str, name: str = "it") -> dict[str, Any]:
    """Return the columns that a person may change, and the version; locked until the transaction ends."""
    found = await lock_jobs(connection, [job_id])
    if not found:
        raise _gone(name)
    return found[job_id]


async def lock_jobs(connection: AsyncConnection, job_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the columns that a person may change, and the version, of several jobs by id; locked in order of name."""
    wanted = ["job_id", *SETTABLE_COLUMNS, "paused", "pause_reason", "declared", "version"]
    query = select(*(jobs.c[column] for column in wanted)).where(jobs.c.job_id.in_(job_ids)).order_by(jobs.c.name)
    # The weaker lock (key_share): other jobs may still get a dependency on these.
    rows = await connection.execute(query.with_for_update(key_share=True))
    return {row["job_id"]: dict(row) for row in rows.mappings()}


async def _find_declared(connection: AsyncConnection, names: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    """Return, by name, the id of a job and its declaration."""
    query = select(jobs.c.name, jobs.c.job_id, jobs.c.declared).where(jobs.c.name.in_(names))
    return {row.name: (row.job_id, row.declared) for row in await connection.execute(query)}


async def _read_job(connection: AsyncConnection, job_id: str) -> Job:
    found = await _read_jobs(connection, JOB_ROWS.where(jobs.c.job_id == job_id))
    if not found:
        raise _gone(job_id)
    return found[0]


async def _read_jobs(connection: AsyncConnection, query: Any) -> list[Job]:
    found = [job_from_row(tuple(row)) for row in await connection.execute(query)]
    names = await dependency_names(connection, [job.job_id for job in found]) if found else {}
    return [replace(job, depends_on=names[job.job_id]) if job.job_id in names else job for job in found]


def _mentions(text: str) -> ColumnElement[bool]:
    columns = (jobs.c.name, jobs.c.target, jobs.c.url, jobs.c.domain)
    return or_(*(func.lower(column).contains(text.lower(), autoescape=True) for column in columns))


def _require_declared(name: str, declared: str | None) -> None:
    """Refuse a job that was not created by a declaration in code."""
    if declared is None or declared.startswith("sync:"):
        origin = "added by hand" if declared is None else "made by a sync"
        raise Conflict(
            f"the job {name!r} was {origin}: the one declared in code does not replace it",
            hint=f"rename one of them, or remove this one with: floodmark rm {name}",
        )


def refuse_itself(job_id: str, name: str, needed: Sequence[str]) -> None:
    """Refuse a job that would wait for itself."""
    if job_id in needed:
        raise Conflict(f"{name} cannot wait for itself: {name} -> {name}", hint="leave it out of depends_on")


def name_taken(name: str) -> Conflict:
    """Return the error for a name that another job has."""
    return Conflict(
        f"there is already a job {name!r}",
        hint=f"choose another name, or change that one: floodmark show {name}",
    )


def version_changed(current: Mapping[str, Any], expected_version: int | None) -> Conflict:
    """Return the error for a job that is not at the expected version."""
    return Conflict(
        f"{current['name']} was changed meanwhile: it is at version {current['version']}, not {expected_version}",
        hint=f"look at it again with: floodmark show {current['name']}",
    )


def _gone(name: str) -> NotFound:
    return NotFound(f"the job {name!r} is gone: someone has deleted it", hint="see what there is with: floodmark ls")
