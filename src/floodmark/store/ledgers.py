"""Completeness ledgers. Table: `completeness`; `Keeping` writes it with the batches, under the fence of the watermark.

While a worker holds the fence of a stream, only this worker writes its ledger. So the ledger is read with the first
batch of an execution, and merged in memory with the later ones.
"""

from collections import OrderedDict
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Select, func, select

from floodmark.model.clock import Clock
from floodmark.model.completeness import Coverage, Gap, Ledger, TargetCompleteness
from floodmark.model.execution import Lease
from floodmark.rules.completeness import find_gaps, merge_coverage, summarise

from .database import Database, encode_json
from .planned import fetch_planned, plan
from .repository import Repository, bound_limit
from .rule_sql import stream_of
from .tables import completeness, jobs, watermarks

MOST_SHOWN = 1000
_MOST_KNOWN = 1000
_READ = plan("SELECT value FROM completeness WHERE stream = ?1")


class MergedLedger(NamedTuple):
    """A ledger to be stored with a batch."""

    ledger: Ledger
    text: str
    gaps: int


class KnownLedgers:
    """The ledgers that this process has written last, each with the fence under which it did."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._known: OrderedDict[str, tuple[int, Ledger | None]] = OrderedDict()

    async def merge(self, lease: Lease, coverage: Coverage) -> MergedLedger:
        """Return the ledger after a batch. It is known only once `store` is called, when the batch is stored."""
        stream = lease.job.stream
        fence, known = self._known.get(stream, (None, None))
        if fence != lease.fence:
            known = await self._read(stream)
        # Until the batch is stored, nothing is known: an error may come after the commit.
        self._known.pop(stream, None)
        ledger = merge_coverage(known, coverage, self._clock.now())
        return MergedLedger(ledger, encode_json(ledger), len(find_gaps(ledger)))

    def store(self, lease: Lease, ledger: Ledger) -> None:
        """Remember a ledger that was stored."""
        self._known[lease.job.stream] = lease.fence, ledger
        while len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)

    async def _read(self, stream: str) -> Ledger | None:
        rows = await fetch_planned(self._database, _READ, stream)
        return None if not rows else read_ledger(rows[0][0])


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


def read_ledger(value: Any) -> Ledger:
    """Return a stored ledger. One that was damaged with SQL starts again."""
    try:
        if isinstance(value, str | bytes):
            return msgspec.json.decode(value, type=Ledger)
        return msgspec.convert(value, Ledger)
    except msgspec.MsgspecError:
        return Ledger()


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
