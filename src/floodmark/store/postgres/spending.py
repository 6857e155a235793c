"""Requests of budgets on PostgreSQL. Tables: `budgets`, `budget_grants`, `budget_hours`.

The row of a budget is locked while its `next_free` moves, so that each request has its own place in time, whatever
process asks for it and whichever of them dies. The clock of the database decides.
"""

from datetime import timedelta

from floodmark.store.database import PostgresDatabase
from floodmark.store.port import Spent
from floodmark.store.postgres_connection import Connection

_SPEND = """
WITH granted AS (
    DELETE FROM budget_grants WHERE execution_id = $2
), spent AS (
    UPDATE budgets b
       SET next_free = GREATEST(b.next_free, clock_timestamp()) + make_interval(secs => b.interval_seconds)
     WHERE b.name = $1 AND b.next_free <= clock_timestamp() + $3::interval
    RETURNING EXTRACT(EPOCH FROM b.next_free - clock_timestamp())::float8 - b.interval_seconds AS seconds
), counted AS (
    INSERT INTO budget_hours AS h (budget, hour, requests)
    SELECT $1, date_trunc('hour', clock_timestamp(), 'UTC'), 1 FROM spent
    ON CONFLICT (budget, hour) DO UPDATE SET requests = h.requests + 1
)
SELECT seconds, FALSE FROM spent
UNION ALL
SELECT EXTRACT(EPOCH FROM b.next_free - clock_timestamp())::float8, TRUE
  FROM budgets b WHERE b.name = $1 AND NOT EXISTS (SELECT 1 FROM spent)
"""


class PostgresSpending:
    """Spends requests on PostgreSQL."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def spend(self, budget: str, execution_id: str, *, patience: timedelta) -> Spent | None:
        """Take the next request of a budget if it is free within `patience`."""

        async def work(connection: Connection) -> Spent | None:
            row = await connection.fetchrow(_SPEND, budget, execution_id, patience)
            return None if row is None else Spent(seconds=max(0.0, row[0]), is_refused=row[1])

        return await self._database.hot("spend", work)
