"""What the leader measures about budgets: their sources, the habits of these, the price of a request.

Tables: `budgets`, `budget_grants`, `budget_hours`; reads `jobs` and `activity`.
"""

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace
from sqlalchemy import delete, func, select, update

from floodmark.model.clock import Clock
from floodmark.model.job import SCHEDULER_VERSION, ScheduleType
from floodmark.repositories.repository import Repository
from floodmark.rules.budgets import DEFAULT_BUDGET, GRANT_EXPIRES, Terms
from floodmark.rules.freshness import (
    Activity,
    decode_activity,
    first_price,
    habits_of,
    interval_of,
    level_of,
    shape_of_week,
    week_of,
)
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.budget_rows import terms_of
from floodmark.store.database import Database
from floodmark.store.dialects import present_moment
from floodmark.store.tables import activity, budget_grants, budget_hours, budgets, jobs

_HOURLY = timedelta(hours=1)
# A new budget learns its habits and its price within minutes: it measures them again after a quarter of its age.
_SHARE_OF_AGE, _SOON = 4, timedelta(seconds=5)
_WEEK = timedelta(days=7)
_HOURS_KEPT = timedelta(days=90)
# Habits are means: this many sources show them.
_SAMPLE = 2000
# Every change of a job rings the bell.
_LEAST_PAUSE = 1.0
# What decides when the next run of a budget can be fired.
_FIRED_BY = ("sources", "interval_seconds")
_ADAPTIVE = (
    jobs.c.schedule_type == ScheduleType.ADAPTIVE,
    jobs.c.schedule_enabled,
    ~jobs.c.paused,
    jobs.c.scheduler_version == SCHEDULER_VERSION,
)


