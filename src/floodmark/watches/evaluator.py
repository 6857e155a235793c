"""Evaluates watches on new events, by position. Only the leader does, and a second leader does no harm.

The matches of a batch and the position after it are committed together. After a crash the batch is evaluated again.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from datetime import datetime, timedelta
from typing import TypeVar

import structlog

from floodmark.model.clock import Clock
from floodmark.observability.events import Events, WatchesEvaluated
from floodmark.process.failpoints import failpoint
from floodmark.sources.cookies.stored_reports import Scans
from floodmark.store.database import Database

from .evaluation import Evaluated, FoundMatch, evaluate, matched_before
from .event_reader import EventReader, WatchedEvent
from .index import WatchSet
from .loading import LoadedWatches
from .match_repository import MatchRepository
from .places import StreamPlace, StreamPlaces
from .rows import EvaluatorState, read_state
from .scans import match_scan
from .sources import SourceWatcher

_AT_ONCE = 500
# Finding late sources reads all jobs.
_SOURCES_EVERY_SECONDS = 15.0
_GONE_UNTIL = "gone_until"

Places = Mapping[str, StreamPlace]
T = TypeVar("T")


class EventMatcher:
    """Matches events and watches, without storing anything."""

    def __init__(self, database: Database, clock: Clock, threads: Executor) -> None:
        self.reader, self._places = EventReader(database, clock), StreamPlaces(database, clock)
        self._scans, self._threads = Scans(database), threads

    async def match(self, events: Sequence[WatchedEvent], watches: WatchSet) -> tuple[list[FoundMatch], int]:
        """Return the matches of events in order, and the number of events that were examined: there is a limit."""
        places = await self._places.of(event.stream for event in events)
        found = await self._run(lambda: evaluate(events, watches, places))
        for event_id, error in found.failures:
            structlog.get_logger().error("item cannot be evaluated", item=event_id, error=error)
        matches = [*found.matches, *await self._newly_matching(found), *await self._match_scans(found, places)]
        return sorted(matches, key=lambda match: match.position or 0), found.examined

    async def _newly_matching(self, found: Evaluated) -> list[FoundMatch]:
        """Return the matches of changed items that did not match before."""
        if not found.changed:
            return []
        before = await self.reader.previous([event for event, _ in found.changed])

        def compare() -> list[FoundMatch]:
            return [
                match
                for event, match in found.changed
                if event.event_id not in before or not matched_before(match, before[event.event_id])
            ]

        return await self._run(compare)

    async def _match_scans(self, found: Evaluated, places: Places) -> list[FoundMatch]:
        matches: list[FoundMatch] = []
        for event, data, watches in found.scans:
            try:
                matches += await match_scan(self._scans, event, data, watches, places[event.stream])
            except (KeyError, TypeError, ValueError) as error:
                # A collector may store what looks like a report.
                structlog.get_logger().error("scan cannot be evaluated", item=event.event_id, error=repr(error))
        return matches

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


class WatchEvaluator:
    """Moves through the events and stores matches. `notify` is called when there is something to send."""

    def __init__(
        self,
        database: Database,
        events: Events,
        *,
        watches: LoadedWatches,
        matcher: EventMatcher,
        matches: MatchRepository,
        sources: SourceWatcher,
        notify: Callable[[], object],
    ) -> None:
        self._database, self._events, self._watches, self._matcher = database, events, watches, matcher
        self._matches, self._sources, self._notify = matches, sources, notify
        self._sources_at = 0.0

    async def step(self) -> timedelta | None:
        """Evaluate one batch; return zero if there is more to do."""
        state = await read_state(self._database)
        if state is None:
            # There was never a watch.
            return None
        watches = await self._watches.at(state.generation)
        if not await self._match_sources(state, watches):
            return timedelta()
        return await self._match_events(state, watches)

    async def _match_events(self, state: EvaluatorState, watches: WatchSet) -> timedelta | None:
        events = await self._matcher.reader.after(state.position, _AT_ONCE)
        if not events:
            await self._check_position(state)
            self._events.emit(WatchesEvaluated(events=0, matches=0, suppressed=0, lag=0.0))
            return None
        if events[0].position > state.position + 1:
            structlog.get_logger().warning(
                "events were deleted before watches had read them", after=state.position, before=events[0].position
            )
        found, examined = await self._matcher.match(events, watches)
        failpoint("watch.evaluated")
        last = events[examined - 1]
        if not await self._store(found, state, position=last.position, events=examined, lag_of=last.collected_at):
            return timedelta()
        return timedelta() if len(events) == _AT_ONCE or examined < len(events) else None

    async def _store(
        self, found: Sequence[FoundMatch], state: EvaluatorState, *, position: int, events: int, lag_of: datetime
    ) -> bool:
        stored = await self._matches.store(found, state, position=position)
        if stored is None:
            return False
        failpoint("watch.stored")
        lag = (await self._matches.now() - lag_of).total_seconds()
        self._events.emit(
            WatchesEvaluated(events=events, matches=stored.new, suppressed=stored.suppressed, lag=max(0.0, lag))
        )
        if stored.is_due:
            self._notify()
        return True

    async def _match_sources(self, state: EvaluatorState, watches: WatchSet) -> bool:
        """Look for sources that are gone or late, now and then; return False if the state has changed meanwhile."""
        now = time.monotonic()
        if now < self._sources_at:
            return True
        wanted = [watch for watch in watches.all() if watch.kind in ("source_gone", "source_late")]
        if not wanted:
            return True
        since = state.memory.get(_GONE_UNTIL)
        states = await self._sources.find(wanted, None if since is None else datetime.fromisoformat(since))
        self._sources_at = now + _SOURCES_EVERY_SECONDS
        memory = {_GONE_UNTIL: states.until.isoformat()}
        stored = await self._matches.store(states.found, state, position=state.position, memory=memory)
        if stored is None:
            self._sources_at = 0.0
            return False
        if stored.is_due:
            self._notify()
        return True

    async def _check_position(self, state: EvaluatorState) -> None:
        """Start at the newest event if the position is beyond it: the database was restored to an earlier time."""
        newest = await self._matcher.reader.last_position()
        if state.position > newest:
            await self._matches.store([], state, position=newest)
