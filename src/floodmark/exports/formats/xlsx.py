"""Spreadsheets (XLSX) by xlsxwriter: one sheet per source, and a further one after 1,048,575 rows.

Text stays text: no cell becomes a formula or a link. A cell holds at most 32,767 characters; longer texts are cut.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

import msgspec

from floodmark.exports.tables import ExportTable, Values
from floodmark.process.lazy import LazyModule

from .port import FormatOptions

if TYPE_CHECKING:
    import xlsxwriter
    from xlsxwriter.worksheet import Worksheet
else:
    # Only spreadsheets need it.
    xlsxwriter = LazyModule("xlsxwriter")

MOST_ROWS, MOST_CHARACTERS = 1_048_576, 32_767
# Numbers in a spreadsheet have 15 digits.
_LARGEST = 10**15
_FIRST_YEAR = 1900
_CUT = " [cut]"
_NAME_LENGTH, _FORBIDDEN = 31, str.maketrans(dict.fromkeys("[]:*?/\\'", "_"))
_encoder = msgspec.json.Encoder()


class XlsxFile:
    """Writes a spreadsheet."""

    def __init__(self, stream: IO[bytes], options: FormatOptions, *, most_rows: int = MOST_ROWS) -> None:
        self.notes: dict[str, int] = {}
        self._most_rows = most_rows
        self._book = xlsxwriter.Workbook(
            stream,
            {
                # Rows go to temporary files at once.
                "constant_memory": True,
                "tmpdir": None if options.folder is None else str(options.folder),
                "strings_to_formulas": False,
                "strings_to_urls": False,
                "strings_to_numbers": False,
            },
        )
        self._times = self._book.add_format({"num_format": "yyyy-mm-dd hh:mm:ss"})
        self._sheets: dict[str, tuple[Worksheet, int]] = {}
        self._used: set[str] = set()

    def write(self, table: ExportTable, rows: Sequence[Values]) -> None:
        """Append rows to the sheet of their table."""
        sheet, place = self._sheets.get(table.source) or self._add_sheet(table)
        for values in rows:
            if place == self._most_rows:
                sheet, place = self._add_sheet(table)
            for column, value in enumerate(values):
                if value is not None:
                    self._write_cell(sheet, place, column, value)
            place += 1
        self._sheets[table.source] = sheet, place

    def close(self) -> None:
        """Put the sheets together."""
        if not self._sheets:
            # A file without a sheet cannot be opened.
            self._book.add_worksheet("items")
        self._book.close()

    def _add_sheet(self, table: ExportTable) -> "tuple[Worksheet, int]":
        sheet = self._book.add_worksheet(self._free_name(table.source or "items"))
        sheet.freeze_panes(1, 0)
        for column, name in enumerate(table.names):
            sheet.write_string(0, column, name)
        return sheet, 1

    def _free_name(self, source: str) -> str:
        base, number = source.translate(_FORBIDDEN), 1
        name = base[:_NAME_LENGTH]
        while name.casefold() in self._used:
            number += 1
            end = f" ({number})"
            name = f"{base[: _NAME_LENGTH - len(end)]}{end}"
        self._used.add(name.casefold())
        return name

    def _write_cell(self, sheet: "Worksheet", row: int, column: int, value: Any) -> None:
        if isinstance(value, bool):
            sheet.write_boolean(row, column, value)
        elif isinstance(value, int | float) and abs(value) < _LARGEST:
            sheet.write_number(row, column, value)
        elif isinstance(value, datetime) and value.year > _FIRST_YEAR:
            sheet.write_datetime(row, column, value.astimezone(UTC).replace(tzinfo=None), self._times)
        else:
            sheet.write_string(row, column, self._cut(_text_of(value)))

    def _cut(self, text: str) -> str:
        # As spreadsheets count: in UTF-16 units.
        if len(text) <= MOST_CHARACTERS // 2 or len(text.encode("utf-16-le")) // 2 <= MOST_CHARACTERS:
            return text
        note = f"texts longer than {MOST_CHARACTERS:,} characters were cut"
        self.notes[note] = self.notes.get(note, 0) + 1
        room = (MOST_CHARACTERS - len(_CUT)) * 2
        return text.encode("utf-16-le")[:room].decode("utf-16-le", errors="ignore") + _CUT


def _text_of(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, str) else _encoder.encode(value).decode()
