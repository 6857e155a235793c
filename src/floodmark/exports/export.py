"""One export: reads rows, converts them to the columns of their source, and writes them."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import IO, ParamSpec, Protocol, TypeVar

from floodmark.errors import Conflict, InvalidInput
from floodmark.operations.declared import AsyncOperations
from floodmark.process.failpoints import failpoint
from floodmark.process.file_errors import explain_errors
from floodmark.sinks.staging import Staging, lock_folder_for_export, remove_abandoned

from .continuing import ExportPosition
from .conversion import Conversion
from .outputs import Output, StreamOutput, open_output, options_for
from .reading import Chunk, LaterChanges, find_bounds, find_streams, read_changes, read_found, read_items
from .request import ExportRequest, ExportResult
from .tables import ExportTable

P = ParamSpec("P")
T = TypeVar("T")

# The name of the files in a folder; those of an export that is continued have a number each.
_WHOLE, _PART = "items", "part"


class ExportProgress(Protocol):
    """Is told how far an export is."""

    def start(self, streams: int) -> None:
        """Begin with this number of streams."""
        ...

    def add(self, rows: int, stream: str | None) -> None:
        """Count rows; `stream` is one that is complete."""
        ...


async def run_export(
    operations: AsyncOperations, request: ExportRequest, progress: ExportProgress, stdout: IO[bytes]
) -> ExportResult:
    """Carry out an export."""
    request.check()
    if request.out is None:
        return await _Export(operations, request, progress).to_stream(stdout)
    with ExitStack() as stack:
        if request.is_folder:
            stack.enter_context(lock_folder_for_export(request.out))
        return await _Export(operations, request, progress).to_files(request.out)


class _Export:
    """An export while it runs."""

    def __init__(self, operations: AsyncOperations, request: ExportRequest, progress: ExportProgress) -> None:
        self._operations, self._request, self._progress = operations, request, progress
        self._conversion = Conversion(request)
        self._result = ExportResult(out="-" if request.out is None else str(request.out), files=[], notes=[])
        place = None if request.out is None else str(request.out.absolute())
        self._position = (
            None
            if request.continues is None
            else ExportPosition(operations, request.continues, place, request.as_typed)
        )

    async def to_stream(self, stream: IO[bytes]) -> ExportResult:
        """Write to a stream; the position moves once everything has been written."""
        if self._position is not None:
            await self._position.open()
        guards = self._request.guards_formulas
        output = StreamOutput(stream, self._request.chosen_format, options_for(None, guards_formulas=guards))
        end = await self._write(output)
        if self._position is not None:
            await self._position.commit(end)
        return self._finish(output, end)

    async def to_files(self, out: Path) -> ExportResult:
        """Write a file or the files of a folder, complete or not at all."""
        request, folder = self._request, out if self._request.is_folder else out.parent
        name = _WHOLE if request.is_folder else out.name
        if self._position is not None:
            await self._open_position(folder)
        elif request.is_folder:
            _require_none(folder, _PART, "is the folder of an export that is continued", "add --continue")
        remove_abandoned(folder, name)
        staging = await asyncio.to_thread(Staging.create, folder, name)
        try:
            options = options_for(staging, guards_formulas=request.guards_formulas)
            file = (
                name if self._position is None else f"{_PART}-{self._position.position or 0:012}-{secrets.token_hex(3)}"
            )
            output = open_output(
                staging, request.chosen_format, options, name=file, is_folder=request.is_folder, by_day=request.by_day
            )
            end = await self._write(output)
            if self._position is not None:
                await self._position.commit(end, staging)
            else:
                await asyncio.to_thread(_replace_files, staging, folder, output.files, request)
            return self._finish(output, end)
        finally:
            # Files that are recorded belong to the position: the next run moves them to their places.
            if self._position is None or not self._position.has_recorded:
                await asyncio.to_thread(staging.remove)

    async def _open_position(self, folder: Path) -> None:
        assert self._position is not None
        await self._position.open()
        if self._position.position is None:
            _require_none(folder, _WHOLE, "already has an export that is not continued", "choose an empty folder")
        if not await self._position.recover(folder):
            self._result.notes.append(
                "the files of the last run, which was interrupted, have disappeared: its rows are written again"
            )
        await self._position.open()

    async def _write(self, output: Output) -> int:
        """Write all rows; return the position up to which they contain the changes."""
        position = None if self._position is None else self._position.position
        try:
            if self._position is None:
                end = 0
                await self._write_items(output, None)
            elif position is None or not self._position.has_all_events:
                end = await self._write_all_and_later(output, position)
            else:
                end = await self._write_changes(output, position)
            await self._in_thread(output.finish)
            return end
        except BaseException:
            output.close()
            raise

    async def _write_items(self, output: Output, later: LaterChanges | None) -> None:
        if self._request.found_by is not None:
            return await self._write_found(output)
        streams = await self._choose_streams()
        self._progress.start(len(streams))
        self._result.streams = len(streams)
        await self._take(output, read_items(self._operations, streams, self._request, later))
        if not output.files and not self._request.is_folder and self._position is None:
            # A file without rows still has columns.
            for table in self._conversion.tables or [ExportTable("", None)]:
                await self._in_thread(output.write, table, [])
        return None

    async def _write_found(self, output: Output) -> None:
        streams = set[str]()
        self._progress.start(0)

        async def read() -> AsyncIterator[Chunk]:
            async for chunk in read_found(self._operations, self._request):
                streams.update(row.stream for row in chunk.rows)
                self._conversion.prepare([chunk.source])
                self._require_one_table([table.source for table in self._conversion.tables])
                yield chunk

        await self._take(output, read())
        self._result.streams = len(streams)
        if not streams and not self._request.is_folder:
            await self._in_thread(output.write, ExportTable("", None), [])

    async def _write_all_and_later(self, output: Output, position: int | None) -> int:
        """Write the items as they are at a position, then the changes after it."""
        begin = (await find_bounds(self._operations)).newest
        if position is not None:
            self._result.notes.append(
                f"events after position {position:,} were deleted (EVENTS_KEEP_DAYS), so all items are written again: "
                "rows of earlier files appear a second time, with the same stream, key and revision"
            )
        with closing(LaterChanges(self._operations, begin)) as later:
            await self._write_items(output, later)
            if not await later.wait_until_numbered():
                self._result.notes.append(
                    "the newest changes have no position yet and follow with the next run: is a scheduler running?"
                )
        return await self._write_changes(output, begin, is_complete=True)

    async def _write_changes(self, output: Output, after: int, *, is_complete: bool = False) -> int:
        self._result.is_complete = is_complete
        end = max(after, (await find_bounds(self._operations)).newest)
        # After the end is known: a stream whose changes come before it is then listed.
        streams = await self._choose_streams()
        if not is_complete:
            self._result.streams = len(streams)
            self._progress.start(0)
        changes = read_changes(self._operations, streams, self._request, after=after, until=end)
        await self._take(output, changes)
        return end

    async def _choose_streams(self) -> Mapping[str, str]:
        streams = await find_streams(self._operations, self._request)
        sources = sorted(set(streams.values()))
        self._require_one_table(sources)
        self._conversion.prepare(sources)
        return streams

    def _require_one_table(self, sources: Sequence[str]) -> None:
        if len(sources) > 1 and not (self._request.is_folder or self._request.chosen_format.holds_many_tables):
            raise InvalidInput(
                f"these streams have {len(sources)} sources with different columns: {', '.join(sources)}",
                hint="write a folder with one file per source: --out DIR/; or name the streams of one source",
            )

    async def _take(self, output: Output, chunks: AsyncIterator[Chunk]) -> None:
        async for chunk in chunks:
            count = await self._in_thread(self._convert_and_write, output, chunk)
            self._result.rows += count
            self._progress.add(count, chunk.stream)

    def _convert_and_write(self, output: Output, chunk: Chunk) -> int:
        table, rows = self._conversion.convert(chunk)
        if rows:
            output.write(table, rows)
        return len(rows)

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._request.out is None:
            return await asyncio.to_thread(work, *args, **kwargs)
        with explain_errors(self._request.out):
            return await asyncio.to_thread(work, *args, **kwargs)

    def _finish(self, output: Output, end: int) -> ExportResult:
        result = self._result
        result.files = sorted(output.files)
        result.position = None if self._position is None else end
        result.notes += self._conversion.notes()
        result.notes += [f"{count:,} {note}" for note, count in output.notes.items()]
        return result


def _replace_files(staging: Staging, folder: Path, files: Iterable[str], request: ExportRequest) -> None:
    """Move the files to their places, and delete files of an earlier export that this one does not have."""
    failpoint("export.staged")
    staging.move_into_place()
    if request.is_folder:
        kept = {str(folder / path) for path in files}
        with explain_errors(folder):
            for path in _files_named(folder, _WHOLE):
                if str(path) not in kept and path.suffix == f".{request.chosen_format.suffix}":
                    path.unlink(missing_ok=True)


def _require_none(folder: Path, name: str, what: str, hint: str) -> None:
    if any(_files_named(folder, f"{name}-*" if name == _PART else name)):
        raise Conflict(f"{folder} {what}", hint=f"{hint}, or choose another folder with --out")


def _files_named(folder: Path, name: str) -> list[Path]:
    """Return the files of an export in a folder: by source, or by source and day."""
    patterns = (f"*/{name}.*", f"*/day=[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]/{name}.*")
    return sorted(path for pattern in patterns for path in folder.glob(pattern))
