"""Exports as downloads: sent while they are written, in bounded memory.

JSON lines and CSV are sent row by row. A spreadsheet or Parquet file is complete only at its end, so it is first
written to a temporary folder.
"""

import asyncio
import io
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from weakref import WeakSet

from msgspec.structs import replace
from starlette.responses import StreamingResponse

from floodmark.errors import InvalidInput, Unavailable
from floodmark.exports.export import run_export
from floodmark.exports.request import ExportRequest, FoundBy
from floodmark.operations.declared import AsyncOperations
from floodmark.rules.stream_patterns import is_pattern

from .selection import Selection
from .view import View

MEDIA_TYPES = {
    "jsonl": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "parquet": "application/vnd.apache.parquet",
}
# Bytes that are sent at once, and how many of such pieces wait for a slow browser.
_PIECE, _WAITING = 256 * 1024, 4
# More at a time would slow down everything else.
_MOST_AT_ONCE = 2


class SilentProgress:
    """Nobody watches the progress of a download."""

    def start(self, streams: int) -> None:
        """Do nothing."""

    def add(self, rows: int, stream: str | None) -> None:
        """Do nothing."""


def request_of(selection: Selection, file_format: str, now: datetime, *, revisions: bool) -> ExportRequest:
    """Return the export of a selection; raise `InvalidInput` if it cannot be in this format."""
    since, before = selection.period(now)
    is_searched = selection.is_searched
    request = ExportRequest(
        format=file_format,
        out=None,
        streams=() if selection.stream is None else (selection.stream,),
        found_by=FoundBy(query=selection.q, tag=selection.tag, source=selection.source) if is_searched else None,
        since=since,
        before=before,
        revisions=revisions and not is_searched,
        # What is exported is what the page shows.
        deleted=True,
    )
    if file_format not in MEDIA_TYPES:
        raise InvalidInput(f"{file_format[:40]!r} is not a format", hint=f"use one of: {', '.join(MEDIA_TYPES)}")
    is_one_stream = selection.stream is not None and not is_pattern(selection.stream)
    if not request.chosen_format.holds_many_tables and selection.source is None and not is_one_stream:
        raise InvalidInput(
            f"{file_format} has one table, and each kind of source has its own columns",
            hint="choose a source or a stream first, or another format",
        )
    if request.chosen_format.can_stream:
        request.check()
    return request


async def download(view: View, request: ExportRequest, name: str) -> StreamingResponse:
    """Return the response that sends an export. Errors before the first row are raised here."""
    running = _running(view)
    pieces = _pieces(view.operations, request)
    running.add(pieces)
    try:
        first = await anext(pieces, b"")
    except BaseException:
        running.discard(pieces)
        raise

    async def send() -> AsyncIterator[bytes]:
        try:
            async with aclosing(pieces):
                yield first
                async for piece in pieces:
                    yield piece
        finally:
            running.discard(pieces)

    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(send(), headers=headers, media_type=MEDIA_TYPES[request.format])


def _running(view: View) -> WeakSet[Any]:
    """Return the downloads that are running; `Unavailable` if there are too many for one more."""
    state = view.request.app.state
    if not hasattr(state, "dashboard_downloads"):
        # Weak: a download that was given up before its first byte is not counted for ever.
        state.dashboard_downloads = WeakSet[Any]()
    running: WeakSet[Any] = state.dashboard_downloads
    if len(running) >= _MOST_AT_ONCE:
        raise Unavailable(
            f"{len(running)} downloads are running, and more would slow down everything else",
            hint="wait until one has ended, or use the command: floodmark export items",
        )
    return running


class _Writing:
    """A download that is being written."""


@contextmanager
def count_download(view: View) -> Iterator[None]:
    """Count a download while it is written; `Unavailable` if too many are running."""
    running, mark = _running(view), _Writing()
    running.add(mark)
    try:
        yield
    finally:
        running.discard(mark)


def _pieces(operations: AsyncOperations, request: ExportRequest) -> Any:
    return _streamed(operations, request) if request.chosen_format.can_stream else _write_export(operations, request)


async def _write_export(operations: AsyncOperations, request: ExportRequest) -> AsyncIterator[bytes]:
    """Yield a file that is written first."""
    with TemporaryDirectory(prefix="floodmark-export-", ignore_cleanup_errors=True) as folder:
        out = Path(folder) / f"items.{request.chosen_format.suffix}"
        await run_export(operations, replace(request, out=out), SilentProgress(), io.BytesIO())
        with out.open("rb") as file:
            while piece := await asyncio.to_thread(file.read, _PIECE):
                yield piece


async def _streamed(operations: AsyncOperations, request: ExportRequest) -> AsyncIterator[bytes]:
    """Yield a file while it is written."""
    pipe = _Pipe()
    writing = asyncio.create_task(run_export(operations, request, SilentProgress(), pipe))  # type: ignore[arg-type]
    try:
        while not writing.done() or not pipe.waiting.empty():
            taking = asyncio.ensure_future(pipe.waiting.get())
            await asyncio.wait({taking, writing}, return_when=asyncio.FIRST_COMPLETED)
            if taking.done():
                yield taking.result()
            else:
                taking.cancel()
        await writing
    finally:
        pipe.stop()
        writing.cancel()
        with suppress(asyncio.CancelledError, OSError):
            await writing


class _Pipe(io.RawIOBase):
    """A file for a thread that writes. What it writes waits for a task that sends it; a full pipe stops the thread."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: asyncio.Queue[bytes] = asyncio.Queue(_WAITING)
        self._loop, self._kept, self._is_stopped = asyncio.get_running_loop(), bytearray(), False

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Take bytes."""
        self._kept += data
        if len(self._kept) >= _PIECE:
            self.flush()
        return len(data)

    def flush(self) -> None:
        """Pass on what was written, once there is room."""
        piece, self._kept = bytes(self._kept), bytearray()
        if piece:
            asyncio.run_coroutine_threadsafe(self._put(piece), self._loop).result()

    def stop(self) -> None:
        """Let the thread go on, and refuse what it writes then."""
        self._is_stopped = True
        while not self.waiting.empty():
            self.waiting.get_nowait()

    async def _put(self, piece: bytes) -> None:
        if self._is_stopped:
            raise BrokenPipeError("the download was given up")
        await self.waiting.put(piece)
