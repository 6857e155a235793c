"""What ran, how it went, and how often it went well.

Where the columns of an older scheduler's `job_executions` are found here:

| there | here |
|---|---|
| execution_id, job_id, started_at, completed_at, duration_seconds, created_at | the same |
| error_message, error_details | the same; `error_details` lists every failed attempt |
| schedule_id | `job_id` |
| status | `state`: done is a success, dead a failure |
| domain, domain_config_id | those of the job |
| scan_id, metadata | `result` |

Ids begin with the time they were made, so the primary key is also the order of the history.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, and_, delete, func, or_, select

from floodmark.errors import InvalidInput, NotFound
from floodmark.model.clock import Clock
from floodmark.model.execution import ENDED, Execution, State
from floodmark.model.ids import floor_id

from .async_engine import AsyncConnection
from .database import Database
from .execution_rows import SELECT_EXECUTION, execution_from_row
from .tables import job_executions, jobs

MOST_SHOWN = 1000
# Rows deleted in one transaction: enough to be quick, few enough to keep nobody waiting.
_FORGOTTEN_AT_ONCE = 5000
# How many executions that a few digits fit are told.
_NAMED = 5

_e = job_executions.c


class ExecutionHistory:
    """Every execution, for as long as it is kept."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def get_execution(self, execution_id: str) -> Execution:
        """One run with start, end, duration, state, error and result. The beginning of its id will do."""
        typed = execution_id.strip().replace("-", "").lower()
        # A range, so that the primary key finds it: ids are hexadecimal, and "g" sorts after all of them.
        begins = and_(_e.execution_id >= typed, _e.execution_id < typed + "g")
        found = await self._read(SELECT_EXECUTION.where(or_(_e.execution_id == execution_id, begins)).limit(1 + _NAMED))
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
        """What was written down within the last `hours`, or died then, or is still unfinished; newest first."""
        since = self._before(hours=hours)
        recent = or_(
            _e.execution_id >= floor_id(since),
            _e.completed_at.is_(None),
            and_(_e.state == State.DEAD, _e.completed_at >= since),
        )
        return await self._read(_newest(SELECT_EXECUTION.where(recent), limit))

    async def get_executions_by_schedule(self, schedule_id: str, limit: int = 100) -> list[Execution]:
        """The executions of one job (by id or name), latest instant first; also after the job was deleted."""
        async with self._database.reading() as connection:
            query = of_job(SELECT_EXECUTION, await _job_id(connection, schedule_id)).limit(_bounded(limit))
            return [execution_from_row(row) for row in await connection.execute(query)]

    async def get_execution_statistics(self, days: float, job: str | None = None) -> dict[str, Any]:
        """How the executions of the last `days` went, of all jobs or of one (by id or name).

        `total_executions` counts all but the skipped, which never ran: the successful, the failed, the cancelled and
        those that have not ended. `success_rate` is in per cent of those that succeeded or failed, 0.0 if none did.
        The durations, in seconds, are theirs, None if there are none.
        """
        async with self._database.reading() as connection:
            where = [_e.execution_id >= floor_id(self._before(days=days)), _e.state != State.SKIPPED]
            if job is not None:
                where.append(_e.job_id == await _job_id(connection, job))
            row = (await connection.execute(_statistics().where(*where))).mappings().one()
        finished = row["successful"] + row["failed"]
        rate = 100.0 * row["successful"] / finished if finished else 0.0
        counts = {name: row[name] for name in ("total_executions", "successful", "failed", "cancelled")}
        durations = {name: row[name] for name in ("avg_duration", "min_duration", "max_duration")}
        return {**counts, "success_rate": rate, **durations}

    async def cleanup_old_executions(self, days: float) -> int:
        """Forget what ended and was written down more than `days` ago; how many. The unfinished stay."""
        old = and_(_e.execution_id < floor_id(self._before(days=days)), _e.state.in_(ENDED))
        some = select(_e.execution_id).where(old).order_by(_e.execution_id).limit(_FORGOTTEN_AT_ONCE)
        forgotten, last = 0, _FORGOTTEN_AT_ONCE
        while last == _FORGOTTEN_AT_ONCE:
            async with self._database.writing() as connection:
                last = (await connection.execute(delete(job_executions).where(_e.execution_id.in_(some)))).rowcount
            forgotten += last
        return forgotten

    async def page(
        self,
        job: str | None = None,
        states: Sequence[State] | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[Execution]:
        """Newest first, those of one job by their instants. The next page is `before` the id of the last one."""
        query = SELECT_EXECUTION if states is None else SELECT_EXECUTION.where(_e.state.in_(states))
        last: datetime | None = None
        async with self._database.reading() as connection:
            if job is None:
                query = _newest(query, limit)
            else:
                last = None if before is None else await _instant(connection, before)
                query = of_job(query, await _job_id(connection, job), last).limit(_bounded(limit))
            # For a job, too, if its last one was forgotten meanwhile: then so were those before it.
            if before is not None and last is None:
                query = query.where(_e.execution_id < before)
            return [execution_from_row(row) for row in await connection.execute(query)]

    async def _read(self, query: Select[Any]) -> list[Execution]:
        async with self._database.reading() as connection:
            return [execution_from_row(row) for row in await connection.execute(query)]

    def _before(self, *, days: float = 0, hours: float = 0) -> datetime:
        try:
            since = self._clock.now() - timedelta(days=days, hours=hours)
        except (OverflowError, ValueError):
            since = None
        # Ids hold no time before 1970.
        if since is None or days < 0 or hours < 0 or since.timestamp() < 0:
            raise InvalidInput(f"{days or hours} is not a time to look back", hint="use a number such as 7 or 0.5")
        return since


def of_job(query: Select[Any], job_id: str, before: datetime | None = None) -> Select[Any]:
    """The executions of a job, latest instant first.

    In the order of an index that is there anyway: in that of their ids all of them would be read and sorted for a
    page, and an index for that would make every execution dearer.
    """
    mine = query.where(_e.job_id == job_id).order_by(_e.scheduled_for.desc())
    return mine if before is None else mine.where(_e.scheduled_for < before)


def _newest(query: Select[Any], limit: int) -> Select[Any]:
    return query.order_by(_e.execution_id.desc()).limit(_bounded(limit))


def _bounded(limit: int) -> int:
    return max(1, min(limit, MOST_SHOWN))


def _statistics() -> Select[Any]:
    finished = _e.state.in_((State.DONE, State.DEAD))
    return select(
        func.count().label("total_executions"),
        func.count().filter(_e.state == State.DONE).label("successful"),
        func.count().filter(_e.state == State.DEAD).label("failed"),
        func.count().filter(_e.state == State.CANCELLED).label("cancelled"),
        func.avg(_e.duration_seconds).filter(finished).label("avg_duration"),
        func.min(_e.duration_seconds).filter(finished).label("min_duration"),
        func.max(_e.duration_seconds).filter(finished).label("max_duration"),
    ).select_from(job_executions)


async def _instant(connection: AsyncConnection, execution_id: str) -> datetime | None:
    found = await connection.execute(select(_e.scheduled_for).where(_e.execution_id == execution_id))
    instant: datetime | None = found.scalar()
    return instant


async def _job_id(connection: AsyncConnection, text: str) -> str:
    """The id behind a name, also that of a job that is gone; what is no name is taken for an id."""
    named = (await connection.execute(select(jobs.c.job_id).where(jobs.c.name == text))).scalar()
    if named is None:
        # Rare, and the newest executions are looked at first.
        gone = select(_e.job_id).where(_e.job_name == text).order_by(_e.execution_id.desc()).limit(1)
        named = (await connection.execute(gone)).scalar()
    return text if named is None else str(named)
