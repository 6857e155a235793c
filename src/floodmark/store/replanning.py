"""Plans that follow the size of the tables.

A hot statement is planned once for each connection. PostgreSQL takes a table that was analysed while it was empty for
one row, and then looks rows up by reading all of an index: that is as good as any plan for an empty table, and reads
everything later. So each connection remembers how large the tables were when its plans were made, and drops the plans
when one of them has grown.

Statistics only say how many rows a page has. They say none if they were made just after all rows had been deleted: such
a table is analysed again.
"""

import math
import time
from collections.abc import Mapping
from weakref import WeakKeyDictionary

from msgspec import Struct

from .postgres_connection import Connection

# The tables that hot statements read, and that grow.
_TABLES = (
    *("executions", "jobs", "job_dependencies", "watermarks", "limits", "audit"),
    *("items", "item_revisions", "outbox", "budgets", "budget_grants", "triggers", "trigger_deliveries"),
)
# In pages of 8 KB.
_SIZES = """
SELECT c.relname::text, pg_relation_size(c.oid) / 8192, c.relpages > 0 AND c.reltuples = 0
  FROM unnest($1::text[]) AS t(name) CROSS JOIN LATERAL (
    SELECT * FROM pg_class WHERE pg_class.oid = to_regclass(t.name) LIMIT 1) c
"""
# A plan for a table of this size looks rows up by their keys, however small the table was estimated.
_FEW_PAGES = 8
_GROWTH = 4
_EVERY_SECONDS = 1.0
# A table is analysed at most once in this many comparisons.
_ANALYSE_AGAIN = 30


class PlannedFor(Struct):
    """The sizes of the tables for which a connection has planned, in pages, and when they were last compared."""

    pages: dict[str, int]
    compared_at: float
    analysed_at: float = -math.inf


def has_grown(planned: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Return whether plans that were made for the first sizes may be bad for the second."""
    return any(size > max(_FEW_PAGES, _GROWTH * planned.get(name, 0)) for name, size in now.items())


class Replanning:
    """Drops the plans of connections whose tables have grown. `every`: seconds between two comparisons."""

    def __init__(self, every: float = _EVERY_SECONDS) -> None:
        self.every = every
        self._planned: WeakKeyDictionary[Connection, PlannedFor] = WeakKeyDictionary()

    async def check(self, connection: Connection) -> None:
        """Compare the sizes, if the last comparison was long enough ago."""
        planned, now = self._planned.get(connection), time.monotonic()
        if planned is not None and now - planned.compared_at < self.every:
            return
        pages, emptied = await _measure(connection)
        if planned is None:
            planned = self._planned[connection] = PlannedFor(pages, now)
        planned.compared_at = now
        if emptied and now - planned.analysed_at >= self.every * _ANALYSE_AGAIN:
            planned.analysed_at = now
            # Statistics that count no rows make every estimate one row. All connections plan again after this.
            await connection.execute(f"ANALYZE (SKIP_LOCKED) {', '.join(emptied)}")
        if has_grown(planned.pages, pages):
            await connection.execute("DISCARD PLANS")
            planned.pages = pages


async def _measure(connection: Connection) -> tuple[dict[str, int], list[str]]:
    """Return the sizes of the tables, and those with pages whose statistics say that they have no rows."""
    rows = await connection.fetch(_SIZES, list(_TABLES))
    emptied = [name for name, pages, is_taken_for_empty in rows if is_taken_for_empty and pages > _FEW_PAGES]
    return {name: pages for name, pages, _ in rows}, emptied
