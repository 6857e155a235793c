"""The rows of an export: stored items stream by stream, or changes by position.

An export that will be continued has to know which changes its rows contain. It notes the newest position, reads the
items page by page, and leaves out every revision whose event came later: those are read as changes afterwards. So each
revision is in exactly one part of the export, however long it takes and whatever is stored meanwhile.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import groupby

from msgspec import Struct

from floodmark.errors import EventsDeleted
from floodmark.model.exports import ExportRow, LogBounds
from floodmark.operations.declared import AsyncOperations
from floodmark.operations.exports import MOST_ROWS
from floodmark.operations.streams import FARTHEST
from floodmark.rules.streams import split_stream
from floodmark.store.dialects import chunks

from .request import ExportRequest

_FEWEST = 50
# Streams whose sources are asked for at once.
_NAMES_AT_ONCE = 50
# How long to wait until the relay has numbered the changes that were left out.
_PATIENCE_STEPS, _STEP_SECONDS = 10, 0.5


class Chunk(Struct, frozen=True):
    """Rows of one source."""

    source: str
    rows: Sequence[ExportRow]
    stream: str | None = None
    """The stream whose last rows these are."""


async def find_streams(operations: AsyncOperations, request: ExportRequest) -> dict[str, str]:
    """Return the streams to export, and the source of each."""
    found = operations.each_export_stream(names=request.streams, limit=MOST_ROWS)
    return {one.stream: one.source async for one in found}


async def find_bounds(operations: AsyncOperations) -> LogBounds:
    """Return the positions of the stored events."""
    return (await operations.export_changes(after=FARTHEST, limit=1)).log


async def read_items(
    operations: AsyncOperations,
    streams: Mapping[str, str],
    request: ExportRequest,
    later: "LaterChanges | None" = None,
) -> AsyncIterator[Chunk]:
    """Yield the stored items of streams, without those that have changed `later`."""
    for stream, source in streams.items():
        cursor, limit = None, MOST_ROWS
        while True:
            page = await operations.export_items(
                stream,
                since=request.since,
                before=request.before,
                revisions=request.revisions,
                cursor=cursor,
                limit=limit,
            )
            rows = page.items if later is None else await later.leave_out(page.items)
            yield Chunk(source, rows, stream if page.next is None else None)
            if page.next is None:
                break
            cursor = page.next
            # A page that ended early has large items: ask for no more than it will hold.
            limit = MOST_ROWS if len(page.items) == limit else max(_FEWEST, 2 * len(page.items))


async def read_found(operations: AsyncOperations, request: ExportRequest) -> AsyncIterator[Chunk]:
    """Yield the items that a search finds, newest first; neighbours of one source together."""
    by = request.found_by
    assert by is not None
    sources, cursor = dict[str, str](), None
    while True:
        page = await operations.export_found(
            by.query,
            stream=request.streams or None,
            tag=by.tag,
            source=by.source,
            since=request.since,
            until=request.before,
            cursor=cursor,
        )
        await _add_sources(operations, sources, {row.stream for row in page.items})
        for source, rows in groupby(page.items, lambda row: by.source or sources[row.stream]):
            yield Chunk(source, list(rows))
        cursor = page.next
        if cursor is None:
            break


async def _add_sources(operations: AsyncOperations, sources: dict[str, str], streams: set[str]) -> None:
    """Add the sources of streams that are not known yet."""
    for some in chunks(sorted(streams - sources.keys()), _NAMES_AT_ONCE):
        async for one in operations.each_export_stream(names=some, limit=MOST_ROWS):
            sources[one.stream] = one.source
    for stream in streams - sources.keys():
        sources[stream] = split_stream(stream)[0]


async def read_changes(
    operations: AsyncOperations, streams: Mapping[str, str], request: ExportRequest, *, after: int, until: int
) -> AsyncIterator[Chunk]:
    """Yield the changes between two positions, in order; without `revisions` those that are still the newest."""
    while after < until:
        page = await operations.export_changes(after=after)
        if not page.log.has_all_after(after):
            raise EventsDeleted(
                f"events after position {after:,} were deleted while the export was reading them",
                hint="repeat the command; it writes all items again",
            )
        for chunk in _by_source([row for row in page.items if (row.position or 0) <= until], streams, request):
            yield chunk
        after = max([row.position or 0 for row in page.items[-1:]] or [until])


def _by_source(rows: Sequence[ExportRow], streams: Mapping[str, str], request: ExportRequest) -> list[Chunk]:
    chunks: dict[str, list[ExportRow]] = {}
    for row in rows:
        source = streams.get(row.stream)
        if source is not None and (row.is_newest or request.revisions) and _is_within(row, request):
            chunks.setdefault(source, []).append(row)
    return [Chunk(source, some) for source, some in chunks.items()]


def _is_within(row: ExportRow, request: ExportRequest) -> bool:
    since, before = request.since, request.before
    return (since is None or row.time >= since) and (before is None or row.time < before)


class LaterChanges:
    """The revisions whose events came after a position, or that have no position yet.

    They are in a temporary database, which SQLite keeps on disk if it is large and deletes when it is closed.
    """

    def __init__(self, operations: AsyncOperations, after: int) -> None:
        self._operations, self._seen, self._count, self.left_out = operations, after, 0, 0
        self._changed = sqlite3.connect("", isolation_level=None)
        self._changed.execute(
            "CREATE TABLE changed (stream TEXT, key TEXT, revision INTEGER, PRIMARY KEY (stream, key, revision))"
            " WITHOUT ROWID"
        )

    async def leave_out(self, rows: Sequence[ExportRow]) -> list[ExportRow]:
        """Return those of the rows, which were just read, that have not changed later."""
        # After the rows: a change that they contain was committed before.
        await self._note_changes()
        if not self._count:
            return list(rows)
        kept = [row for row in rows if not self._has(row)]
        self.left_out += len(rows) - len(kept)
        return kept

    async def wait_until_numbered(self) -> bool:
        """Wait a few seconds until what was left out can be read as changes. Return False if it cannot."""
        for _ in range(_PATIENCE_STEPS if self.left_out else 0):
            waiting = (await self._operations.export_keys(after=FARTHEST, limit=1)).items
            if not waiting:
                return True
            await asyncio.sleep(_STEP_SECONDS)
        return not self.left_out

    def close(self) -> None:
        """Delete the temporary database."""
        self._changed.close()

    async def _note_changes(self) -> None:
        async for key in self._operations.each_export_key(after=self._seen, limit=MOST_ROWS):
            self._changed.execute("INSERT OR IGNORE INTO changed VALUES (?, ?, ?)", (key.stream, key.key, key.revision))
            self._count += 1
            self._seen = max(self._seen, key.position or 0)

    def _has(self, row: ExportRow) -> bool:
        this = "SELECT 1 FROM changed WHERE stream = ? AND key = ? AND revision = ?"
        return self._changed.execute(this, (row.stream, row.key, row.revision)).fetchone() is not None
