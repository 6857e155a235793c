"""Which jobs are stale: their targets were not read to the end for much longer than usual. Tables: jobs, watermarks."""

from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, FromClause, Select, and_, case, func, select

from floodmark.model.clock import Clock
from floodmark.model.fleet import SourceFreshness
from floodmark.model.job import SCHEDULER_VERSION, ScheduleType
from floodmark.rules import staleness as rule

from .database import Database
from .dialects import present, seconds_between
from .rule_sql import JOB_STREAM
from .tables import jobs, watermarks


class StaleJob(Struct, frozen=True, kw_only=True):
    """A job that is stale. `checked_at`: when its target was last read to the end, None if it never was."""

    job_id: str
    name: str
    source: str
    checked_at: datetime | None


class Staleness:
    """Enabled jobs that are due by themselves, last checked longer ago than twice the usual gap between two runs.

    Those of Telegram have `telegram_max_age` at least: until then they catch up by themselves. A job that was never
    checked counts from when it was made.
    """

    def __init__(self, database: Database, clock: Clock, *, telegram_max_age: timedelta) -> None:
        self._database, self._clock, self._max_age = database, clock, telegram_max_age

    async def page(self, *, limit: int = 100) -> list[StaleJob]:
        """Those that are stale now, the longest unchecked first."""
        checked = watermarks.c.last_checked_at
        query = self._stale(jobs.c.job_id, jobs.c.name, jobs.c.source, checked.label("checked_at"))
        query = query.order_by(func.coalesce(checked, jobs.c.created_at), jobs.c.name).limit(limit)
        async with self._database.reading() as connection:
            return [StaleJob(**row) for row in (await connection.execute(query)).mappings()]

    async def by_source(self, *, limit: int = 100) -> list[SourceFreshness]:
        """How fresh each source is, in order of name. Reads every job."""
        checked, is_stale = watermarks.c.last_checked_at, self._unchecked() > self._patience()
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
        async with self._database.reading() as connection:
            return [SourceFreshness(**row) for row in (await connection.execute(query.limit(limit))).mappings()]

    def condition(self, *, is_stale: bool) -> ColumnElement[bool]:
        """Whether a job is one of them, to be asked within another query. Reads every job."""
        found = self._stale(jobs.c.job_id).correlate(None)
        return jobs.c.job_id.in_(found) if is_stale else jobs.c.job_id.not_in(found)

    def counting(self) -> Select[tuple[int]]:
        """The query that counts them, to be asked together with others."""
        return self._stale(func.count())

    def _stale(self, *columns: ColumnElement[Any]) -> Select[Any]:
        is_stale = self._unchecked() > self._patience()
        return select(*columns).select_from(self._tables()).where(self._is_due(), is_stale)

    def _unchecked(self) -> ColumnElement[float]:
        """For how many seconds."""
        since = func.coalesce(watermarks.c.last_checked_at, jobs.c.created_at)
        return seconds_between(self._database, since, present(self._database, self._clock))

    def _tables(self) -> FromClause:
        return jobs.outerjoin(watermarks, watermarks.c.stream == JOB_STREAM)

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
        patient = longest(usual, self._max_age.total_seconds())
        return case((jobs.c.source == rule.PATIENT_SOURCE, patient), else_=usual)

    def _gap(self) -> ColumnElement[float]:
        """Seconds between two runs, as the job says, or as it was last planned."""
        frequencies = {frequency.value: gap.total_seconds() for frequency, gap in rule.INTERVALS.items()}
        return case(
            (jobs.c.schedule_type == ScheduleType.INTERVAL, jobs.c.interval_seconds),
            (jobs.c.schedule_type == ScheduleType.CALENDAR, case(frequencies, value=jobs.c.frequency)),
            else_=seconds_between(self._database, jobs.c.planned_until, jobs.c.next_run),
        )
