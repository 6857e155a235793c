"""The history of executions, and statistics about it.

Ids start with the time of their creation, so the primary key is also the order of the history.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    CompoundSelect,
    Integer,
    Select,
    Subquery,
    Text,
    and_,
    bindparam,
    delete,
    func,
    literal,
    literal_column,
    or_,
    select,
    true,
    union_all,
)

from floodmark.errors import InvalidInput, NotFound
from floodmark.model.execution import ACTIVE, ENDED, Execution, ExecutionMark, State
from floodmark.model.ids import floor_id
from floodmark.rules.minutes import begin_of_minute
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.database import encode_json
from floodmark.store.execution_rows import SELECT_EXECUTION, execution_from_row, read_executions
from floodmark.store.tables import IS_RARE, RARE_STATES, audit, job_executions, minutes

from .name_search import try_job
from .repository import Repository, bound_limit

MOST_SHOWN = 1000
# Rows deleted in one transaction: enough to be fast, few enough not to block others.
_DELETED_AT_ONCE = 5000
# The newest executions, in which the name of a deleted job is searched if the audit log does not have it.
_NAMES_SEARCHED = 10_000
# More executions are not counted one by one: those of one job, and those of all jobs.
_MOST_OF_JOB, _MOST_COUNTED = 10_000, 20_000
# The leader counts every minute soon after it has begun.
_COUNTED_WITHIN = timedelta(minutes=5)
# The most executions listed for an ambiguous id.
_NAMED = 5

_e = job_executions.c


class ExecutionHistory(Repository):
    """Reads executions, and deletes old ones."""

    async def get_execution(self, execution_id: str) -> Execution:
        """Return one execution, by its id or the unique beginning of its id."""
        typed = execution_id.strip().replace("-", "").lower()
        # A range, so that the primary key is used: ids are hexadecimal, and "g" sorts after all digits.
        begins = and_(_e.execution_id >= typed, _e.execution_id < typed + "g")
        query = SELECT_EXECUTION.where(or_(_e.execution_id == execution_id, begins)).limit(1 + _NAMED)
        found = await read_executions(self._database, query)
        exact = [execution for execution in found if execution.execution_id in (execution_id, typed)]
        if exact or (typed and len(found) == 1):
            return (exact or found)[0]
        if typed and found:
            fitting = ", ".join(f"{execution.execution_id} ({execution.job_name})" for execution in found[:_NAMED])
            more = " and others" if len(found) > _NAMED else ""
            raise InvalidInput(
                f"{execution_id!r} fits several executions", hint=f"write more of the id: {fitting}{more}"
            )
        raise NotFound(f"there is no execution {execution_id[:60]!r}", hint="see what there is with: floodmark history")

    async def get_recent_executions(self, hours: float, limit: int = MOST_SHOWN) -> list[Execution]:
        """Return executions that were created or died in the last `hours`, or are unfinished; newest first."""
        since = self._before(hours=hours)
        recent = or_(
            _e.execution_id >= floor_id(since),
            _e.completed_at.is_(None),
            and_(_e.state == State.DEAD, _e.completed_at >= since),
        )
        return await read_executions(self._database, _newest(SELECT_EXECUTION.where(recent), limit))

    async def get_executions_by_schedule(self, schedule_id: str, limit: int = 100) -> list[Execution]:
        """Return the executions of a job (by id or name), latest instant first; also of a deleted job."""
        return await self.page(await self.find_job_id(schedule_id), limit=limit)

    async def find_job_id(self, text: str) -> str:
        """Return the id of a job by its name, its id or a unique beginning, also of a deleted job.

        A text that names no job is returned as it is. `InvalidInput` lists the matches of an ambiguous beginning.
        """
        async with self._database.reading() as connection:
            found = await try_job(connection, text) or await _find_deleted(connection, text)
            return text if found is None else found

    async def latest(self, job_ids: Sequence[str], count: int) -> list[ExecutionMark]:
        """Return the latest executions of each of several jobs, latest first."""
        ids = list(dict.fromkeys(job_ids))
        is_postgres = self._database.dialect == "postgresql"
        query = _LATEST_POSTGRES if is_postgres else _LATEST_SQLITE
        given = {"job_ids": ids if is_postgres else encode_json(ids), "count": count}
        found = await self._database.fetch(query.params(given))
        marks = [ExecutionMark(**{**row, "state": State(row["state"])}) for row in found]
        return sorted(marks, key=lambda mark: mark.scheduled_for, reverse=True)

    async def get_execution_statistics(self, days: float, job: str | None = None) -> dict[str, Any]:
        """Return statistics of the last `days`, of all jobs or of one (by id or name).

        `total_executions` counts all executions except skipped ones. `success_rate` is the percentage of successful
        ones among those that succeeded or failed, 0.0 if there are none. The durations of the same executions are in
        seconds, None if there are none.

        Of one job, the last 10,000 executions are counted. If all jobs have more than 20,000, the numbers are those
        that the leader has counted by the minute, and the durations are those of the newest 20,000.
        """
        return await self.statistics_of(days, None if job is None else await self.find_job_id(job))

    async def statistics_of(self, days: float, job_id: str | None = None) -> dict[str, Any]:
        """Return the statistics of all jobs, or of the one with this id."""
        since = self._before(days=days)
        async with self._database.reading() as connection:
            counted = None if job_id is not None else await self._read_counted(connection, since)
            some = _newest(_STATISTICS, _MOST_COUNTED) if counted else _STATISTICS
            some = some if job_id is None else of_job(_STATISTICS, job_id).limit(_MOST_OF_JOB)
            if job_id is None:
                some = some.where(_e.execution_id >= floor_id(since))
            row = dict((await connection.execute(_statistics(some.subquery(), since))).mappings().one())
        return _shape_statistics({**row, **(counted or {})})

    async def _read_counted(self, connection: AsyncConnection, since: datetime) -> dict[str, int] | None:
        """Return the numbers that the leader has counted; None if there are few executions, or they are not counted."""
        recent = select(_e.execution_id).where(_e.execution_id >= floor_id(since)).order_by(_e.execution_id)
        if (await connection.execute(recent.offset(_MOST_COUNTED).limit(1))).first() is None:
            return None
        first = begin_of_minute(since)
        oldest = select(minutes.c.minute).where(minutes.c.created.is_not(None), minutes.c.minute <= first).limit(1)
        newest = select(func.max(minutes.c.counted_at)).where(minutes.c.minute >= self._clock.now() - _COUNTED_WITHIN)
        if (await connection.execute(oldest)).first() is None or (await connection.execute(newest)).scalar() is None:
            return None
        names = {"total_executions": minutes.c.created - minutes.c.skipped, "successful": minutes.c.done}
        names |= {"failed": minutes.c.dead, "cancelled": minutes.c.cancelled}
        sums = (func.coalesce(func.sum(column), 0).label(name) for name, column in names.items())
        row = (await connection.execute(select(*sums).where(minutes.c.minute >= first))).mappings().one()
        return {name: int(value) for name, value in row.items()}

    async def cleanup_old_executions(self, days: float) -> int:
        """Delete ended executions that were created more than `days` ago. Returns how many."""
        old = and_(_e.execution_id < floor_id(self._before(days=days)), _e.state.in_(ENDED))
        some = select(_e.execution_id).where(old).order_by(_e.execution_id).limit(_DELETED_AT_ONCE)
        deleted, last = 0, _DELETED_AT_ONCE
        while last == _DELETED_AT_ONCE:
            async with self._database.writing() as connection:
                last = (await connection.execute(delete(job_executions).where(_e.execution_id.in_(some)))).rowcount
            deleted += last
        return deleted

    async def page(
        self,
        job_id: str | None = None,
        states: Sequence[State] | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[Execution]:
        """Return executions, newest first; those of one job latest instant first.

        The next page is `before` the id of the last one.
        """
        query = SELECT_EXECUTION if states is None else SELECT_EXECUTION.where(_e.state.in_(states))
        last: datetime | None = None
        async with self._database.reading() as connection:
            if job_id is None and states is not None:
                # The ids first: those of a state may have to be sorted, and rows are long.
                ids = select(_newest_in(states, before, limit).subquery())
                query = _newest(SELECT_EXECUTION.where(_e.execution_id.in_(ids)), limit)
            elif job_id is None:
                query = _newest(query, limit)
            else:
                last = None if before is None else await _instant(connection, before)
                query = of_job(query, job_id, last).limit(bound_limit(limit, MOST_SHOWN))
                if states is not None and set(states).issubset(RARE_STATES):
                    # As the condition of the partial index is written: SQLite uses it for nothing else.
                    query = query.where(literal_column(IS_RARE))
            # Also for a job if the last execution was deleted meanwhile, because older ones were deleted too.
            if before is not None and last is None:
                query = query.where(_e.execution_id < before)
            return [execution_from_row(row) for row in await connection.execute(query)]

    def _before(self, *, days: float = 0, hours: float = 0) -> datetime:
        try:
            since = self._clock.now() - timedelta(days=days, hours=hours)
        except (OverflowError, ValueError):
            since = None
        # Ids contain no time before 1970.
        if since is None or days < 0 or hours < 0 or since.timestamp() < 0:
            raise InvalidInput(f"{days or hours} is not a time to look back", hint="use a number such as 7 or 0.5")
        return since


def of_job(query: Select[Any], job_id: str | ColumnElement[str], before: datetime | None = None) -> Select[Any]:
    """Return a query for the executions of a job, latest instant first.

    An existing index has this order. In the order of ids, all executions of the job would be sorted for each page, and
    one more index would make every execution slower.
    """
    mine = query.where(_e.job_id == job_id).order_by(_e.scheduled_for.desc())
    return mine if before is None else mine.where(_e.scheduled_for < before)


# The latest executions of each of some jobs, which read only the end of an index for each. Built once: a page of jobs
# would spend more time on building the query than on reading.
_MARK = select(*(_e[name] for name in ExecutionMark.__struct_fields__))
_COUNT = bindparam("count", type_=Integer)


def _latest_by_unnest() -> Select[Any]:
    wanted = func.unnest(bindparam("job_ids", type_=ARRAY(Text))).table_valued("job_id", name="wanted").render_derived()
    part = of_job(_MARK, wanted.c.job_id).limit(_COUNT).lateral()
    return select(part).select_from(wanted.join(part, true()))


def _latest_by_json() -> Select[Any]:
    wanted = func.json_each(bindparam("job_ids", type_=Text)).table_valued("value", name="wanted")
    latest = job_executions.alias("latest").c
    ids = select(latest.execution_id).where(latest.job_id == wanted.c.value).order_by(latest.scheduled_for.desc())
    return _MARK.select_from(wanted.join(job_executions, _e.execution_id.in_(ids.limit(_COUNT).correlate(wanted))))


_LATEST_POSTGRES, _LATEST_SQLITE = _latest_by_unnest(), _latest_by_json()


def _newest(query: Select[Any], limit: int) -> Select[Any]:
    return query.order_by(_e.execution_id.desc()).limit(bound_limit(limit, MOST_SHOWN))


def _newest_in(states: Sequence[State], before: str | None, limit: int) -> CompoundSelect[Any]:
    """Return a query for the newest ids in some states.

    One part per state, with the state written out, so that both databases use the partial index of the state.
    """
    parts = []
    for state in dict.fromkeys(states):
        ids = select(_e.execution_id).where(_e.state == literal(state, literal_execute=True))
        ids = ids if before is None else ids.where(_e.execution_id < before)
        # Unfinished ones are few and sorted here: in the order of the primary key all others would be read first.
        order = _e.execution_id + literal("") if state in ACTIVE else _e.execution_id
        parts.append(select(ids.order_by(order.desc()).limit(bound_limit(limit, MOST_SHOWN)).subquery()))
    return union_all(*parts)


_STATISTICS = select(_e.execution_id, _e.state, _e.duration_seconds)


def _statistics(some: Subquery, since: datetime) -> Select[Any]:
    """Return the query that counts those of some executions that were created since then."""
    one = some.c
    finished = one.state.in_((State.DONE, State.DEAD))
    return select(
        func.count().label("total_executions"),
        func.count().filter(one.state == State.DONE).label("successful"),
        func.count().filter(one.state == State.DEAD).label("failed"),
        func.count().filter(one.state == State.CANCELLED).label("cancelled"),
        func.avg(one.duration_seconds).filter(finished).label("avg_duration"),
        func.min(one.duration_seconds).filter(finished).label("min_duration"),
        func.max(one.duration_seconds).filter(finished).label("max_duration"),
    ).where(one.execution_id >= floor_id(since), one.state != State.SKIPPED)


def _shape_statistics(row: Mapping[str, Any]) -> dict[str, Any]:
    finished = row["successful"] + row["failed"]
    rate = 100.0 * row["successful"] / finished if finished else 0.0
    counts = {name: row[name] for name in ("total_executions", "successful", "failed", "cancelled")}
    durations = {name: row[name] for name in ("avg_duration", "min_duration", "max_duration")}
    return {**counts, "success_rate": rate, **durations}


async def _instant(connection: AsyncConnection, execution_id: str) -> datetime | None:
    found = await connection.execute(select(_e.scheduled_for).where(_e.execution_id == execution_id))
    instant: datetime | None = found.scalar()
    return instant


async def _find_deleted(connection: AsyncConnection, text: str) -> str | None:
    """Return the id of a deleted job by its id or name."""
    ended = select(_e.job_id).where(_e.job_id == text).limit(1)
    removed = select(audit.c.before).where(audit.c.object == f"job:{text}", audit.c.action == "job.removed")
    newest = select(_e.job_id, _e.job_name).order_by(_e.execution_id.desc()).limit(_NAMES_SEARCHED).subquery()
    # No index has the names of deleted jobs. The audit log has those that a person deleted.
    named = select(newest.c.job_id).where(newest.c.job_name == text).limit(1)
    if (found := (await connection.execute(ended)).scalar()) is not None:
        return str(found)
    before = (await connection.execute(removed.order_by(audit.c.seq.desc()).limit(1))).scalar()
    if isinstance(before, dict) and isinstance(before.get("job_id"), str):
        return str(before["job_id"])
    found = (await connection.execute(named)).scalar()
    return None if found is None else str(found)
