"""CSV: UTF-8, comma, one header line. Lists and objects are JSON, times ISO 8601 in UTC, no value is an empty cell.

A spreadsheet program takes a cell that begins with `=`, `+`, `-`, `@`, a tab or a line break for a formula, and some
formulas send data to other hosts. With the guard a text that begins with one of these, or with `'`, gets a `'` in front
of it. Removing one `'` from the beginning of every cell that has one restores all texts.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import IO, Any

import msgspec

from floodmark.exports.tables import ExportTable, Values
from floodmark.sources.columns import ColumnKind

from .port import FormatOptions

# The last four are full-width forms, which some programs treat in the same way.
_DANGEROUS = ("=", "+", "-", "@", "\t", "\r", "\n", "'", "＝", "＋", "－", "＠")
_QUOTED = re.compile(r'[,"\r\n]')
_encoder = msgspec.json.Encoder()

Cell = Callable[[Any], str]


def guard_formula(text: str) -> str:
    """Return a text that no spreadsheet program takes for a formula."""
    return f"'{text}" if text.startswith(_DANGEROUS) else text


class CsvFile:
    """Writes CSV."""

    def __init__(self, stream: IO[bytes], options: FormatOptions) -> None:
        self.notes: dict[str, int] = {}
        self._stream, self._guards = stream, options.guards_formulas
        self._cells: list[Cell] = []

    def write(self, table: ExportTable, rows: Sequence[Values]) -> None:
        """Append rows of one table."""
        # Not the csv module of Python: it looks at each character of a text twice, which takes three times as long.
        lines = list[str]()
        if not self._cells:
            self._cells = [
                _guard_cell(column.kind) if self._guards else _CELLS[column.kind] for column in table.columns
            ]
            lines.append(",".join(table.names))
        cells = self._cells
        lines += [
            ",".join(["" if value is None else cell(value) for cell, value in zip(cells, values, strict=True)])
            for values in rows
        ]
        if lines:
            self._stream.write(("\n".join(lines) + "\n").encode())

    def close(self) -> None:
        """Do nothing: every line is complete."""


def _quote(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def _to_time(value: datetime) -> str:
    return _encoder.encode(value)[1:-1].decode()


def _to_bool(value: bool) -> str:
    return "true" if value else "false"


def _to_json(value: Any) -> str:
    return _quote(_encoder.encode(value).decode())


def _guard_cell(kind: ColumnKind) -> Cell:
    """Return how to write values of a type so that none is a formula. Numbers and times never are."""
    if kind == "text":
        return lambda value: _quote(guard_formula(value))
    if kind in ("texts", "json"):
        return lambda value: _quote(guard_formula(_encoder.encode(value).decode()))
    return _CELLS[kind]


_CELLS: Mapping[ColumnKind, Cell] = {
    "text": _quote,
    "int": str,
    "float": str,
    "bool": _to_bool,
    "time": _to_time,
    "texts": _to_json,
    "json": _to_json,
}
