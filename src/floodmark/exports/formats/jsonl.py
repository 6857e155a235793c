"""JSON lines: one object per row, with every column of its source. Times are ISO 8601 in UTC."""

from collections.abc import Sequence
from typing import IO, Any

import msgspec

from floodmark.exports.tables import ExportTable, Values

from .port import FormatOptions


class JsonlFile:
    """Writes JSON lines."""

    def __init__(self, stream: IO[bytes], _options: FormatOptions) -> None:
        self.notes: dict[str, int] = {}
        self._stream, self._encoder = stream, msgspec.json.Encoder()
        self._objects: dict[str, Any] = {}

    def write(self, table: ExportTable, rows: Sequence[Values]) -> None:
        """Append rows of any table."""
        if table.source not in self._objects:
            self._objects[table.source] = _object_of(table)
        make = self._objects[table.source]
        self._stream.write(self._encoder.encode_lines([make(*values) for values in rows]))

    def close(self) -> None:
        """Do nothing: every line is complete."""


def _object_of(table: ExportTable) -> Any:
    """Return a struct with the columns of a table, which is encoded faster than a dictionary."""
    names = {f"f{place}": name for place, name in enumerate(table.names)}
    return msgspec.defstruct("Row", list(names), rename=names, gc=False)
