"""Finds sources that are gone or late, for watches. Tables: `jobs`, `executions`; nothing is written.

A lasting state has a stable id: it is found again and again, and stored once.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from sqlalchemy import and_, literal, or_, select

from floodmark.model.clock import Clock
from floodmark.model.durations import format_duration
from floodmark.model.execution import State
from floodmark.repositories.repository import Repository
from floodmark.repositories.staleness import StaleJob, Staleness
from floodmark.rules.streams import stream_name
from floodmark.store.database import Database
from floodmark.store.dialects import chunks, present_moment
from floodmark.store.tables import job_executions, jobs

from .compiled import CompiledWatch
from .documents import WatchedTexts
from .evaluation import FoundMatch
from .excerpts import shorten
from .places import CollectingJob, StreamPlace

# Jobs that are reported as late at the same time.
MOST_LATE = 1000
_AT_ONCE = 500
# Read again, because an execution may be committed a little after its time.
_OVERLAP = timedelta(seconds=60)
_LONGEST = 500
_e, _j = job_executions.c, jobs.c


class SourceStates(Struct, frozen=True):
    """Matches of sources, and the time until which ended executions were read."""

    found: list[FoundMatch]
    until: datetime


class SourceWatcher(Repository):
    """Finds the sources that watches look for."""

    def __init__(self, database: Database, clock: Clock, staleness: Staleness) -> None:
        super().__init__(database, clock)
        self._staleness = staleness

    async def find(self, watches: Sequence[CompiledWatch], since: datetime | None) -> SourceStates:
        """Return the matches of watches for sources; `since`: the time until which executions were read before."""
        async with self._database.reading() as connection:
            now = await present_moment(self._database, self._clock, connection)
        late = [watch for watch in watches if watch.kind == "source_late"]
        gone = [watch for watch in watches if watch.kind == "source_gone"]
        found = await self._find_late(late, now) if late else []
        if gone:
            begin = min(watch.active_at for watch in gone)
            found += await self._find_gone(gone, begin if since is None else max(since - _OVERLAP, begin))
        return SourceStates(found, now)

    async def _find_late(self, watches: Sequence[CompiledWatch], now: datetime) -> list[FoundMatch]:
        stale = await self._staleness.page(limit=MOST_LATE)
        places = await self._places([job.job_id for job in stale])
        return [
            _match(watch, places[job.job_id], event_id=_late_id(job), at=now, title=title, text=text)
            for job in stale
            if job.job_id in places
            for title, text in [(f"{job.name} is late", _how_late(job, now))]
            for watch in watches
            if _is_wanted(watch, places[job.job_id], title, text)
        ]

    async def _find_gone(self, watches: Sequence[CompiledWatch], since: datetime) -> list[FoundMatch]:
        found: list[FoundMatch] = []
        async for rows in self._read_dead(since):
            ended = [row for row in rows if _is_gone(row.error_details)]
            places = await self._places([row.job_id for row in ended])
            for row in ended:
                place = places.get(row.job_id) or StreamPlace(row.job_name)
                title, text = f"{row.job_name} is gone", shorten(row.error_message or "", _LONGEST)
                event_id, at = f"gone:{row.execution_id}", row.completed_at
                found += [
                    _match(watch, place, event_id=event_id, at=at, title=title, text=text)
                    for watch in watches
                    if at >= watch.active_at and _is_wanted(watch, place, title, text)
                ]
        return found

    async def _read_dead(self, since: datetime) -> AsyncIterator[list[Any]]:
        """Yield the executions that failed permanently since a time, oldest first."""
        cells = (_e.execution_id, _e.job_id, _e.job_name, _e.completed_at, _e.error_message, _e.error_details)
        # A literal: with a parameter the planner cannot use the partial index.
        query = select(*cells).where(_e.state == literal(State.DEAD, literal_execute=True))
        after, last = since, ""
        while True:
            later = or_(_e.completed_at > after, and_(_e.completed_at == after, _e.execution_id > last))
            ordered = query.where(_e.completed_at >= after, later).order_by(_e.completed_at, _e.execution_id)
            async with self._database.reading() as connection:
                rows = list(await connection.execute(ordered.limit(_AT_ONCE)))
            yield rows
            if len(rows) < _AT_ONCE:
                return
            after, last = rows[-1].completed_at, rows[-1].execution_id

    async def _places(self, job_ids: Sequence[str]) -> Mapping[str, StreamPlace]:
        found: dict[str, StreamPlace] = {}
        cells = (_j.job_id, _j.name, _j.stream, _j.source, _j.target, _j.tags)
        for some in chunks(list(dict.fromkeys(job_ids))):
            for row in await self._database.fetch(select(*cells).where(_j.job_id.in_(some))):
                stream = stream_name(row["stream"], row["source"], row["target"])
                job = CollectingJob(
                    name=row["name"], stream=stream, source=row["source"], tags=tuple(row["tags"] or ())
                )
                found[row["job_id"]] = StreamPlace(stream, [job])
        return found


def _is_wanted(watch: CompiledWatch, place: StreamPlace, title: str, text: str) -> bool:
    return watch.filter.accepts(place) and watch.matches(WatchedTexts({}, [title, text]))


def _match(
    watch: CompiledWatch, place: StreamPlace, *, event_id: str, at: datetime, title: str, text: str
) -> FoundMatch:
    return FoundMatch(watch=watch, event_id=event_id, stream=place.stream, at=at, title=title, text=text)


def _late_id(job: StaleJob) -> str:
    """Return the id of a delay: it ends with the next complete run."""
    return f"late:{job.job_id}:{'never' if job.checked_at is None else job.checked_at.isoformat()}"


def _how_late(job: StaleJob, now: datetime) -> str:
    if job.checked_at is None:
        return "it was never read to its end"
    return f"it was last read to its end {format_duration(now - job.checked_at)} ago"


def _is_gone(details: Any) -> bool:
    """Return whether the last attempt found that the target no longer exists."""
    last = details[-1] if isinstance(details, list) and details else None
    cause = last.get("details") if isinstance(last, dict) else None
    return isinstance(cause, dict) and cause.get("is_gone") is True
