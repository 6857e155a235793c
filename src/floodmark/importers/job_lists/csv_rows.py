"""CSV: the first line names the columns."""

import csv
import io
from collections.abc import Iterator, Sequence

from floodmark.errors import InvalidInput

from .rows import LONGEST_LINE, JobList

_DELIMITERS = (",", ";", "\t")
_MOST_COLUMNS = 200
# The columns that say what to collect: a first line with one of them is no target.
_TARGETS = frozenset({"target", "url"})


def read_csv(text: str) -> JobList:
    """Return a row for each line with a value; empty cells are left out."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=find_delimiter(text), strict=True)
    lines = _lines(reader)
    header = [normalize_name(name) for name in next(lines, (1, []))[1]]
    _check_header(header)
    found = JobList(header=header)
    for number, cells in lines:
        where = f"line {number:,}"
        if len(cells) > len(header):
            hint = "put quotes around a value that contains the separator"
            error = InvalidInput(f"it has {len(cells)} values for {len(header)} columns", hint=hint)
            found.add(where, error=error)
        elif any(cells):
            found.add(where, {name: cell for name, cell in zip(header, cells, strict=False) if cell})
    return found


def find_delimiter(text: str) -> str:
    """Return the character that separates the columns in the first line."""
    first = text.partition("\n")[0][:LONGEST_LINE]
    return max(_DELIMITERS, key=first.count)


def looks_like_csv(text: str) -> bool:
    """Return whether the first line names columns."""
    first = text.partition("\n")[0][:LONGEST_LINE]
    names = [normalize_name(name.strip().strip('"')) for name in first.split(find_delimiter(text))]
    return not _TARGETS.isdisjoint(names)


def normalize_name(text: str) -> str:
    """Return a column name as it is written here: "Max delay" becomes `max_delay`."""
    return text.strip().lstrip("-").lower().replace(" ", "_").replace("-", "_")


def _lines(reader: Iterator[list[str]]) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the values of each line with its number."""
    before = 0
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            place = reader.line_num  # type: ignore[attr-defined] # of a csv reader
            raise InvalidInput(f"line {place:,}: it is not CSV: {error}", hint="correct the quotes") from None
        yield before + 1, [cell.strip() for cell in cells]
        before = reader.line_num  # type: ignore[attr-defined] # as above


def _check_header(header: Sequence[str]) -> None:
    if len(header) > _MOST_COLUMNS:
        raise InvalidInput(f"line 1: there are {len(header):,} columns", hint=f"use {_MOST_COLUMNS} at most")
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise InvalidInput(f"line 1: two columns have the name {twice[0][:60]!r}", hint="remove one of them")
    if not all(header):
        raise InvalidInput("line 1: a column has no name", hint="name every column in the first line")
