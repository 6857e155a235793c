"""The queries of the overview, cheap enough to run every second.

Tables: `executions` by its partial indexes, `jobs` and `watermarks` by their keys, the newest rows of `outbox`, and
`facts`: the leader writes the freshness of the sources and the groups of failures there, because computing them reads
every job and many dead letters.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import ColumnElement, Select, and_, case, false, func, literal, literal_column, select

from floodmark.model.clock import Clock
from floodmark.model.dead_letters import DeadLetterGroup
from floodmark.model.execution import Hold, State
from floodmark.model.fleet import Failed, Running, SourceFreshness, Waiting
from floodmark.model.freshness_map import FreshnessMap
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.database import Database
from floodmark.store.dialects import present_moment
from floodmark.store.rule_sql import JOB_STREAM
from floodmark.store.tables import job_executions, jobs, outbox, watermarks
from floodmark.wiring.repositories import Repositories

MOST_SHOWN = 50
# Larger numbers are not counted exactly.
MOST_COUNTED = 10_000
# The newest events, by which the items of running executions are counted.
MOST_EVENTS = 5_000
_MOST_FAILED = 50
_MOST_SEARCHED = 500
_MINUTE = timedelta(minutes=1)
# Finished runs that are searched for a successful one.
_MOST_RUNS = 10
_MOST_GROUPS, _MOST_CELLS = 20, 600
_LONGEST_EXAMPLE = 1000
_FRESHNESS, _FAILURES, _MAP = "freshness", "failures", "freshness_map"

_e = job_executions.c


class Executions(Struct, frozen=True, kw_only=True):
    """The current executions."""

    at: datetime
    running_count: int
    running: list[Running]
    waiting_count: int
    waiting: list[Waiting]
    dead_letters: int
    failed: list[Failed]
    kept_last_minute: int


class _Measured(Struct, frozen=True, kw_only=True):
    at: datetime
    sources: list[SourceFreshness]


class OverviewReader:
    """Reads the parts of an overview."""

    def __init__(self, database: Database, clock: Clock, repositories: Repositories) -> None:
        self._database, self._clock, self._fleet = database, clock, repositories.fleet
        self._staleness, self._letters = repositories.staleness, repositories.dead_letters

    async def executions(self) -> Executions:
        """Return running, waiting and failed executions."""
        async with self._database.reading() as connection:
            now = await present_moment(self._database, self._clock, connection)
            counts = (await connection.execute(count_query())).one()
            rows = (await connection.execute(running_query())).all()
            events = await _read_events(connection, rows, now)
            return Executions(
                at=now,
                running_count=counts.running,
                running=[_run(row, events) for row in rows],
                waiting_count=counts.waiting,
                waiting=await _read_waiting(connection),
                dead_letters=counts.dead,
                failed=await _read_failed(connection),
                kept_last_minute=events.last_minute,
            )

    async def freshness(self) -> tuple[list[SourceFreshness], datetime | None]:
        """Return the freshness of each source, and when it was measured."""
        measured = await self._fleet.read_fact(_FRESHNESS, _Measured)
        return ([], None) if measured is None else (measured.sources, measured.at)

    async def failures(self) -> list[DeadLetterGroup]:
        """Return the dead letters by error, as they were last counted."""
        return await self._fleet.read_fact(_FAILURES, list[DeadLetterGroup]) or []

    async def freshness_map(self) -> FreshnessMap:
        """Return the freshness map, as it was last measured."""
        return await self._fleet.read_fact(_MAP, FreshnessMap) or FreshnessMap()

    async def measure(self) -> None:
        """Measure the freshness of each source, and count failures.

        It reads every job and many dead letters, so only the leader does it, now and then.
        """
        sources, (kinds, tags) = await self._staleness.by_source(), await self._staleness.by_level()
        cells, failures = await self._staleness.worst(limit=_MOST_CELLS), await self._letters.groups()
        _, now = await self._fleet.last_tick_and_now()
        count = sum(kind.jobs for kind in kinds)
        shown = [replace(group, example=group.example[:_LONGEST_EXAMPLE]) for group in failures[:_MOST_GROUPS]]
        measured = {
            _FRESHNESS: _Measured(at=now, sources=sources),
            _MAP: FreshnessMap(measured_at=now, jobs=count, kinds=kinds, tags=tags, cells=cells),
            _FAILURES: shown,
        }
        for name, value in measured.items():
            await self._fleet.set_fact(name, msgspec.to_builtins(value))


def count_query() -> Select[Any]:
    """Return the query that counts executions by state, up to a bound."""

    def of(state: State) -> Any:
        # No column, so that SQLite reads only the index of the state.
        rows: Select[Any] = select(literal_column("1")).select_from(job_executions)
        rows = rows.where(_e.state == literal(state, literal_execute=True)).limit(MOST_COUNTED)
        return select(func.count()).select_from(rows.subquery()).scalar_subquery()

    states = {"running": State.RUNNING, "waiting": State.WAITING, "dead": State.DEAD}
    return select(*(of(state).label(name) for name, state in states.items()))


def running_query() -> Select[Any]:
    """Return the query of running executions, the longest first."""
    tables = job_executions.outerjoin(jobs, jobs.c.job_id == _e.job_id).outerjoin(
        watermarks, watermarks.c.stream == JOB_STREAM
    )
    return (
        select(
            *(_e[name] for name in ("execution_id", "job_name", "worker", "attempt", "trigger", "started_at")),
            (_e.items_new + _e.items_changed).label("before"),
            jobs.c.source,
            func.coalesce(watermarks.c.items_stream, watermarks.c.stream).label("stream"),
            watermarks.c.moved_at,
            _usual_duration().label("usual_seconds"),
        )
        .select_from(tables)
        .where(_e.state == literal(State.RUNNING, literal_execute=True))
        .order_by(_e.started_at, _e.execution_id)
        .limit(MOST_SHOWN)
    )


def _usual_duration() -> Any:
    """Return the duration of the last successful run of a job, among its last runs."""
    past = job_executions.alias("past").c
    runs = select(past.state, past.duration_seconds).where(past.job_id == _e.job_id).correlate(job_executions)
    last = runs.order_by(past.scheduled_for.desc()).limit(_MOST_RUNS).subquery()
    return select(last.c.duration_seconds).where(last.c.state == State.DONE.value).limit(1).scalar_subquery()


class _Events(Struct, frozen=True):
    """The newest events: how many each running execution has stored, those of the last minute, since when they count.

    `counted_from` is None if all events were counted.
    """

    kept: Mapping[str, int]
    last_minute: int
    counted_from: datetime | None


def events_query(starts: Mapping[str, datetime], now: datetime) -> Select[Any]:
    """Return the query that counts the newest events: by stream since its start, and in the last minute."""
    recent = select(outbox.c.stream, outbox.c.created_at).order_by(outbox.c.seq.desc()).limit(MOST_EVENTS).subquery()
    at: ColumnElement[Any] = recent.c.created_at
    is_running = recent.c.stream.in_(starts)
    is_kept = and_(is_running, at >= case(starts, value=recent.c.stream)) if starts else false()
    each: Any = select(
        case((is_running, recent.c.stream), else_=None).label("stream"),
        case((is_kept, 1), else_=0).label("kept"),
        case((at > now - _MINUTE, 1), else_=0).label("last_minute"),
        at.label("at"),
    )
    # Older ones count for none of these numbers.
    each = each.where(at >= min([*starts.values(), now - _MINUTE])).subquery()
    sums = (func.sum(each.c[name]).label(name) for name in ("kept", "last_minute"))
    return select(each.c.stream, *sums, func.count().label("count"), func.min(each.c.at).label("oldest")).group_by(
        each.c.stream
    )


async def _read_events(connection: AsyncConnection, running: Sequence[Any], now: datetime) -> _Events:
    starts = {row.stream: row.started_at for row in running if row.stream is not None and row.started_at is not None}
    rows = (await connection.execute(events_query(starts, now))).all()
    is_whole = sum(row.count for row in rows) < MOST_EVENTS
    return _Events(
        {row.stream: row.kept for row in rows if row.stream is not None},
        sum(row.last_minute for row in rows),
        None if is_whole else min(row.oldest for row in rows),
    )


def _run(row: Any, events: _Events) -> Running:
    started = row.started_at
    has_kept = row.moved_at is not None and started is not None and row.moved_at >= started
    return Running(
        execution_id=row.execution_id,
        job_name=row.job_name,
        source=row.source,
        worker=row.worker,
        attempt=row.attempt,
        trigger=row.trigger,
        started_at=started,
        kept=row.before + events.kept.get(row.stream, 0),
        is_least=events.counted_from is not None and started is not None and events.counted_from > started,
        kept_at=row.moved_at if has_kept else None,
        usual_seconds=row.usual_seconds,
    )


def waiting_query(*, for_a_time: bool) -> Select[Any]:
    """Return the query of executions that wait for a time, soonest first, or for something else."""
    columns = (_e.execution_id, _e.job_name, _e.not_before.label("until"), _e.hold, _e.reason)
    query = select(*columns).where(_e.state == literal(State.WAITING, literal_execute=True))
    if not for_a_time:
        return query.where(_e.not_before.is_(None)).limit(MOST_SHOWN)
    return query.where(_e.not_before.is_not(None)).order_by(_e.not_before).limit(MOST_SHOWN)


async def _read_waiting(connection: AsyncConnection) -> list[Waiting]:
    found = [
        Waiting(**{**row, "hold": None if row["hold"] is None else Hold(row["hold"])})
        for for_a_time in (True, False)
        for row in (await connection.execute(waiting_query(for_a_time=for_a_time))).mappings()
    ]
    return found[:MOST_SHOWN]


def dead_query() -> Select[Any]:
    """Return the query of the last dead executions."""
    columns = (_e.execution_id, _e.job_name, _e.completed_at.label("at"), _e.state, _e.error_message.label("error"))
    query = select(*columns).where(_e.state == literal(State.DEAD, literal_execute=True))
    return query.order_by(_e.completed_at.desc()).limit(_MOST_FAILED)


def retried_query() -> Select[Any]:
    """Return the query of failed executions that are tried again, among the next ones."""
    names = ("execution_id", "job_name", "started_at", "state", "error_message")
    some = (
        select(*(_e[name] for name in names))
        .where(_e.state == literal(State.WAITING, literal_execute=True), _e.not_before.is_not(None))
        .order_by(_e.not_before)
        .limit(_MOST_SEARCHED)
        .subquery()
    )
    columns = (some.c.execution_id, some.c.job_name, some.c.started_at.label("at"), some.c.state)
    query = select(*columns, some.c.error_message.label("error"))
    query = query.where(some.c.error_message.is_not(None), some.c.started_at.is_not(None))
    return query.order_by(some.c.started_at.desc()).limit(_MOST_FAILED)


async def _read_failed(connection: AsyncConnection) -> list[Failed]:
    rows = [
        Failed(**{**row, "state": State(row["state"]), "error": row["error"] or ""})
        for query in (dead_query(), retried_query())
        for row in (await connection.execute(query)).mappings()
    ]
    return sorted(rows, key=lambda row: row.at, reverse=True)[:_MOST_FAILED]
