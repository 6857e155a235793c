"""The port of formats: how rows become the bytes of one file."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from msgspec import Struct

from floodmark.exports.tables import ExportTable, Values


class FileFormat(Protocol):
    """One file that is being written.

    `notes` says what the format cannot hold: a text for people, and how often it happened.
    """

    notes: dict[str, int]

    def write(self, table: ExportTable, rows: Sequence[Values]) -> None:
        """Append rows of a table. Without rows only its columns are added, where the format has them."""
        ...

    def close(self) -> None:
        """Write the rest. The stream stays open."""
        ...


class FormatOptions(Struct, frozen=True):
    """How to write a file: a `folder` for temporary files, and whether CSV is safe to open in a spreadsheet program."""

    folder: Path | None = None
    guards_formulas: bool = True


class Format(Struct, frozen=True):
    """A format: its suffix, whether it can be streamed, and what starts a file of it.

    Rows of several sources have different columns: `holds_many_tables` says whether one file can hold them.
    """

    suffix: str
    open: Callable[[IO[bytes], FormatOptions], Any]
    can_stream: bool = False
    holds_many_tables: bool = False
