"""Chooses the streams to search, by name, tag and source. Tables: `jobs`, `watermarks`."""

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, func, select

from floodmark.errors import NotFound
from floodmark.repositories.repository import Repository
from floodmark.store.dialects import chunks, json_has
from floodmark.store.rule_sql import JOB_STREAM
from floodmark.store.tables import jobs, watermarks

_SECONDS, _LEAST_REMEMBERED, _MOST_REMEMBERED = 10.0, 1000, 8
_ITEMS_STREAM = func.coalesce(watermarks.c.items_stream, watermarks.c.stream)


def is_pattern(text: str) -> bool:
    """Return whether a text stands for several streams."""
    return "*" in text


class RecentChoices:
    """Choices of many streams, for some seconds: a page that follows new items makes the same one every second."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._known = now, OrderedDict[Hashable, tuple[float, frozenset[str]]]()

    def get(self, key: Hashable) -> frozenset[str] | None:
        """Return a choice that was made within the last seconds."""
        made, streams = self._known.get(key, (0.0, None))
        return streams if streams is not None and self._now() - made < _SECONDS else None

    def put(self, key: Hashable, streams: frozenset[str]) -> None:
        """Remember a choice of many streams. Others take little time, and are always current."""
        self._known.pop(key, None)
        if len(streams) >= _LEAST_REMEMBERED:
            self._known[key] = self._now(), streams
            if len(self._known) > _MOST_REMEMBERED:
                self._known.popitem(last=False)


class StreamChoice(Repository):
    """Finds the streams that hold the items of jobs."""

    async def matching(self, pattern: str, known: Iterable[str]) -> set[str]:
        """Return the streams of items whose name matches, by the name of the stream or of what it is collected from."""
        # Names of streams contain URLs: only the * is special.
        fits = re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL).fullmatch
        found = {name for name in known if fits(name)}
        query = select(watermarks.c.stream, _ITEMS_STREAM)
        async with self._database.reading() as connection:
            # Those whose items have another name. All others are known, unless they have no items yet.
            renamed = await connection.execute(query.where(watermarks.c.items_stream.is_not(None)))
            found |= {stream for name, stream in renamed if fits(name)}
            if not found:
                found = {stream for name, stream in await connection.execute(query) if fits(name)}
        if not found:
            raise NotFound(f"no stream matches {pattern[:60]!r}", hint="see what there is with: floodmark watermark")
        return found

    async def with_tag(self, tag: str) -> set[str]:
        """Return the streams that jobs with a tag collect."""
        found = await self._streams_of(json_has(self._database, jobs.c.tags, tag))
        if not found:
            raise NotFound(f"no job has the tag {tag[:60]!r}", hint="see the tags of jobs with: floodmark ls --json")
        return found

    async def of_source(self, source: str, known: Iterable[str]) -> set[str]:
        """Return the streams that jobs of a source collect, or have collected."""
        found = await self._streams_of(jobs.c.source == source)
        found |= {name for name in known if name.startswith(f"{source}:")}
        if not found:
            raise NotFound(
                f"nothing was collected by a source {source[:60]!r}", hint="see the sources with: floodmark ls"
            )
        return found

    async def among(self, streams: Collection[str], *, tag: str | None, source: str | None) -> set[str]:
        """Return those of some streams of items that jobs with a tag and of a source collect, by indexes of both."""
        found: set[str] = set()
        for some in chunks(sorted(streams)):
            found |= await self._collected(some, tag, source)
        if source is not None and tag is None:
            # Also those of deleted jobs.
            found |= {name for name in streams if name.startswith(f"{source}:")}
        return found

    async def _collected(self, streams: Sequence[str], tag: str | None, source: str | None) -> set[str]:
        renamed = select(watermarks.c.stream, watermarks.c.items_stream).where(watermarks.c.items_stream.in_(streams))
        async with self._database.reading() as connection:
            names = dict[str, str](zip(streams, streams, strict=True))
            names |= {row.stream: row.items_stream for row in await connection.execute(renamed)}
            found = set[str]()
            targets = [name.partition(":")[2] for name in names if ":" in name]
            # One query for each index.
            for where in (jobs.c.stream.in_(names), jobs.c.target.in_(targets)):
                query = select(JOB_STREAM).where(where)
                query = query if source is None else query.where(jobs.c.source == source)
                query = query if tag is None else query.where(json_has(self._database, jobs.c.tags, tag))
                found |= {names[name] for name in (await connection.execute(query)).scalars() if name in names}
        return found

    async def _streams_of(self, where: ColumnElement[bool]) -> set[str]:
        stream: Any = func.coalesce(watermarks.c.items_stream, JOB_STREAM)
        query = select(stream).select_from(jobs.outerjoin(watermarks, watermarks.c.stream == JOB_STREAM)).where(where)
        async with self._database.reading() as connection:
            return set((await connection.execute(query)).scalars())
