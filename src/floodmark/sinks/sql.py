"""Stores items, watermark and events in the database, in one transaction."""

from floodmark.errors import Fenced
from floodmark.model.batch import Batch, Kept
from floodmark.model.clock import Clock, SystemClock
from floodmark.model.execution import Lease
from floodmark.observability.events import BatchKept, BatchRefused, Events, PollKept
from floodmark.observability.tracing import Tracing
from floodmark.process.failpoints import failpoint
from floodmark.store.port import Keeping


class SqlSink:
    """Keeps items in Floodmark's own database."""

    def __init__(
        self, keeping: Keeping, events: Events, clock: Clock | None = None, tracing: Tracing | None = None
    ) -> None:
        self._keeping, self._events, self._clock, self._tracing = keeping, events, clock or SystemClock(), tracing

    async def keep(self, lease: Lease, batch: Batch) -> Kept:
        """Store a batch under the fence of the lease."""
        failpoint("keep.before")
        try:
            keeping, tracing = self._keeping.keep, self._tracing
            kept = await (keeping(lease, batch) if tracing is None else tracing.batch(lease, batch, keeping))
        except Fenced:
            self._events.emit(BatchRefused(lease.job.stream, lease.fence))
            raise
        failpoint("keep.after")
        job, age = lease.job, self._age(lease, batch) if kept.new else None
        self._events.emit(BatchKept(job.stream, kept.new, kept.changed, kept.known, job.source, age))
        if kept.poll is not None:
            self._events.emit(PollKept(job.source, kept.poll.found, kept.poll.expected, kept.poll.delays))
        return kept

    def _age(self, lease: Lease, batch: Batch) -> float | None:
        """Return the age of the newest item in seconds; None in a backfill or the first run: items may be old."""
        newest = batch.items[-1].occurred_at
        if newest is None or lease.watermark is None or batch.is_backfill:
            return None
        return max(0.0, (self._clock.now() - newest).total_seconds())
