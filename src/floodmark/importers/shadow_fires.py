"""The recorded instants of the shadow, and the runs that the old scheduler has recorded.

Tables: `shadow_fires`; the row `shadow` of `facts`, which exists while the shadow is on; `jobs` and the table of the
old scheduler's runs are only read.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import (
    ColumnElement,
    DateTime,
    String,
    Text,
    and_,
    cast,
    delete,
    func,
    literal_column,
    or_,
    select,
    type_coerce,
    update,
)
from sqlalchemy.types import NullType

from floodmark.errors import InvalidInput
from floodmark.model.execution import State
from floodmark.model.handover import OUR_RECORD, OldRunsTable
from floodmark.model.job import SCHEDULER_VERSION, Job
from floodmark.repositories.jobs import JOB_ROWS
from floodmark.repositories.repository import Repository
from floodmark.store.dialects import chunks, insert_into, present_moment
from floodmark.store.rows import job_from_row
from floodmark.store.tables import facts, job_executions, jobs
from floodmark.store.types import from_text

from .catalogue import find_table
from .tables import shadow_fires

_FACT = "shadow"
# With the number written out, so that the database can use the index of these jobs.
_OLD = jobs.c.scheduler_version != literal_column(str(SCHEDULER_VERSION))
# A week of many jobs has millions of instants.
MOST_COUNTED = 100_000
_PAGE = 500
_MOST_RUNS = 500_000


class Shadowing(Struct, frozen=True, kw_only=True):
    """The period for which instants are recorded."""

    since: datetime
    until: datetime


class ShadowFires(Repository):
    """The repository of the shadow."""

    async def now(self) -> datetime:
        """Return the time by which jobs are fired."""
        async with self._database.reading() as connection:
            return await present_moment(self._database, self._clock, connection)

    async def status(self) -> Shadowing | None:
        """Return the progress; None while the shadow is off."""
        found = await self._database.fetch_value(select(facts.c.value).where(facts.c.name == _FACT))
        return None if found is None else msgspec.convert(found, Shadowing)

    async def counts(self) -> tuple[int, int]:
        """Return the number of jobs of the old scheduler, and of recorded instants up to `MOST_COUNTED`."""
        some = select(shadow_fires.c.job_id).limit(MOST_COUNTED).subquery()
        async with self._database.reading() as connection:
            old = (await connection.execute(select(func.count()).select_from(jobs).where(_OLD))).scalar_one()
            fires = (await connection.execute(select(func.count()).select_from(some))).scalar_one()
            return old, fires

    async def start(self, since: datetime) -> bool:
        """Record from then on. Returns False if the shadow was already on; it then continues unchanged."""
        value = msgspec.to_builtins(Shadowing(since=since, until=since))
        async with self._database.writing() as connection:
            now = await present_moment(self._database, self._clock, connection)
            statement = insert_into(self._database, facts).values(name=_FACT, value=value, updated_at=now)
            made = await connection.execute(
                statement.on_conflict_do_nothing(index_elements=["name"]).returning(facts.c.name)
            )
            return made.scalar() is not None

    async def stop(self) -> bool:
        """Stop recording and delete the records. Returns False if it was already off."""
        async with self._database.writing() as connection:
            gone = await connection.execute(delete(facts).where(facts.c.name == _FACT))
            await connection.execute(delete(shadow_fires))
            return bool(gone.rowcount)

    async def old_jobs(self, after: str | None = None, limit: int = _PAGE) -> list[Job]:
        """Return jobs of the old scheduler by id. The next page is `after` the id of the last one."""
        query = JOB_ROWS.where(_OLD) if after is None else JOB_ROWS.where(_OLD, jobs.c.job_id > after)
        async with self._database.reading() as connection:
            rows = await connection.execute(query.order_by(jobs.c.job_id).limit(limit))
            return [job_from_row(tuple(row)) for row in rows]

    async def record(self, fires: Sequence[tuple[str, datetime]]) -> None:
        """Store instants of jobs. An existing one is not changed."""
        for some in chunks(fires):
            async with self._database.writing() as connection:
                now = await present_moment(self._database, self._clock, connection)
                rows = [{"job_id": job_id, "scheduled_for": instant, "recorded_at": now} for job_id, instant in some]
                await connection.execute(
                    insert_into(self._database, shadow_fires).values(rows).on_conflict_do_nothing()
                )

    async def reached(self, until: datetime) -> None:
        """Store that everything up to then is recorded."""
        this = facts.c.name == _FACT
        async with self._database.writing() as connection:
            found = (await connection.execute(select(facts.c.value).where(this).with_for_update())).scalar()
            if found is None:
                return
            before = msgspec.convert(found, Shadowing)
            after = Shadowing(since=before.since, until=max(before.until, until))
            await connection.execute(update(facts).where(this).values(value=msgspec.to_builtins(after)))

    async def forget(self, before: datetime) -> int:
        """Delete older records."""
        async with self._database.writing() as connection:
            gone = await connection.execute(delete(shadow_fires).where(shadow_fires.c.scheduled_for < before))
            return gone.rowcount

    async def fires(self, of: Sequence[Job], begin: datetime, end: datetime) -> dict[str, list[datetime]]:
        """Return the recorded instants of at most a page of jobs, by id."""
        cell = shadow_fires.c
        query = select(cell.job_id, cell.scheduled_for).where(
            cell.job_id.in_([job.job_id for job in of]), cell.scheduled_for >= begin, cell.scheduled_for <= end
        )
        found: dict[str, list[datetime]] = {job.job_id: [] for job in of}
        async with self._database.reading() as connection:
            for job_id, instant in await connection.execute(query):
                found[job_id].append(instant)
        return found

    async def runs(
        self, of: Sequence[Job], record: OldRunsTable, begin: datetime, end: datetime
    ) -> dict[str, list[datetime]]:
        """Return the runs of the old scheduler for at most a page of jobs, by id."""
        ids = {key: job.job_id for job in of for key in (job.name, job.job_id)}
        async with self._database.reading() as connection:
            columns = [record.job_column, record.time_column]
            is_ours = record.table in (OUR_RECORD, job_executions.name)
            if is_ours:
                columns += [job_executions.c.trigger.name, job_executions.c.state.name]
            there = await find_table(connection, record.table, columns)
            who: ColumnElement[Any] = there.c[record.job_column]
            at: ColumnElement[Any] = there.c[record.time_column]
            key = who if isinstance(who.type, String) else cast(who, Text)
            if self._database.dialect == "sqlite":
                # In SQLite only values have types; the declared type of a column does not bind them.
                at, within = type_coerce(at, NullType()), _within_any(at, begin, end)
            else:
                within = _within(at, begin, end)
            query = select(key, at).where(key.in_(ids), within).limit(_MOST_RUNS + 1)
            if is_ours:
                # Runs that a person asked for and runs that were skipped are no runs of the schedule.
                query = query.where(there.c.trigger == "schedule", there.c.state != State.SKIPPED.value)
            rows = (await connection.execute(query)).all()
        if len(rows) > _MOST_RUNS:
            raise InvalidInput(f"there are more than {_MOST_RUNS:,} runs to compare", hint="use fewer --hours")
        return _by_job(of, ids, rows, begin, end)


def _by_job(
    of: Sequence[Job], ids: Mapping[str, str], rows: Sequence[Any], begin: datetime, end: datetime
) -> dict[str, list[datetime]]:
    found: dict[str, list[datetime]] = {job.job_id: [] for job in of}
    for key, value in rows:
        moment = _moment(value)
        if begin <= moment <= end:
            found[ids[key]].append(moment)
    return found


def _within(at: ColumnElement[Any], begin: datetime, end: datetime) -> ColumnElement[bool]:
    """Return the condition that the type of the column allows; `_by_job` filters the rest."""
    if isinstance(at.type, DateTime):
        if not at.type.timezone:
            begin, end = begin.replace(tzinfo=None), end.replace(tzinfo=None)
        return at.between(begin, end)
    if isinstance(at.type, String):
        return _day_of(at, begin, end)
    return at.between(begin.timestamp(), end.timestamp())


def _within_any(at: ColumnElement[Any], begin: datetime, end: datetime) -> ColumnElement[bool]:
    kind, value = func.typeof(at), type_coerce(at, NullType())
    return or_(
        and_(kind == "text", _day_of(at, begin, end)),
        and_(kind != "text", value.between(begin.timestamp(), end.timestamp())),
    )


def _day_of(at: ColumnElement[Any], begin: datetime, end: datetime) -> ColumnElement[bool]:
    """Return the day with one day around it, because texts have zones and a space or a T after the day."""
    day = timedelta(days=1)
    return func.substr(at, 1, 10).between(f"{begin - day:%Y-%m-%d}", f"{end + day:%Y-%m-%d}")


def _moment(value: Any) -> datetime:
    """Return the time; without a zone it is UTC, and a number is seconds since 1970."""
    try:
        if isinstance(value, str):
            return from_text(value)
        if isinstance(value, datetime):
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return datetime.fromtimestamp(float(value), UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        raise InvalidInput(
            f"{str(value)[:60]!r} is not a time",
            hint="--time-column is a timestamp, an ISO 8601 text, or seconds since 1970",
        ) from None
