"""The store as the sink: items, watermark and events in one transaction."""

from floodmark.batch import Batch, Kept
from floodmark.errors import Fenced
from floodmark.execution import Lease
from floodmark.failpoints import failpoint
from floodmark.store.port import Keeping
from floodmark.telemetry.events import BatchKept, BatchRefused, Events


class SqlSink:
    """Keeps items in the database that holds everything else."""

    def __init__(self, keeping: Keeping, events: Events) -> None:
        self._keeping, self._events = keeping, events

    async def keep(self, lease: Lease, batch: Batch) -> Kept:
        """Keep a batch under the lease's fence."""
        failpoint("keep.before")
        try:
            kept = await self._keeping.keep(lease, batch)
        except Fenced:
            self._events.emit(BatchRefused(lease.job.stream, lease.fence))
            raise
        failpoint("keep.after")
        self._events.emit(BatchKept(lease.job.stream, kept.new, kept.changed, kept.known, lease.job.source))
        return kept
