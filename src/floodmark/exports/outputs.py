"""Where the rows of an export go. Everything here blocks: it runs in a thread."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from datetime import date
from pathlib import Path
from typing import IO

from msgspec import Struct

from floodmark.errors import Unavailable
from floodmark.sinks.staging import Staging

from .days import DaySpill
from .formats.port import FileFormat, Format, FormatOptions
from .tables import ExportTable, Values


class Dated(Struct, frozen=True, gc=False):
    """The values of a row, and its UTC day."""

    day: date
    values: Values


class Output:
    """Takes the rows of an export. `files` are the paths of the files that were written."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.notes: dict[str, int] = {}

    def write(self, table: ExportTable, rows: Sequence[Dated]) -> None:
        """Take rows of one table."""
        raise NotImplementedError

    def finish(self) -> None:
        """Complete the files."""
        raise NotImplementedError

    def close(self) -> None:
        """Give up what is open, after an error."""

    def _collect_notes(self, file: FileFormat) -> None:
        for note, count in file.notes.items():
            self.notes[note] = self.notes.get(note, 0) + count


class StreamOutput(Output):
    """Writes to an open stream, such as the standard output."""

    def __init__(self, stream: IO[bytes], chosen: Format, options: FormatOptions) -> None:
        super().__init__()
        self._stream, self._file = stream, chosen.open(stream, options)

    def write(self, table: ExportTable, rows: Sequence[Dated]) -> None:
        """Write rows at once."""
        self._file.write(table, [row.values for row in rows])
        self._stream.flush()

    def finish(self) -> None:
        """Write the rest."""
        self._file.close()
        self._stream.flush()


class FilesOutput(Output):
    """Writes files into a staging folder: one, or one for each source."""

    def __init__(
        self, staging: Staging, chosen: Format, options: FormatOptions, path_of: Callable[[ExportTable], str]
    ) -> None:
        super().__init__()
        self._staging, self._chosen, self._options, self._path_of = staging, chosen, options, path_of
        self._open, self._stack = dict[str, FileFormat](), ExitStack()

    def write(self, table: ExportTable, rows: Sequence[Dated]) -> None:
        """Append rows to their file."""
        path = self._path_of(table)
        if path not in self._open:
            stream = self._stack.enter_context(self._staging.open(path))
            self._open[path] = self._chosen.open(stream, self._options)
            self.files.append(path)
        self._open[path].write(table, [row.values for row in rows])

    def finish(self) -> None:
        """Complete the files, durably."""
        with self._stack:
            for file in self._open.values():
                file.close()
                self._collect_notes(file)
        self._open.clear()

    def close(self) -> None:
        """Close the files; they stay incomplete in the staging folder, which is removed."""
        with suppress(OSError, Unavailable):
            # On a full disk closing fails again, because it writes the rest of the buffer.
            self._stack.close()


class DaysOutput(Output):
    """Writes one file for each source and UTC day.

    Rows of a day come in any order of days, so they are first collected in one temporary file per day, and then
    written day by day: memory does not grow with the number of days.
    """

    def __init__(
        self, staging: Staging, chosen: Format, options: FormatOptions, path_of: Callable[[ExportTable, date], str]
    ) -> None:
        super().__init__()
        self._staging, self._chosen, self._options, self._path_of = staging, chosen, options, path_of
        self._spills: dict[str, DaySpill] = {}

    def write(self, table: ExportTable, rows: Sequence[Dated]) -> None:
        """Collect rows by day."""
        if table.source not in self._spills:
            folder = self._staging.temporary / f"days-{len(self._spills)}"
            self._spills[table.source] = DaySpill(table, folder)
        by_day: dict[date, list[Values]] = {}
        for row in rows:
            by_day.setdefault(row.day, []).append(row.values)
        for day, some in by_day.items():
            self._spills[table.source].add(day, some)

    def finish(self) -> None:
        """Write the file of each day."""
        for spill in self._spills.values():
            for day in spill.days():
                path = self._path_of(spill.table, day)
                with self._staging.open(path) as stream:
                    file = self._chosen.open(stream, self._options)
                    for rows in spill.take(day):
                        file.write(spill.table, rows)
                    file.close()
                    self._collect_notes(file)
                self.files.append(path)


def folder_of(table: ExportTable) -> str:
    """Return the folder of a source; its name is that of the source, as far as file systems allow."""
    plain = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in table.source)
    return plain or "other"


def open_output(
    staging: Staging, chosen: Format, options: FormatOptions, *, name: str, is_folder: bool, by_day: bool
) -> Output:
    """Return the output for a file or a folder. `name` is that of the file, or of the files in the folder."""
    if by_day:
        return DaysOutput(
            staging,
            chosen,
            options,
            lambda table, day: f"{folder_of(table)}/day={day.isoformat()}/{name}.{chosen.suffix}",
        )
    if is_folder:
        return FilesOutput(staging, chosen, options, lambda table: f"{folder_of(table)}/{name}.{chosen.suffix}")
    return FilesOutput(staging, chosen, options, lambda _: name)


def options_for(staging: Staging | None, *, guards_formulas: bool) -> FormatOptions:
    """Return the options of a format."""
    folder: Path | None = None if staging is None else staging.temporary
    return FormatOptions(folder, guards_formulas)
