"""Prints docs/reference/export-columns.md: `python -m floodmark.exports.columns_reference`."""

from collections.abc import Iterable

from floodmark.sources.columns import ExportColumn

from .engagement import SAMPLE_COLUMNS
from .tables import DATA, SHARED, load_table

HEAD = """# Columns of exports

<!-- Written by `python3 run.py docs`; edit the columns.py of a source. -->

`floodmark export items` ([how to](../how-to/export.md)) writes these columns, with the same names in all formats. A row
has the columns of all items, then those of its source. A name keeps its meaning and its type; new columns are added at
the end of a source.

| type | JSON lines | CSV | Parquet | spreadsheet |
|---|---|---|---|---|
| text | text | text | `string` | text |
| int, float | number | number | `int64`, `double` | number; text if it has more than 15 digits |
| bool | `true`, `false` | `true`, `false` | `bool` | boolean |
| time | ISO 8601, UTC | ISO 8601, UTC | `timestamp[us, tz=UTC]` | date and time in UTC |
| texts | list | JSON | `list<string>` | JSON |
| json | any value | JSON | `string` with JSON | JSON |
| no value | `null` | empty | null | empty |
"""
_NOTES = {
    "telegram": "The fields of a post, as in the [events](events.md#posts).",
    "web": "The fields of a page.",
    "feed": "The fields of an entry.",
    "cookies": "The fields of a report; one row per scan.",
}


def page() -> str:
    """Return all columns as a Markdown page."""
    parts = [HEAD, _table("All items", "", SHARED)]
    for source, note in _NOTES.items():
        parts.append(_table(source, note, load_table(source).columns[len(SHARED) :]))
    note = "Items of Python collectors, and of sources that declare no columns, have the columns of all items and:"
    parts.append(_table("Other sources", note, [DATA]))
    return "".join(parts) + _END + _table("Engagement", _SAMPLES, SAMPLE_COLUMNS)


_SAMPLES = "`floodmark export engagement` writes one row per sample of a post:"
_END = """
With `--data`, every source has the column `data`. A package with a source can [declare its
columns](../how-to/write-a-source.md#columns-of-exports).
"""


def _table(title: str, note: str, columns: Iterable[ExportColumn]) -> str:
    head = f"\n## {title}\n\n" + (f"{note}\n\n" if note else "")
    rows = "".join(f"| `{one.name}` | {one.kind} | {_help(one)} |\n" for one in columns)
    return f"{head}| column | type | content |\n|---|---|---|\n{rows}"


def _help(column: ExportColumn) -> str:
    place = (
        f" In the item it is `{column.path}`." if column.path else " Stored beside the item." if column.beside else ""
    )
    return (column.help + place).replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