class BudgetMeasurer(Repository):
    """Measures the budgets, as the leader."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        default_requests: float,
        notify: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(database, clock)
        self._default_requests, self._notify = default_requests, notify
        self._measured_at, self._is_news = 0.0, False

    async def step(self) -> timedelta | None:
        """Measure all budgets. Returns the time to wait if the last step was just now."""
        rest = self._measured_at + _LEAST_PAUSE - time.monotonic()
        if rest > 0:
            return timedelta(seconds=rest)
        async with self._database.writing() as connection:
            now = await present_moment(self._database, self._clock, connection)
            counts = await self._count_sources(connection)
            known = {row["name"]: dict(row) for row in (await connection.execute(select(budgets))).mappings()}
            if DEFAULT_BUDGET in counts and DEFAULT_BUDGET not in known:
                known[DEFAULT_BUDGET] = await self._create_default(connection)
            await self._mark_unknown(connection, counts, known)
            for name, row in known.items():
                await self._measure(connection, name, row, counts.get(name, 0), now)
            await self._forget(connection, now)
        self._measured_at = time.monotonic()
        if self._is_news:
            # The scheduler may sleep until the next check: a budget without sources gives it nothing to wait for.
            self._is_news = False
            self._notify()
        return _SOON if any(now - known[name]["created_at"] < _HOURLY for name in counts if name in known) else None

    async def _count_sources(self, connection: AsyncConnection) -> dict[str, int]:
        query = (
            select(jobs.c.budget, func.count()).where(*_ADAPTIVE, jobs.c.budget.is_not(None)).group_by(jobs.c.budget)
        )
        return {budget: int(count) for budget, count in await connection.execute(query)}

    async def _create_default(self, connection: AsyncConnection) -> dict[str, Any]:
        requests = self._default_requests
        statement = self._insert_into(budgets).values(
            name=DEFAULT_BUDGET, requests=requests, interval_seconds=interval_of(requests, "minute", (), 0.0)
        )
        await connection.execute(statement.on_conflict_do_nothing())
        query = select(budgets).where(budgets.c.name == DEFAULT_BUDGET)
        return dict((await connection.execute(query)).mappings().one())

    async def _mark_unknown(
        self, connection: AsyncConnection, counts: Mapping[str, int], known: Mapping[str, Any]
    ) -> None:
        """Say which jobs name a budget that does not exist, and run those whose budget exists again."""
        for name in counts.keys() - known.keys():
            unmarked = jobs.c.invalid_reason.is_(None)
            this = update(jobs).where(*_ADAPTIVE, jobs.c.budget == name, unmarked)
            await connection.execute(this.values(invalid_reason=_no_budget(name)))
        for name in known:
            marked = update(jobs).where(*_ADAPTIVE, jobs.c.budget == name, jobs.c.invalid_reason == _no_budget(name))
            cleared = await connection.execute(marked.values(invalid_reason=None, next_run=None))
            self._is_news = self._is_news or cleared.rowcount > 0

    async def _measure(
        self, connection: AsyncConnection, name: str, row: Mapping[str, Any], sources: int, now: datetime
    ) -> None:
        stored: dict[str, Any] = dict(row["habits"] or {})
        terms = terms_of(row, sources=sources)
        values: dict[str, Any] = {"sources": sources}
        share = sources / terms.rate
        if terms.price is not None and sources and stored.get("share", share) != share:
            # With fewer requests for each source, each of them must find more.
            values["price"] = terms.price * (share / stored["share"]) ** 2
        is_new = now - row["created_at"] < _HOURLY
        if sources and _is_due(row, now):
            sample = await self._sample(connection, name)
            terms, stored = _learn_habits(terms, stored, sample, now)
            values["measured_at"] = now if sample else None
            if sample and (terms.price is None or is_new):
                levels = [level_of(one, terms.habits) for one in sample]
                values["price"] = first_price(sources, terms.rate, levels, terms.fairness)
        values["habits"] = {**stored, "share": share} if stored else None
        values["interval_seconds"] = await self._interval(connection, terms, now)
        if any(row[column] != value for column, value in values.items()):
            # Unless a person has changed it since it was read; that rings the bell for another step.
            this = (budgets.c.name == name, budgets.c.version == row["version"])
            await connection.execute(update(budgets).where(*this).values(values))
            self._is_news = self._is_news or any(row[column] != values[column] for column in _FIRED_BY)

    async def _sample(self, connection: AsyncConnection, name: str) -> list[Activity]:
        query = select(activity.c.learned).join(jobs, jobs.c.job_id == activity.c.job_id)
        query = query.where(jobs.c.budget == name).order_by(activity.c.job_id).limit(_SAMPLE)
        found = [decode_activity(learned) for learned in (await connection.execute(query)).scalars() if learned]
        return [one for one in found if one is not None]

    async def _interval(self, connection: AsyncConnection, terms: Terms, now: datetime) -> float:
        """Return the time between two requests from now on; a weekly budget may be used up."""
        seconds = interval_of(terms.requests, terms.period, terms.shape, now.timestamp())
        if terms.period != "week":
            return seconds
        recent = (budget_hours.c.budget == terms.name, budget_hours.c.hour > now - _WEEK)
        spent = (await connection.execute(select(func.sum(budget_hours.c.requests)).where(*recent))).scalar() or 0
        left = max(0.0, terms.requests - spent)
        return max(seconds, _HOURLY.total_seconds() / left) if left >= 1 else max(seconds, _HOURLY.total_seconds())

    async def _forget(self, connection: AsyncConnection, now: datetime) -> None:
        await connection.execute(delete(budget_grants).where(budget_grants.c.granted_at < now - 10 * GRANT_EXPIRES))
        await connection.execute(delete(budget_hours).where(budget_hours.c.hour < now - _HOURS_KEPT))


def _is_due(row: Mapping[str, Any], now: datetime) -> bool:
    """Return whether the habits of a budget are to be measured again."""
    if row["measured_at"] is None:
        return True
    age: timedelta = now - row["created_at"]
    return bool(now - row["measured_at"] > min(_HOURLY, age / _SHARE_OF_AGE))


def _learn_habits(
    terms: Terms, stored: dict[str, Any], sample: list[Activity], now: datetime
) -> tuple[Terms, dict[str, Any]]:
    """Return the terms with the habits of a sample of the sources, and how they are stored."""
    if not sample:
        return terms, stored
    habits, shape, week = habits_of(sample), terms.shape, week_of(now.timestamp())
    measured: dict[str, Any] = {"rate": habits.rate, "day": [*habits.day]}
    if terms.period == "week":
        # The same for a whole week: otherwise the hours of two shapes could add up to more than the budget.
        shape = shape if stored.get("week") == week else shape_of_week(sample, habits)
        measured |= {"shape": [*shape], "week": week}
    return replace(terms, habits=habits, shape=shape), measured


def _no_budget(name: str) -> str:
    return f"there is no budget {name!r}. Create it: floodmark budgets set {name} --per-minute 60"
