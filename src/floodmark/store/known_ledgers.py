"""Completeness ledgers in the transaction of a batch. Table: `completeness`, under the fence of the watermark.

While a worker holds the fence of a stream, only this worker writes its ledger. So the ledger is read with the first
batch of an execution, and merged in memory with the later ones.
"""

from collections import OrderedDict
from typing import Any, NamedTuple

import msgspec

from floodmark.model.clock import Clock
from floodmark.model.completeness import Coverage, Ledger
from floodmark.model.execution import Lease
from floodmark.rules.completeness import find_gaps, merge_coverage

from .database import Database, encode_json
from .planned import fetch_planned, plan

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


def read_ledger(value: Any) -> Ledger:
    """Return a stored ledger. One that was damaged with SQL starts again."""
    try:
        if isinstance(value, str | bytes):
            return msgspec.json.decode(value, type=Ledger)
        return msgspec.convert(value, Ledger)
    except msgspec.MsgspecError:
        return Ledger()
