"""Completeness ledgers. Table: `completeness`, which `Keeping` writes with the batches."""

from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, select

from floodmark.model.completeness import Gap, Ledger, TargetCompleteness
from floodmark.rules.completeness import find_gaps, summarise
from floodmark.store.known_ledgers import read_ledger
from floodmark.store.rule_sql import stream_of
from floodmark.store.tables import completeness, jobs, watermarks

from .repository import Repository, bound_limit

MOST_SHOWN = 1000


class Ledgers(Repository):
    """Reads completeness ledgers."""

    async def find(self, stream: str) -> Ledger | None:
        """Return the ledger of a stream, if it has one."""
        value = await self._database.fetch_value(select(completeness.c.value).where(completeness.c.stream == stream))
        return None if value is None else read_ledger(value)

    async def gaps(self, stream: str) -> list[Gap]:
        """Return the gaps of a stream."""
        ledger = await self.find(stream)
        return [] if ledger is None else find_gaps(ledger)

    async def page(
        self, *, stream: str | None = None, with_gaps: bool = False, after: str | None = None, limit: int = 100
    ) -> list[TargetCompleteness]:
        """Return what is known about streams, in order of name; with `with_gaps` only those that have gaps."""
        query = _select()
        if stream is not None:
            query = query.where(completeness.c.stream == stream)
        if with_gaps:
            query = query.where(completeness.c.gaps > 0)
        if after is not None:
            query = query.where(completeness.c.stream > after)
        rows = await self._database.fetch(query.order_by(completeness.c.stream).limit(bound_limit(limit, MOST_SHOWN)))
        return [_completeness_of(**row) for row in rows]

    async def count_gaps(self) -> dict[str, int]:
        """Return the number of gaps of each source that has any."""
        query = select(completeness.c.source, func.sum(completeness.c.gaps).label("gaps"))
        query = query.where(completeness.c.gaps > 0).group_by(completeness.c.source)
        return {row["source"]: int(row["gaps"]) for row in await self._database.fetch(query)}


def _select() -> Select[Any]:
    job = select(func.min(jobs.c.name)).where(stream_of(jobs) == completeness.c.stream)
    return select(
        completeness.c.stream,
        completeness.c.source,
        completeness.c.value,
        completeness.c.updated_at,
        watermarks.c.last_checked_at.label("checked_at"),
        job.scalar_subquery().label("job"),
    ).outerjoin(watermarks, watermarks.c.stream == completeness.c.stream)


def _completeness_of(
    *, stream: str, source: str, value: Any, updated_at: datetime, checked_at: datetime | None, job: str | None
) -> TargetCompleteness:
    ledger = read_ledger(value)
    return TargetCompleteness(
        stream=stream,
        source=source,
        job=job,
        axis=ledger.axis,
        complete=ledger.complete,
        gaps=tuple(find_gaps(ledger)),
        deleted=sum(one.count for one in ledger.deleted),
        checked_at=checked_at,
        updated_at=updated_at,
        summary=summarise(ledger, checked_at),
    )
