"""Parquet by pyarrow, an extra: typed columns, compressed, in groups of a few thousand rows.

Times are timestamps in UTC with microseconds, lists are lists of texts, objects are JSON text.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

import msgspec

from floodmark.errors import Unavailable
from floodmark.exports.tables import ExportTable, Values
from floodmark.process.lazy import LazyModule
from floodmark.sources.columns import ColumnKind

from .port import FormatOptions

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet
else:
    # It takes half a second to import and is not always installed.
    pyarrow = LazyModule("pyarrow")

# A group is kept in memory until it is written; larger groups make files only a little smaller.
_GROUP = 5000
_encoder = msgspec.json.Encoder()


def require_parquet() -> None:
    """Raise `Unavailable` if pyarrow is not installed."""
    try:
        import_module("pyarrow.parquet")
    except ImportError as error:
        raise Unavailable(
            "Parquet needs pyarrow, which is not installed", hint="install it with: pip install 'floodmark[parquet]'"
        ) from error


class ParquetFile:
    """Writes Parquet."""

    def __init__(self, stream: IO[bytes], _options: FormatOptions) -> None:
        require_parquet()
        self.notes: dict[str, int] = {}
        self._stream, self._rows = stream, list[Values]()
        self._table: ExportTable | None = None
        self._writer: pyarrow.parquet.ParquetWriter | None = None

    def write(self, table: ExportTable, rows: Sequence[Values]) -> None:
        """Append rows of one table."""
        if self._writer is None:
            self._table, schema = table, _schema_of(table)
            self._writer = pyarrow.parquet.ParquetWriter(self._stream, schema, compression="zstd")
        self._rows += rows
        if len(self._rows) >= _GROUP:
            self._write_group()

    def close(self) -> None:
        """Write the last group and the index of the file."""
        if self._rows:
            self._write_group()
        if self._writer is not None:
            self._writer.close()

    def _write_group(self) -> None:
        assert self._table is not None
        assert self._writer is not None
        columns = [
            [None if value is None else _encoder.encode(value).decode() for value in values]
            if column.kind == "json"
            else values
            for column, values in zip(self._table.columns, zip(*self._rows, strict=True), strict=True)
        ]
        schema = self._writer.schema
        arrays = [pyarrow.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)]
        self._writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema), row_group_size=len(self._rows))
        self._rows.clear()


def _schema_of(table: ExportTable) -> "pyarrow.Schema":
    types: Mapping[ColumnKind, Any] = {
        "text": pyarrow.string(),
        "int": pyarrow.int64(),
        "float": pyarrow.float64(),
        "bool": pyarrow.bool_(),
        "time": pyarrow.timestamp("us", tz="UTC"),
        "texts": pyarrow.list_(pyarrow.string()),
        "json": pyarrow.string(),
    }
    return pyarrow.schema([(column.name, types[column.kind]) for column in table.columns])
