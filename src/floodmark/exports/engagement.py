"""Samples of the engagement of posts as a table: one row per sample."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

from floodmark.model.engagement import PostEngagement
from floodmark.operations.declared import AsyncOperations
from floodmark.process.file_errors import explain_errors
from floodmark.sinks.staging import Staging, remove_abandoned
from floodmark.sources.columns import ExportColumn

from .formats.port import Format
from .outputs import Dated, FilesOutput, Output, StreamOutput, options_for
from .tables import ExportTable, Values

SAMPLE_COLUMNS = (
    ExportColumn("stream", "text", "The stream of the post."),
    ExportColumn("key", "text", "Its key."),
    ExportColumn("occurred_at", "time", "When it was posted."),
    ExportColumn("occasion", "text", "`collected` with the post, a `sample` at an age, or the `newest` change."),
    ExportColumn("after_seconds", "int", "The age that a sample counts for; else empty."),
    ExportColumn("seen_at", "time", "When the counts were seen."),
    ExportColumn("views", "int", "Views."),
    ExportColumn("forwards", "int", "Forwards."),
    ExportColumn("replies", "int", "Replies."),
    ExportColumn("reactions", "json", "Reactions with their counts."),
)
_POSTS_AT_ONCE = 500


class SampleTable(ExportTable):
    """The columns of samples."""

    def __init__(self) -> None:
        super().__init__("engagement", ())
        self.columns = SAMPLE_COLUMNS
        self.names = [column.name for column in SAMPLE_COLUMNS]


async def export_engagement(
    operations: AsyncOperations, stream: str, chosen: Format, out: Path | None, stdout: IO[bytes]
) -> int:
    """Write the samples of a stream to a file, complete or not at all, or to the standard output; return the rows."""
    if out is None:
        output = StreamOutput(stdout, chosen, options_for(None, guards_formulas=True))
        return await _write(operations, stream, output)
    with explain_errors(out):
        remove_abandoned(out.parent, out.name)
        staging = await asyncio.to_thread(Staging.create, out.parent, out.name)
        try:
            options = options_for(staging, guards_formulas=True)
            rows = await _write(operations, stream, FilesOutput(staging, chosen, options, lambda _: out.name))
            await asyncio.to_thread(staging.move_into_place)
            return rows
        finally:
            await asyncio.to_thread(staging.remove)


async def _write(operations: AsyncOperations, stream: str, output: Output) -> int:
    table, count = SampleTable(), 0
    try:
        # A file without rows still has columns.
        await asyncio.to_thread(output.write, table, [])
        async for rows in _pages(operations, stream):
            count += len(rows)
            await asyncio.to_thread(output.write, table, rows)
        await asyncio.to_thread(output.finish)
    except BaseException:
        output.close()
        raise
    return count


async def _pages(operations: AsyncOperations, stream: str) -> AsyncIterator[list[Dated]]:
    cursor = None
    while True:
        page = await operations.engagement(stream, cursor=cursor, limit=_POSTS_AT_ONCE)
        yield [row for post in page.items for row in _rows(stream, post)]
        cursor = page.next
        if cursor is None:
            return


def _rows(stream: str, post: PostEngagement) -> list[Dated]:
    found = []
    for one in post.samples:
        counts = (one.views, one.forwards, one.replies, one.reactions)
        values: Values = [stream, post.key, post.occurred_at, one.occasion, one.after_seconds, one.seen_at, *counts]
        found.append(Dated(one.seen_at.date(), values))
    return found
