"""Streams by the names that people know them by. Tables: `jobs`, `watermarks`; nothing is written.

The posts of a channel are in a stream that is named by its number. People name the stream of the job, or the job.
"""

import re
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import count
from typing import Any

from msgspec import Struct
from sqlalchemy import Select, select

from floodmark.model.clock import Clock
from floodmark.repositories.repository import Repository
from floodmark.rules.streams import stream_name
from floodmark.store.database import Database
from floodmark.store.dialects import chunks
from floodmark.store.tables import jobs, watermarks

# Tags and names of jobs change rarely: a watch follows them after this time at the latest.
_FRESH_SECONDS = 15.0
_MOST_PLACES = 10_000
_ANYTHING = "*"


_j, _w = jobs.c, watermarks.c


class CollectingJob(Struct, frozen=True, kw_only=True, gc=False):
    """A job that collects a stream."""

    name: str
    stream: str
    source: str
    tags: tuple[str, ...]


class StreamPlace:
    """A stream, with the names, sources and tags of the jobs that collect it. `number` is never used again."""

    __slots__ = ("label", "names", "number", "read_at", "sources", "stream", "tags")
    _numbers = count()

    def __init__(self, stream: str, jobs: Sequence[CollectingJob] = (), *, read_at: float = 0.0) -> None:
        self.stream, self.read_at, self.number = stream, read_at, next(self._numbers)
        self.label = jobs[0].stream if jobs else stream
        self.names = frozenset({stream}.union(*({job.name, job.stream} for job in jobs)))
        # The job may have been deleted: a stream is named by source and target unless someone chose another name.
        self.sources = frozenset(job.source for job in jobs) or frozenset({stream.partition(":")[0]})
        self.tags = frozenset(tag for job in jobs for tag in job.tags)


class StreamFilter:
    """Selects streams: one of the names, one of the sources, one of the tags; an empty list selects all."""

    __slots__ = ("_globs", "_sources", "_tags", "exact")

    def __init__(self, streams: Sequence[str], sources: Sequence[str], tags: Sequence[str]) -> None:
        self.exact = frozenset(name for name in streams if _ANYTHING not in name)
        self._globs = [_compile_glob(name) for name in streams if _ANYTHING in name]
        self._sources, self._tags = frozenset(sources), frozenset(tags)

    @property
    def needs_name(self) -> bool:
        """Whether only streams with one of the names `exact` are selected."""
        return bool(self.exact) and not self._globs

    def accepts(self, place: StreamPlace) -> bool:
        """Return whether a stream is selected."""
        if self._sources and not self._sources & place.sources:
            return False
        if self._tags and not self._tags & place.tags:
            return False
        if not self.exact and not self._globs:
            return True
        return bool(self.exact & place.names) or any(
            glob.fullmatch(name) for glob in self._globs for name in place.names
        )


@lru_cache(maxsize=10_000)
def _compile_glob(text: str) -> re.Pattern[str]:
    first, *middle, last = map(re.escape, text.split(_ANYTHING))
    # Between two stars the first match is as good as any other: without backtracking no pattern is slow.
    return re.compile(first + "".join(f"(?>.*?{piece})" for piece in middle) + f".*{last}", re.DOTALL)


class StreamPlaces(Repository):
    """Reads the places of streams, and remembers them for a while."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock)
        self._known: dict[str, StreamPlace] = {}

    async def of(self, streams: Iterable[str]) -> dict[str, StreamPlace]:
        """Return the places of streams."""
        wanted, now = set(streams), time.monotonic()
        missing = [name for name in wanted if not self._is_fresh(name, now)]
        if len(self._known) + len(missing) > _MOST_PLACES:
            self._known.clear()
            missing = list(wanted)
        for some in chunks(missing):
            collecting = await self._read_jobs(some)
            self._known |= {name: self._replace(name, collecting[name], now) for name in some}
        return {name: self._known[name] for name in wanted}

    async def _read_jobs(self, streams: Sequence[str]) -> dict[str, list[CollectingJob]]:
        """Return the jobs that collect each stream, directly or as the stream of their items."""
        found: dict[str, list[CollectingJob]] = {name: [] for name in streams}
        async with self._database.reading() as connection:
            shared = select(_w.stream, _w.items_stream).where(_w.items_stream.in_(streams))
            leads_to = {name: [name] for name in streams}
            for row in await connection.execute(shared):
                leads_to.setdefault(row.stream, []).append(row.items_stream)
            for some in chunks(list(leads_to)):
                for query in _collecting(some):
                    for row in await connection.execute(query):
                        stream = stream_name(row.stream, row.source, row.target)
                        job = CollectingJob(name=row.name, stream=stream, source=row.source, tags=tuple(row.tags or ()))
                        for name in leads_to.get(stream, ()):
                            found[name].append(job)
        return found

    def _is_fresh(self, name: str, now: float) -> bool:
        known = self._known.get(name)
        return known is not None and now - known.read_at < _FRESH_SECONDS

    def _replace(self, name: str, rows: Sequence[CollectingJob], now: float) -> StreamPlace:
        """Return the known place if nothing has changed: what was derived from it stays valid."""
        made, known = StreamPlace(name, rows, read_at=now), self._known.get(name)
        if known is not None and (known.names, known.sources, known.tags) == (made.names, made.sources, made.tags):
            known.read_at = now
            return known
        return made


def _collecting(streams: Sequence[str]) -> list[Select[Any]]:
    """Return two queries, each with an index: jobs that name their stream, and others by their target."""
    cells = (_j.name, _j.stream, _j.source, _j.target, _j.tags)
    targets = {name.partition(":")[2] for name in streams}
    return [
        select(*cells).where(_j.stream.in_(streams)),
        select(*cells).where(_j.target.in_(targets), _j.stream.is_(None)),
    ]
