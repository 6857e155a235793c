"""Loads everything that can keep a job from running, for `explain`, in one transaction."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import and_, case, func, select

from floodmark.model.clock import Clock
from floodmark.model.execution import Execution, State
from floodmark.model.job import Job, ScheduleType
from floodmark.outbound.tables import limits
from floodmark.rules.budgets import DEFAULT_BUDGET
from floodmark.rules.dependencies import is_unmet
from floodmark.rules.explain import ExpectedPoll, JobView, Limit
from floodmark.rules.freshness import decode_activity
from floodmark.rules.lessons import Known, forecast_poll
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.budget_rows import terms_of
from floodmark.store.database import Database
from floodmark.store.dialects import is_unfinished, present_moment
from floodmark.store.execution_rows import SELECT_EXECUTION, execution_from_row
from floodmark.store.tables import activity, budgets, facts, job_dependencies, job_executions, jobs, workers

# More unfinished executions add nothing to an explanation.
_ACTIVE_SHOWN = 20
_RAN = (State.DONE, State.DEAD, State.CANCELLED)

_e = job_executions.c


class Views:
    """Loads what `explain` needs."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def load(self, job: Job, *, leader: str | None) -> JobView:
        """Return the view of a job. `leader` holds the lease of the scheduler, which may not be in the store."""
        async with self._database.reading() as connection:
            now = await present_moment(self._database, self._clock, connection)
            active = await _active(connection, job)
            fleet = (await connection.execute(_fleet(now))).one()
            return JobView(
                job=job,
                now=now,
                active=active,
                last=None if active else await _last(connection, job),
                limit=await _limit(connection, job, now),
                workers=fleet.workers,
                is_draining=fleet.is_draining is True,
                leader=leader,
                waits_for=await _waits_for(connection, job),
                ahead=await _ahead(connection, active),
                poll=await _poll(connection, job, now),
            )


async def _active(connection: AsyncConnection, job: Job) -> tuple[Execution, ...]:
    running_first = case((_e.state == State.RUNNING, 0), (_e.state == State.QUEUED, 1), else_=2)
    query = SELECT_EXECUTION.where(is_unfinished(connection.dialect.name, [job.job_id]))
    rows = await connection.execute(query.order_by(running_first, _e.scheduled_for).limit(_ACTIVE_SHOWN))
    return tuple(execution_from_row(row) for row in rows)


async def _last(connection: AsyncConnection, job: Job) -> Execution | None:
    query = SELECT_EXECUTION.where(_e.job_id == job.job_id, _e.state.in_(_RAN))
    row = (await connection.execute(query.order_by(_e.scheduled_for.desc()).limit(1))).first()
    return None if row is None else execution_from_row(row)


def _fleet(now: Any) -> Any:
    alive = select(func.count()).where(workers.c.seen_until >= now, workers.c.slots > 0).scalar_subquery()
    drain = select(facts.c.value).where(facts.c.name == "drain").scalar_subquery()
    return select(alive.label("workers"), drain.label("is_draining"))


async def _limit(connection: AsyncConnection, job: Job, now: Any) -> Limit | None:
    if job.limit_key is None:
        return None
    query = select(limits.c.key, limits.c.until, limits.c.reason).where(limits.c.key == job.limit_key)
    row = (await connection.execute(query.where(limits.c.until > now))).mappings().first()
    return None if row is None else Limit(**row)


async def _waits_for(connection: AsyncConnection, job: Job) -> tuple[str, ...]:
    """Return the names of the jobs that the next run has to wait for."""
    mine = jobs.alias("mine")
    query = (
        select(jobs.c.name, jobs.c.last_success, mine.c.last_run)
        .join(job_dependencies, job_dependencies.c.depends_on == jobs.c.job_id)
        .join(mine, mine.c.job_id == job_dependencies.c.job_id)
        .where(mine.c.job_id == job.job_id)
        .order_by(jobs.c.name)
    )
    rows = await connection.execute(query)
    return tuple(row.name for row in rows if is_unmet(row.last_success, row.last_run))


async def _ahead(connection: AsyncConnection, active: tuple[Execution, ...]) -> int:
    queued = next((execution for execution in active if execution.state is State.QUEUED), None)
    if queued is None:
        return 0
    mine = select(_e.queue_rank).where(_e.execution_id == queued.execution_id).scalar_subquery()
    query = select(func.count()).where(and_(_e.state == State.QUEUED, _e.queue_rank < mine))
    return int((await connection.execute(query)).scalar_one())


async def _poll(connection: AsyncConnection, job: Job, now: datetime) -> ExpectedPoll | None:
    """Return what is expected of the source of an adaptive job; None if its budget is not known yet."""
    if job.when.schedule_type is not ScheduleType.ADAPTIVE:
        return None
    both = budgets.outerjoin(activity, activity.c.job_id == job.job_id)
    query = select(budgets, activity.c.learned).select_from(both)
    query = query.where(budgets.c.name == (job.budget or DEFAULT_BUDGET))
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        return None
    budget, next_free = row["name"], row["next_free"]
    learned = None if row["learned"] is None else decode_activity(row["learned"])
    if learned is None:
        return ExpectedPoll(budget=budget, next_free=next_free)
    known = Known(
        learned=row["learned"],
        measured=None,
        terms=terms_of(dict(row), sources=row["sources"]),
        weight=job.weight,
        max_delay=None if job.max_delay is None else job.max_delay.total_seconds(),
    )
    return ExpectedPoll(
        budget=budget,
        next_free=next_free,
        items=forecast_poll(learned, known, now).items,
        polled_at=datetime.fromtimestamp(learned.until, UTC),
        is_dated=learned.is_dated,
    )
