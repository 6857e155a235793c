"""Converts rows to the columns of their source, and leaves out those that the request does not want."""

from collections.abc import Iterable

from floodmark.errors import InvalidInput
from floodmark.rules.item_conditions import Condition

from .outputs import Dated
from .reading import Chunk
from .request import ExportRequest
from .tables import ExportTable, ReadField, load_table

Test = tuple[Condition, ReadField]


class Conversion:
    """The tables of the sources of an export, and its conditions."""

    def __init__(self, request: ExportRequest) -> None:
        self._request = request
        self._tables: dict[str, tuple[ExportTable, list[Test] | None]] = {}

    @property
    def tables(self) -> list[ExportTable]:
        """Return the tables of the sources so far."""
        return [table for table, _ in self._tables.values()]

    def prepare(self, sources: Iterable[str]) -> None:
        """Load the tables of sources. `InvalidInput` if no table has the field of a condition."""
        for source in sorted(set(sources)):
            self._table_of(source)
        for condition in self._request.where if self._tables else ():
            if all(table.reader_of(condition) is None for table in self.tables):
                names = ", ".join(name for table in self.tables for name in table.names)
                raise InvalidInput(
                    f"there is no column {condition.field[:60]!r}",
                    hint=f"use one of: {names}; or data.{condition.field[:60]} for a field of the item",
                )

    def convert(self, chunk: Chunk) -> tuple[ExportTable, list[Dated]]:
        """Return the wanted rows with their values."""
        table, tests = self._table_of(chunk.source)
        found = list[Dated]()
        for row in chunk.rows:
            if tests is None or (row.deleted and not self._request.deleted):
                continue
            values = table.values_of(row)
            if all(condition.is_true_for(read(values, row)) for condition, read in tests):
                found.append(Dated(row.time.date(), values))
        return table, found

    def notes(self) -> Iterable[str]:
        """Yield what could not be converted."""
        for table in self.tables:
            for name, count in table.unfit.items():
                yield (
                    f"{count:,} values of {table.source} do not fit the type of the column {name} and are empty: "
                    "the option --data adds the whole items"
                )

    def _table_of(self, source: str) -> tuple[ExportTable, list[Test] | None]:
        if source not in self._tables:
            table = load_table(source, with_data=self._request.with_data)
            self._tables[source] = table, _tests_for(table, self._request.where)
        return self._tables[source]


def _tests_for(table: ExportTable, where: Iterable[Condition]) -> list[Test] | None:
    """Return how to test the conditions; None if the table does not have one of the fields."""
    tests: list[Test] = []
    for condition in where:
        read = table.reader_of(condition)
        if read is None:
            return None
        tests.append((condition, read))
    return tests
