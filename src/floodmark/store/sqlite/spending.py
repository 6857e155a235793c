"""Requests of budgets on SQLite. Tables: `budgets`, `budget_grants`, `budget_hours`."""

import sqlite3
from datetime import timedelta

from floodmark.model.clock import Clock
from floodmark.store.database import SqliteDatabase
from floodmark.store.port import Spent
from floodmark.store.types import from_text, to_text

_READ = "SELECT next_free, interval_seconds FROM budgets WHERE name = ?"
_MOVE = "UPDATE budgets SET next_free = ? WHERE name = ?"
_USE_GRANT = "DELETE FROM budget_grants WHERE execution_id = ?"
_COUNT = """
INSERT INTO budget_hours (budget, hour, requests) VALUES (?, ?, 1)
ON CONFLICT (budget, hour) DO UPDATE SET requests = requests + 1
"""


class SqliteSpending:
    """Spends requests on SQLite."""

    def __init__(self, database: SqliteDatabase, *, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def spend(self, budget: str, execution_id: str, *, patience: timedelta) -> Spent | None:
        """Take the next request of a budget if it is free within `patience`."""

        def work(connection: sqlite3.Connection) -> Spent | None:
            now = self._clock.now()
            connection.execute(_USE_GRANT, (execution_id,))
            row = connection.execute(_READ, (budget,)).fetchone()
            if row is None:
                return None
            place = max(from_text(row[0]), now)
            seconds = (place - now).total_seconds()
            if place > now + patience:
                return Spent(seconds=seconds, is_refused=True)
            connection.execute(_MOVE, (to_text(place + timedelta(seconds=row[1])), budget))
            connection.execute(_COUNT, (budget, to_text(now.replace(minute=0, second=0, microsecond=0))))
            return Spent(seconds=seconds)

        return await self._database.hot("spend", work)
