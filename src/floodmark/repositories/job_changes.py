"""Changes of many jobs with few statements. Table: `jobs`."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, bindparam, update

from floodmark.store.async_engine import AsyncConnection
from floodmark.store.dialects import chunks
from floodmark.store.tables import WHEN_COLUMNS, jobs


async def write_changes(
    connection: AsyncConnection, changes: Mapping[str, Mapping[str, Any]], now: ColumnElement[Any]
) -> None:
    """Set columns of jobs, by id, and increase the version of each by one.

    Uses one statement for all jobs with the same changed columns, as when a default has changed.
    """
    alike = defaultdict[tuple[str, ...], list[dict[str, Any]]](list)
    for job_id, columns in changes.items():
        alike[tuple(sorted(columns))].append({"this": job_id, **{f"new_{n}": v for n, v in columns.items()}})
    for names, rows in alike.items():
        values = {name: bindparam(f"new_{name}", type_=jobs.c[name].type) for name in names}
        statement = update(jobs).where(jobs.c.job_id == bindparam("this"))
        for some in chunks(rows):
            await connection.execute(statement.values(**values, version=jobs.c.version + 1, updated_at=now), some)
        if not set(names).isdisjoint(WHEN_COLUMNS):
            await _plan_from(connection, [row["this"] for row in rows], now)


async def _plan_from(connection: AsyncConnection, job_ids: list[str], now: ColumnElement[Any]) -> None:
    # The database trigger of SQLite uses the clock of the machine; the clock of the process may be another.
    for some in chunks(job_ids):
        these = update(jobs).where(jobs.c.job_id.in_(some))
        await connection.execute(these.values(planned_until=now, updated_at=now))
