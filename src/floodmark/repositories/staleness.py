"""How late jobs are: stale ones, and the level of each for the freshness map.

Tables: `jobs`, `watermarks`, `budgets`, `activity`.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from sqlalchemy import (
    ColumnElement,
    Float,
    FromClause,
    RowMapping,
    Select,
    Text,
    and_,
    case,
    cast,
    func,
    literal,
    select,
    true,
)

from floodmark.model.clock import Clock
from floodmark.model.fleet import SourceFreshness
from floodmark.model.freshness_map import FreshnessLevel, MapCell, MapGroup
from floodmark.model.job import SCHEDULER_VERSION, ScheduleType
from floodmark.rules import staleness as rule
from floodmark.rules.freshness import default_max_delay, rate_of
from floodmark.store.database import Database
from floodmark.store.dialects import json_entries, present, seconds_between
from floodmark.store.rule_sql import JOB_STREAM
from floodmark.store.tables import activity, budgets, jobs, watermarks

# Kinds of sources and tags, times the levels.
_MOST_GROUPED = 6000
_TAGS_SHOWN = 5


class StaleJob(Struct, frozen=True, kw_only=True):
    """A stale job. `checked_at`: when its target was last read to the end, None if never."""

    job_id: str
    name: str
    source: str
    checked_at: datetime | None


class Staleness:
    """Finds enabled, timed jobs whose last check is longer ago than twice the usual time between two runs.

    `find_patience` returns, by the name of a source, for how long it catches up by itself: before that its jobs are not
    stale. For a job that was never checked, the time since its creation counts.
    """

    def __init__(
        self, database: Database, clock: Clock, *, find_patience: Callable[[], Mapping[str, timedelta]]
    ) -> None:
        self._database, self._clock, self._find_patience = database, clock, find_patience

    async def page(self, *, limit: int = 100) -> list[StaleJob]:
        """Return stale jobs, the longest unchecked first."""
        checked = watermarks.c.last_checked_at
        query = self._stale(jobs.c.job_id, jobs.c.name, jobs.c.source, checked.label("checked_at"))
        query = query.order_by(func.coalesce(checked, jobs.c.created_at), jobs.c.name).limit(limit)
        return [StaleJob(**row) for row in await self._database.fetch(query)]

    async def by_source(self, *, limit: int = 100) -> list[SourceFreshness]:
        """Return the freshness of each source, in order of name. Reads every job."""
        checked, is_stale = watermarks.c.last_checked_at, self._seconds_unchecked() > self._patience()
        query = (
            select(
                jobs.c.source,
                func.count().label("jobs"),
                func.sum(case((is_stale, 1), else_=0)).label("stale"),
                func.max(checked).label("checked_at"),
                func.min(func.coalesce(checked, jobs.c.created_at)).label("longest_at"),
                func.max(watermarks.c.last_parsed_at).label("parsed_at"),
            )
            .select_from(self._tables())
            .where(self._is_due())
            .group_by(jobs.c.source)
            .order_by(jobs.c.source)
        )
        return [SourceFreshness(**row) for row in await self._read_all(query.limit(limit))]

    async def by_level(self, *, kinds: int = 100, tags: int = 50) -> tuple[list[MapGroup], list[MapGroup]]:
        """Return the number of jobs of each level by kind of source, and by tag. Reads every job."""
        level = self._level().label("level")
        one = select(jobs.c.source.label("name"), level).select_from(self._tables()).subquery()
        by_kind = await self._count_levels(one)
        tag = json_entries(self._database, jobs.c.tags)
        tagged = select(tag.c.value.label("name"), level).select_from(self._tables().join(tag, true()))
        two = tagged.where(cast(jobs.c.tags, Text) != "[]").subquery()
        by_tag = await self._count_levels(two)
        return sorted(by_kind, key=lambda group: group.name)[:kinds], sorted(by_tag, key=_lateness_of)[:tags]

    async def _count_levels(self, each: Any) -> list[MapGroup]:
        query = select(each.c.name, each.c.level, func.count().label("count")).group_by(each.c.name, each.c.level)
        found: dict[str, dict[FreshnessLevel, int]] = {}
        for row in await self._read_all(query.limit(_MOST_GROUPED)):
            found.setdefault(row["name"], {})[FreshnessLevel(row["level"])] = row["count"]
        return [MapGroup(name=name, jobs=sum(levels.values()), levels=levels) for name, levels in found.items()]

    async def worst(self, *, limit: int) -> list[MapCell]:
        """Return the jobs that are latest for their own rhythm, the worst first. Reads every job."""
        is_due, unchecked, patience = self._is_due(), self._seconds_unchecked(), self._patience()
        severity = case((is_due, unchecked / patience), else_=-1.0)
        query = (
            select(
                *(jobs.c[name] for name in ("job_id", "name", "source", "tags")),
                watermarks.c.last_checked_at.label("checked_at"),
                self._level().label("level"),
                case((is_due, self._usual()), else_=None).label("usual_seconds"),
            )
            .select_from(self._tables())
            .order_by(severity.desc(), jobs.c.name)
            .limit(limit)
        )
        rows = await self._read_all(query)
        return [
            MapCell(**{**row, "tags": tuple(row["tags"] or ())[:_TAGS_SHOWN], "level": FreshnessLevel(row["level"])})
            for row in rows
        ]

    async def _read_all(self, query: Select[Any]) -> Sequence[RowMapping]:
        """Return the rows of a query that reads every job, which may take longer than a person waits."""
        async with self._database.reading_long() as connection:
            rows: Sequence[RowMapping] = (await connection.execute(query)).mappings().all()
        return rows

    def condition(self, *, is_stale: bool) -> ColumnElement[bool]:
        """Return the condition that a job is stale, or is not, for another query.

        It is computed for one job after the other, so that a page reads no more of them than it needs.
        """
        one = select(literal(1).label("one")).subquery("one")
        related = one.outerjoin(watermarks, watermarks.c.stream == JOB_STREAM)
        related = related.outerjoin(budgets, budgets.c.name == jobs.c.budget)
        related = related.outerjoin(activity, activity.c.job_id == jobs.c.job_id)
        found = and_(self._is_due(), self._seconds_unchecked() > self._patience())
        answer = select(found).select_from(related).correlate(jobs).scalar_subquery()
        return answer if is_stale else ~answer

    def count_query(self) -> Select[tuple[int]]:
        """Return the query that counts stale jobs."""
        return self._stale(func.count())

    def _stale(self, *columns: ColumnElement[Any]) -> Select[Any]:
        is_stale = self._seconds_unchecked() > self._patience()
        return select(*columns).select_from(self._tables()).where(self._is_due(), is_stale)

    def _seconds_unchecked(self) -> ColumnElement[float]:
        """Return the seconds since the last check."""
        since = func.coalesce(watermarks.c.last_checked_at, jobs.c.created_at)
        return seconds_between(self._database, since, present(self._database, self._clock))

    def _tables(self) -> FromClause:
        with_watermarks = jobs.outerjoin(watermarks, watermarks.c.stream == JOB_STREAM)
        with_budgets = with_watermarks.outerjoin(budgets, budgets.c.name == jobs.c.budget)
        return with_budgets.outerjoin(activity, activity.c.job_id == jobs.c.job_id)

    def _is_due(self) -> ColumnElement[bool]:
        return and_(
            jobs.c.schedule_enabled,
            ~jobs.c.paused,
            jobs.c.scheduler_version == SCHEDULER_VERSION,
            jobs.c.schedule_type.in_(rule.TIMED),
        )

    def _patience(self) -> ColumnElement[float]:
        longest = func.greatest if self._database.dialect == "postgresql" else func.max
        usual = longest(rule.GAPS * func.coalesce(self._gap(), 0.0), rule.SHORTEST.total_seconds())
        patient = {name: longest(usual, time.total_seconds()) for name, time in self._find_patience().items()}
        return case(patient, value=jobs.c.source, else_=usual) if patient else usual

    def _level(self) -> ColumnElement[str]:
        """Return `rules.staleness.freshness_level` of a job; `off` if it is not timed."""
        unchecked, patience = self._seconds_unchecked(), self._patience()
        longest = func.greatest if self._database.dialect == "postgresql" else func.max
        fresh = longest(rule.FRESH_GAPS * func.coalesce(self._usual(), 0.0), rule.SHORTEST.total_seconds())
        return case(
            (~self._is_due(), FreshnessLevel.OFF.value),
            (unchecked > rule.VERY_LATE * patience, FreshnessLevel.VERY_LATE.value),
            (unchecked > patience, FreshnessLevel.LATE.value),
            (watermarks.c.last_checked_at.is_(None), FreshnessLevel.NEW.value),
            (unchecked <= fresh, FreshnessLevel.FRESH.value),
            else_=FreshnessLevel.BEHIND.value,
        )

    def _usual(self) -> ColumnElement[float]:
        """Return `rules.staleness.usual_pause` of an adaptive job, and the seconds between two runs of any other."""
        gap = self._gap()
        least = func.least if self._database.dialect == "postgresql" else func.min
        planned = seconds_between(self._database, activity.c.polled_at, jobs.c.next_run)
        is_planned = and_(jobs.c.schedule_type == ScheduleType.ADAPTIVE, jobs.c.next_run > activity.c.polled_at)
        return case((and_(is_planned, gap.is_(None)), planned), (is_planned, least(planned, gap)), else_=gap)

    def _gap(self) -> ColumnElement[float]:
        """Return the seconds between two runs, by the job's schedule or by its last planning."""
        frequencies = {frequency.value: gap.total_seconds() for frequency, gap in rule.INTERVALS.items()}
        return case(
            (jobs.c.schedule_type == ScheduleType.INTERVAL, jobs.c.interval_seconds),
            (jobs.c.schedule_type == ScheduleType.CALENDAR, case(frequencies, value=jobs.c.frequency)),
            (
                jobs.c.schedule_type == ScheduleType.ADAPTIVE,
                func.coalesce(jobs.c.max_delay_seconds, budgets.c.max_delay_seconds, _default_max_delay()),
            ),
            else_=seconds_between(self._database, jobs.c.planned_until, jobs.c.next_run),
        )


def _lateness_of(group: MapGroup) -> tuple[int, int, str]:
    """Return the sort key of a group: those with the most late sources first, then the largest."""
    late = group.levels.get(FreshnessLevel.VERY_LATE, 0) + group.levels.get(FreshnessLevel.LATE, 0)
    return -late, -group.jobs, group.name


def _default_max_delay() -> ColumnElement[float]:
    """Return `rules.freshness.default_max_delay` of the budget of a job."""
    a_week, a_minute = (default_max_delay(1, rate_of(1, period)) for period in ("week", "minute"))
    of_one = case((budgets.c.period == "week", a_week), else_=a_minute)
    return cast(budgets.c.sources * of_one / budgets.c.requests, Float)
