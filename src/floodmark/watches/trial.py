"""Shows what a watch would have matched, without storing or sending anything."""

import time
from collections.abc import Sequence
from datetime import timedelta

from floodmark.model.watches import SOURCE_KINDS, WatchMatch, WatchTrial
from floodmark.process.threads import DaemonThreads
from floodmark.wiring.resources import Resources

from .compiled import CompiledWatch
from .evaluation import FoundMatch
from .evaluator import EventMatcher
from .index import WatchIndex, WatchSet
from .sources import SourceWatcher

_AT_ONCE = 200
# One request examines at most this many events, for at most this long.
_MOST_EVENTS, _LONGEST_SECONDS = 5000, 1.5


async def try_watch(
    resources: Resources, watch: CompiledWatch, *, since: timedelta, after: int | None, limit: int
) -> WatchTrial:
    """Return matches in the events of the last time `since`, oldest first, and where to continue."""
    watches = WatchSet(WatchIndex({watch.watch_id: watch}))
    if watch.kind in SOURCE_KINDS:
        return await _try_sources(resources, watch, since)
    matcher = EventMatcher(resources.database, resources.clock, DaemonThreads(1))
    position = await matcher.reader.position_at(resources.clock.now() - since) if after is None else after
    began, examined, found = time.monotonic(), 0, list[FoundMatch]()
    first = None
    while True:
        events = await matcher.reader.after(position, _AT_ONCE)
        matches, count = await matcher.match(events, watches)
        first = first or (events[0].collected_at if events else None)
        found, examined = found + matches, examined + count
        position = events[count - 1].position if count else position
        is_end = len(events) < _AT_ONCE and count == len(events)
        is_enough = examined >= _MOST_EVENTS or time.monotonic() - began > _LONGEST_SECONDS
        if is_end or is_enough or len(found) >= limit:
            next_position = None if is_end else position
            return _trial(found, examined=examined, since=first, next_position=next_position)


async def _try_sources(resources: Resources, watch: CompiledWatch, since: timedelta) -> WatchTrial:
    """Return the sources that are late now, or that are gone since then."""
    begin = resources.clock.now() - since
    watch.active_at = begin
    watcher = SourceWatcher(resources.database, resources.clock, resources.repositories.staleness)
    states = await watcher.find([watch], begin)
    return _trial(states.found, examined=0, since=begin, next_position=None)


def _trial(found: Sequence[FoundMatch], *, examined: int, since: object, next_position: int | None) -> WatchTrial:
    matches = [
        WatchMatch(**{name: getattr(match, name) for name in WatchMatch.__struct_fields__})
        for match in found
        if not match.is_backfill
    ]
    return WatchTrial(
        matches=tuple(matches),
        suppressed=len(found) - len(matches),
        examined=examined,
        since=since,  # type: ignore[arg-type] # a time or None
        next=next_position,
    )
