"""Reads how late the items of adaptive jobs are stored. Tables: `budgets`, `budget_hours`, `jobs`, `activity`,
`facts` (the last report of the leader).

It reads all adaptive jobs in parts, so that its memory does not grow with their number.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from heapq import nsmallest
from operator import itemgetter
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import func, or_, select

from floodmark.model.freshness import BudgetFreshness, JobFreshness
from floodmark.model.job import SCHEDULER_VERSION, ScheduleType
from floodmark.rules.budgets import DEFAULT_BUDGET
from floodmark.rules.freshness import decode_activity
from floodmark.rules.freshness_report import BudgetTally, UsedRequests, begin_of_use
from floodmark.rules.measures import Measures, decode_measures, fade_measures
from floodmark.store.budget_rows import terms_of
from floodmark.store.dialects import present_moment
from floodmark.store.tables import activity, budget_hours, budgets, jobs

from .fleet import FleetRepository
from .repository import Repository

# Whether it has delays or was polled, its p95 and its name: the order of sources.
SourceKey = tuple[int, float, str]

MOST_BUDGETS = 200
# The slowest sources that the leader stores: of all budgets, and of each.
MOST_MEASURED, _MOST_OF_BUDGET = 200, 50
# Few enough not to keep the event loop of the leader busy for long.
_AT_ONCE = 200
_FACT, _ALL = "freshness_report", ""
_HAS_DELAYS, _HAS_POLLS, _NEVER_POLLED = range(3)
_COLUMNS = (
    *(jobs.c[name] for name in ("job_id", "name", "source", "budget", "next_run", "hinted_at")),
    *(activity.c[name] for name in ("learned", "measured", "polled_at")),
)
_ADAPTIVE = (
    jobs.c.schedule_type == ScheduleType.ADAPTIVE,
    jobs.c.schedule_enabled,
    ~jobs.c.paused,
    jobs.c.scheduler_version == SCHEDULER_VERSION,
)


class _StoredReport(Struct, frozen=True):
    """What was measured: the budgets, and the slowest sources of each; those of all have an empty name."""

    at: datetime
    budgets: list[BudgetFreshness]
    sources: dict[str, list[JobFreshness]]


class _Slowest:
    """The slowest sources of all budgets, and of each of them if `of_each` is set, those up to `after` left out."""

    def __init__(self, limit: int, *, of_each: int = 0, after: SourceKey | None = None) -> None:
        self._limit, self._of_each, self._after = limit, of_each, after
        self._lists: dict[str, list[tuple[SourceKey, Mapping[str, Any], Measures | None]]] = {_ALL: []}

    def add(self, budget: str, row: Mapping[str, Any], measures: Measures | None) -> None:
        """Add a source."""
        key = _key(row["name"], measures)
        if self._after is not None and key <= self._after:
            return
        for name in (_ALL, budget) if self._of_each else (_ALL,):
            found = self._lists.setdefault(name, [])
            found.append((key, row, measures))
            if len(found) >= self._most(name) + _AT_ONCE:
                self._lists[name] = nsmallest(self._most(name), found, key=itemgetter(0))

    def describe(self, now: datetime) -> dict[str, list[JobFreshness]]:
        """Return the sources by budget, the slowest first; those of all budgets under `_ALL`."""
        return {
            name: [
                _describe(row, measures, now) for _, row, measures in nsmallest(self._most(name), found, itemgetter(0))
            ]
            for name, found in self._lists.items()
        }

    def _most(self, name: str) -> int:
        return self._limit if name == _ALL else self._of_each


class FreshnessReader(Repository):
    """Adds up what was measured about adaptive jobs."""

    async def read(
        self, budget: str | None = None, *, after: SourceKey | None = None, limit: int = 50
    ) -> tuple[list[BudgetFreshness], list[JobFreshness]]:
        """Return budgets, or this one, in order of name, and sources, the slowest first.

        Sources without measured delays come after the others, those that were never polled last. `after` is a place in
        this order (`key_of_source`).
        """
        slowest, now = _Slowest(limit, after=after), await self._present()
        found = await self._scan(budget, slowest, now)
        return found, slowest.describe(now)[_ALL]

    async def measure(self) -> None:
        """Store the report for `last`. Reads every adaptive job, so only the leader does it, now and then."""
        report: Any = None
        if await self._database.fetch_value(select(func.sum(budgets.c.sources))):
            slowest, now = _Slowest(MOST_MEASURED, of_each=_MOST_OF_BUDGET), await self._present()
            found = await self._scan(None, slowest, now)
            report = msgspec.to_builtins(_StoredReport(now, found, slowest.describe(now)))
        await FleetRepository(self._database, self._clock).set_fact(_FACT, report)

    async def _present(self) -> datetime:
        async with self._database.reading() as connection:
            return await present_moment(self._database, self._clock, connection)

    async def last(
        self, budget: str | None = None, *, after: SourceKey | None = None
    ) -> tuple[list[BudgetFreshness], list[JobFreshness], datetime | None]:
        """Return the last measured budgets and their slowest sources, and when they were measured."""
        report = await FleetRepository(self._database, self._clock).read_fact(_FACT, _StoredReport)
        if report is None:
            return [], [], None
        sources = report.sources.get(budget or _ALL, [])
        shown = [row for row in sources if after is None or key_of_source(row) > after]
        return [row for row in report.budgets if budget in (None, row.name)], shown, report.at

    async def _scan(self, budget: str | None, slowest: _Slowest, now: datetime) -> list[BudgetFreshness]:
        """Read all adaptive jobs, or those of a budget; return the budgets."""
        rows = await self._budgets(budget)
        tallies = {row["name"]: BudgetTally(terms_of(row, sources=row["sources"]), now) for row in rows}
        async for part in self._sources(budget):
            for row in part:
                measures = None if row["measured"] is None else decode_measures(row["measured"])
                name = row["budget"] or DEFAULT_BUDGET
                if name in tallies:
                    learned = None if row["learned"] is None else decode_activity(row["learned"])
                    tallies[name].add(learned, measures)
                slowest.add(name, row, measures)
        used = [await self._used(row, now) for row in rows]
        return [tallies[row["name"]].describe(count) for row, count in zip(rows, used, strict=True)]

    async def _budgets(self, name: str | None) -> list[dict[str, Any]]:
        query = select(budgets).order_by(budgets.c.name).limit(MOST_BUDGETS)
        async with self._database.reading() as connection:
            rows = await connection.execute(query if name is None else query.where(budgets.c.name == name))
            return [dict(row) for row in rows.mappings()]

    async def _used(self, row: Mapping[str, Any], now: datetime) -> UsedRequests:
        since = begin_of_use(row["period"], row["created_at"], now)
        first = since.replace(minute=0, second=0, microsecond=0)
        hours = (budget_hours.c.budget == row["name"], budget_hours.c.hour >= first)
        async with self._database.reading() as connection:
            count = (await connection.execute(select(func.sum(budget_hours.c.requests)).where(*hours))).scalar()
        return UsedRequests(since, int(count or 0))

    async def _sources(self, budget: str | None) -> AsyncIterator[Sequence[Mapping[str, Any]]]:
        query = select(*_COLUMNS).select_from(jobs.outerjoin(activity, activity.c.job_id == jobs.c.job_id))
        query = query.where(*_ADAPTIVE).order_by(jobs.c.job_id).limit(_AT_ONCE)
        if budget == DEFAULT_BUDGET:
            query = query.where(or_(jobs.c.budget == budget, jobs.c.budget.is_(None)))
        elif budget is not None:
            query = query.where(jobs.c.budget == budget)
        last = ""
        while True:
            async with self._database.reading() as connection:
                rows = (await connection.execute(query.where(jobs.c.job_id > last))).mappings().all()
            yield [dict(row) for row in rows]
            if len(rows) < _AT_ONCE:
                return
            last = rows[-1]["job_id"]


def key_of_source(row: JobFreshness) -> SourceKey:
    """Return the place of a source in the order."""
    return _place(row.name, row.p95_delay_seconds, row.last_poll is not None)


def _key(name: str, measures: Measures | None) -> SourceKey:
    return _place(name, None if measures is None else measures.quantile(0.95), measures is not None)


def _place(name: str, p95: float | None, is_polled: bool) -> SourceKey:
    if p95 is not None:
        return _HAS_DELAYS, -p95, name
    return (_HAS_POLLS if is_polled else _NEVER_POLLED), 0.0, name


def _describe(row: Mapping[str, Any], measures: Measures | None, now: datetime) -> JobFreshness:
    known = measures or Measures(now.timestamp())
    left = fade_measures(known, now.timestamp())
    return JobFreshness(
        job_id=row["job_id"],
        name=row["name"],
        source=row["source"],
        budget=row["budget"] or DEFAULT_BUDGET,
        mean_delay_seconds=known.mean_delay,
        median_delay_seconds=known.quantile(0.5),
        p95_delay_seconds=known.quantile(0.95),
        expected=left.expected,
        found=left.found,
        polls=left.polls,
        requests=left.requests,
        interval_seconds=1 / known.rate if known.rate else None,
        last_poll=row["polled_at"] if measures is not None else None,
        next_run=row["next_run"],
        hinted_at=row["hinted_at"],
    )
