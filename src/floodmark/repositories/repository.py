"""The base of repositories: classes that read and write tables for people and services."""

from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Table

from floodmark.model.clock import Clock
from floodmark.store.database import Database
from floodmark.store.dialects import insert_into, present


class Repository:
    """Reads and writes tables of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    def _now(self, after: timedelta = timedelta()) -> ColumnElement[Any]:
        """Return the present time, or `after` it, as an expression."""
        return present(self._database, self._clock, after)

    def _insert_into(self, table: Table) -> Any:
        """Return an INSERT that supports ON CONFLICT."""
        return insert_into(self._database, table)


def bound_limit(limit: int, most: int) -> int:
    """Return the size of a page: at least 1 and at most `most`."""
    return max(1, min(limit, most))
