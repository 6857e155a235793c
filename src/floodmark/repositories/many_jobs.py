"""Many jobs at once: found, created, changed and removed with a few statements for hundreds of them.

Tables: `jobs`, `job_dependencies`, and `executions` of removed jobs.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace
from sqlalchemy import ColumnElement, delete, insert, select

from floodmark.model.job import Job
from floodmark.model.spec import JobSpec
from floodmark.model.strict_json import read_stored_json
from floodmark.rules.starting import JOB_DELETED
from floodmark.rules.streams import stream_name
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.dialects import chunks, is_unfinished
from floodmark.store.rows import JOB_COLUMNS, job_from_row
from floodmark.store.tables import jobs
from floodmark.store.types import Json

from .dependencies import dependency_names, reachable_edges, set_all_dependencies
from .job_changes import write_changes
from .job_checks import SETTABLE_COLUMNS, check_columns, check_job, set_budget
from .jobs import JOB_ROWS, Jobs, lock_jobs

# The columns that a bulk request may change.
_COLUMNS = (*SETTABLE_COLUMNS, "paused", "pause_reason")
_JSON = frozenset(column.name for column in jobs.c if isinstance(column.type, type(Json)))


class StoredJob(Struct, frozen=True, kw_only=True):
    """A job with its columns as the database stores them, and the mark of its declaration."""

    job: Job
    columns: Mapping[str, Any]
    declared: str | None

    @property
    def stream_key(self) -> tuple[str, str]:
        """Its source and its stream: a second job for both needs a name."""
        return self.job.source, self.job.stream


class JobWrites(Struct, frozen=True, kw_only=True):
    """What one transaction writes. `versions`: those that the decisions are based on, by id, in order of name."""

    added: Sequence[Mapping[str, Any]] = ()
    changed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    removed: Sequence[str] = ()
    depends_on: Mapping[str, Sequence[str]] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)

    @property
    def budgets(self) -> set[str | None]:
        """The budgets that the jobs get."""
        return {columns.get("budget") for columns in (*self.added, *self.changed.values())}


class OutdatedError(Exception):
    """A job was changed or removed after it was read: read it again, and decide again."""


class ManyJobs(Jobs):
    """Reads and writes many jobs."""

    def check(self, spec: JobSpec) -> dict[str, Any]:
        """Return the columns of a new job, or raise `InvalidInput`."""
        return self._check(spec)

    def check_changes(self, current: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns that changes set in a job with these columns, or raise `InvalidInput`."""
        columns = set_budget(check_columns(changes), current)
        check_job({**current, **columns}, now=self._clock.now())
        return columns

    async def find_named(self, names: Collection[str]) -> dict[str, StoredJob]:
        """Return the jobs with these names or ids, by what was given. A name counts more than an id."""
        found: dict[str, StoredJob] = {}
        for some in chunks(sorted(names)):
            by_id = await self._find(jobs.c.job_id.in_(some))
            by_name = await self._find(jobs.c.name.in_(some))
            found |= {stored.job.job_id: stored for stored in by_id} | {stored.job.name: stored for stored in by_name}
        return found

    async def find_streams(self, specs: Collection[JobSpec]) -> dict[tuple[str, str], StoredJob]:
        """Return the first job by name of each source and stream that these specs have."""
        found: list[StoredJob] = []
        for some in chunks(sorted({spec.target for spec in specs if spec.stream is None})):
            found += await self._find(jobs.c.target.in_(some), jobs.c.stream.is_(None))
        for some in chunks(sorted({stream_name(spec.stream, spec.source, spec.target) for spec in specs})):
            found += await self._find(jobs.c.stream.in_(some))
        found.sort(key=lambda stored: stored.job.name, reverse=True)
        return {stored.stream_key: stored for stored in found}

    async def find_taken(self, names: Collection[str]) -> set[str]:
        """Return the names that jobs have."""
        found: set[str] = set()
        async with self._database.reading() as connection:
            for some in chunks(sorted(names)):
                found.update((await connection.execute(select(jobs.c.name).where(jobs.c.name.in_(some)))).scalars())
        return found

    async def find_declared(self, targets: Collection[str]) -> set[str]:
        """Return those of these collectors for which a declaration in code has created a job."""
        found: set[str] = set()
        async with self._database.reading() as connection:
            for some in chunks(sorted(targets)):
                these = (jobs.c.source == "python", jobs.c.target.in_(some), jobs.c.declared.is_not(None))
                found.update((await connection.execute(select(jobs.c.target).where(*these))).scalars())
        return found

    async def find_edges(self, job_ids: Collection[str]) -> dict[str, list[str]]:
        """Return the dependencies that are reachable from these jobs."""
        edges: dict[str, list[str]] = {}
        async with self._database.reading() as connection:
            for some in chunks(sorted(job_ids)):
                edges |= await reachable_edges(connection, some)
        return edges

    async def write(self, writes: JobWrites) -> None:
        """Write all of it in one transaction. Raises `OutdatedError` if one of the jobs was changed meanwhile."""
        async with self._database.writing() as connection:
            for some in chunks(writes.removed):
                # Executions before the jobs, in the order of a worker that settles them, so that both cannot deadlock.
                await self._cancel_where(connection, is_unfinished(self._database.dialect, some), JOB_DELETED)
            await _require_versions(connection, writes.versions)
            await self._budgets.require(connection, writes.budgets)
            for gone in chunks(writes.removed):
                await connection.execute(delete(jobs).where(jobs.c.job_id.in_(gone)))
            now = self._now()
            # In order of name, so that two bulk requests cannot deadlock.
            for new in chunks(sorted(writes.added, key=lambda row: str(row["name"]))):
                statement = insert(jobs).values(created_at=now, updated_at=now).returning(jobs.c.job_id)
                await connection.execute(statement, [dict(row) for row in new])
            await write_changes(connection, writes.changed, now)
            if writes.depends_on:
                await set_all_dependencies(connection, self._database, writes.depends_on)

    async def _find(self, *where: ColumnElement[bool]) -> list[StoredJob]:
        query = JOB_ROWS.add_columns(jobs.c.declared).where(*where).order_by(jobs.c.name)
        async with self._database.reading() as connection:
            rows = [tuple(row) for row in await connection.execute(query)]
            names = await dependency_names(connection, [row[0] for row in rows]) if rows else {}
        return [_stored(row, names) for row in rows]


def _stored(row: tuple[Any, ...], needed: Mapping[str, tuple[str, ...]]) -> StoredJob:
    given = dict(zip((*JOB_COLUMNS, "declared"), row, strict=True))
    columns = {name: _read(name, given[name]) for name in _COLUMNS}
    job = replace(job_from_row(row[:-1]), depends_on=needed.get(given["job_id"], ()))
    return StoredJob(job=job, columns=columns, declared=given["declared"])


def _read(name: str, value: Any) -> Any:
    return read_stored_json(value) if name in _JSON and isinstance(value, str) else value


async def _require_versions(connection: AsyncConnection, versions: Mapping[str, int]) -> None:
    current: dict[str, Any] = {}
    for some in chunks(list(versions)):
        current |= await lock_jobs(connection, some)
    if any(job_id not in current or current[job_id]["version"] != version for job_id, version in versions.items()):
        raise OutdatedError
