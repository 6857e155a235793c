"""What a list of jobs contains: rows, each with its place in the file."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from floodmark.errors import InvalidInput

MOST_ROWS = 100_000
LONGEST_LINE = 20_000


class ListedRow(Struct, frozen=True):
    """One job of a file. `where` is its place ("line 3"); an error refuses this row alone."""

    where: str
    values: Mapping[str, Any] = field(default_factory=dict)
    error: InvalidInput | None = None


class JobList(Struct, kw_only=True):
    """The jobs of a file. `header` are the columns of CSV. An export has `defaults` for all rows and a `selection`."""

    header: Sequence[str] = ()
    rows: list[ListedRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    selection: Mapping[str, Any] | None = None

    def add(self, where: str, values: Mapping[str, Any] | None = None, error: InvalidInput | None = None) -> None:
        """Add a row; refuse the file if it has too many."""
        if len(self.rows) == MOST_ROWS:
            raise InvalidInput(
                f"{where}: a file may have {MOST_ROWS:,} jobs at most", hint="split it into several files"
            )
        self.rows.append(ListedRow(where, values or {}, error))
