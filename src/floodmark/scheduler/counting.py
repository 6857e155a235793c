"""Counts and reports for the dashboard, which would take too long on request. Runs only on the leader."""

import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from floodmark.observability.events import DepthMeasured, Events
from floodmark.repositories.days import StreamDays
from floodmark.repositories.freshness import FreshnessReader
from floodmark.repositories.minutes import Minutes
from floodmark.repositories.proofs import Proofs

# Pause for this many times the duration of a step, so that counting uses at most a twentieth of one core.
_REST = 20
_MORE = timedelta(seconds=1)
# A chain must keep up with the events: it may use a fifth of one core.
_PROOF_REST = 4
_PRUNE_SECONDS = 3600.0


class _Rest:
    """Does work again only after a pause that grows with its duration."""

    def __init__(self) -> None:
        self._until = 0.0

    async def work(self, work: Callable[[], Awaitable[bool]], *, rest: int = _REST) -> timedelta | None:
        """Work, unless it is too early; return a short pause if there is more to do."""
        began = time.monotonic()
        if began < self._until:
            return _MORE
        is_more = await work()
        now = time.monotonic()
        self._until = now + rest * (now - began)
        return min(_MORE, timedelta(seconds=self._until - now)) if is_more else None


class MinuteCounter:
    """Counts executions and the length of the queue by the minute."""

    def __init__(self, minutes: Minutes, events: Events) -> None:
        self._minutes, self._rest = minutes, _Rest()
        self._queued, self._pruned_at = 0, float("-inf")
        events.listen(DepthMeasured, self._note_depth)

    async def step(self) -> timedelta | None:
        """Count the minutes that are due."""
        return await self._rest.work(self._count)

    async def _count(self) -> bool:
        queued, self._queued = self._queued, 0
        is_more = await self._minutes.count(queued=queued)
        if time.monotonic() - self._pruned_at > _PRUNE_SECONDS:
            await self._minutes.prune()
            self._pruned_at = time.monotonic()
        return is_more

    def _note_depth(self, event: DepthMeasured) -> None:
        self._queued = max(self._queued, sum(event.depths.values()))


class DayCounter:
    """Counts items by the day and by the minute."""

    def __init__(self, days: StreamDays) -> None:
        self._days, self._rest = days, _Rest()

    async def step(self) -> timedelta | None:
        """Count the next events."""
        return await self._rest.work(self._days.count)


class ProofMaker:
    """Extends the hash chains of streams."""

    def __init__(self, proofs: Proofs) -> None:
        self._proofs, self._rest = proofs, _Rest()

    async def step(self) -> timedelta | None:
        """Chain the next events."""
        return await self._rest.work(self._proofs.follow, rest=_PROOF_REST)


class FreshnessMeasurer:
    """Measures how late the items of adaptive jobs are stored."""

    def __init__(self, reader: FreshnessReader) -> None:
        self._reader, self._rest = reader, _Rest()

    async def step(self) -> timedelta | None:
        """Store the report."""
        return await self._rest.work(self._measure)

    async def _measure(self) -> bool:
        await self._reader.measure()
        return False
