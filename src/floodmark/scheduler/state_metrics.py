"""Numbers about the state of the database, for metrics. Only the leader reads them."""

from datetime import datetime
from typing import Any

from sqlalchemy import ScalarSelect, Select, func, select

from floodmark.model.clock import Clock
from floodmark.model.execution import State
from floodmark.observability.events import (
    BudgetsMeasured,
    BudgetTerms,
    StateMeasured,
    UnfinishedChannel,
    UnfinishedChannelsMeasured,
)
from floodmark.outbound.tables import limits
from floodmark.repositories.staleness import Staleness
from floodmark.sources.telegram.tables import accounts
from floodmark.store.database import Database
from floodmark.store.dialects import present
from floodmark.store.rule_sql import JOB_STREAM
from floodmark.store.tables import budgets, job_executions, jobs, outbox, watermarks

# Counting stops here: a larger number tells an operator no more, and costs more.
MOST_COUNTED = 100_000
_MOST_CHANNELS = 10_000
_MOST_BUDGETS = 1000


class StateMeasurer:
    """Counts dead letters, limits, parked accounts, stale jobs and unsent events."""

    def __init__(self, database: Database, clock: Clock, staleness: Staleness) -> None:
        self._database, self._clock, self._staleness = database, clock, staleness

    async def measure(self) -> StateMeasured:
        """Count everything in one query."""
        async with self._database.reading() as connection:
            row = (await connection.execute(self._query())).one()
        return StateMeasured(
            dead_letters=row.dead,
            limits=row.limits,
            parked_accounts=row.parked,
            stale_sources=row.stale,
            outbox_pending=row.pending,
            outbox_lag=0.0 if row.oldest is None else max(0.0, (row.now - row.oldest).total_seconds()),
        )

    async def unfinished_channels(self) -> UnfinishedChannelsMeasured:
        """Return the channels of enabled jobs with an unfinished run, which have a high-water mark."""
        query = (
            select(jobs.c.target, watermarks.c.value, watermarks.c.moved_at)
            .join(watermarks, watermarks.c.stream == JOB_STREAM)
            .where(
                jobs.c.source == "telegram",
                jobs.c.schedule_enabled,
                ~jobs.c.paused,
                watermarks.c.high_water.is_not(None),
                watermarks.c.moved_at.is_not(None),
            )
            .order_by(watermarks.c.moved_at)
            .limit(_MOST_CHANNELS)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return UnfinishedChannelsMeasured(tuple(_unfinished_channel(*row) for row in rows))

    async def read_budgets(self) -> BudgetsMeasured:
        """Return what the budgets allow at present. A weekly one allows more in some hours than in others."""
        terms = (budgets.c.name, budgets.c.requests, budgets.c.period, budgets.c.interval_seconds, budgets.c.price)
        async with self._database.reading() as connection:
            rows = await connection.execute(select(*terms).order_by(budgets.c.name).limit(_MOST_BUDGETS))
            return BudgetsMeasured(
                tuple(
                    BudgetTerms(name, 60 / interval if period == "week" else requests, price)
                    for name, requests, period, interval, price in rows
                )
            )

    def _query(self) -> Select[Any]:
        now, unsent = present(self._database, self._clock), outbox.c.sent_at.is_(None)
        oldest = select(outbox.c.created_at).where(unsent).order_by(outbox.c.seq).limit(1)
        return select(
            now.label("now"),
            _count(select(job_executions.c.execution_id).where(job_executions.c.state == State.DEAD)).label("dead"),
            _count(select(limits.c.key).where(limits.c.until > now)).label("limits"),
            _count(select(accounts.c.name).where(accounts.c.state == "parked")).label("parked"),
            self._staleness.count_query().scalar_subquery().label("stale"),
            _count(select(outbox.c.seq).where(unsent)).label("pending"),
            oldest.scalar_subquery().label("oldest"),
        )


def _unfinished_channel(target: str, value: Any, moved_at: datetime) -> UnfinishedChannel:
    number = value.get("channel") if isinstance(value, dict) else None
    return UnfinishedChannel(channel_id=target if number is None else str(number), name=target, moved_at=moved_at)


def _count(rows: Select[Any]) -> ScalarSelect[int]:
    return select(func.count()).select_from(rows.limit(MOST_COUNTED).subquery()).scalar_subquery()
