"""Rows by UTC day in temporary files, one line of JSON per row."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import msgspec

from floodmark.sources.columns import ColumnKind

from .tables import ExportTable, Values

_AT_ONCE = 1000
# The types that values get again when they are read.
_TYPES: Mapping[ColumnKind, Any] = {
    "text": str | None,
    "int": int | None,
    "float": float | None,
    "bool": bool | None,
    "time": datetime | None,
    "texts": list[str] | None,
    "json": Any,
}


class DaySpill:
    """The rows of one table, in one file for each day."""

    def __init__(self, table: ExportTable, folder: Path) -> None:
        self.table, self._folder = table, folder
        folder.mkdir()
        kinds = tuple(_TYPES[column.kind] for column in table.columns)
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(tuple.__class_getitem__(kinds))

    def add(self, day: date, rows: Sequence[Values]) -> None:
        """Append rows of a day."""
        with self._path(day).open("ab") as file:
            file.write(self._encoder.encode_lines(rows))

    def days(self) -> list[date]:
        """Return the days that have rows, in order."""
        return sorted(date.fromisoformat(path.name) for path in self._folder.iterdir())

    def take(self, day: date) -> Iterator[list[Values]]:
        """Yield the rows of a day, and delete its file."""
        path, rows = self._path(day), list[Values]()
        with path.open("rb") as file:
            for line in file:
                rows.append(list(self._decoder.decode(line)))
                if len(rows) == _AT_ONCE:
                    yield rows
                    rows = []
        yield rows
        path.unlink()

    def _path(self, day: date) -> Path:
        return self._folder / day.isoformat()
