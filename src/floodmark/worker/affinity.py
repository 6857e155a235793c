"""Affinity: leaves executions to the workers that their sources prefer.

A leased execution whose source prefers another worker is offered to it. The preferred worker leases its offers; those
that it does not lease within EXECUTION_AFFINITY are queued for any worker, and are not offered a second time.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta

from floodmark.coordination.partition import Partition
from floodmark.coordination.signals.port import Bell
from floodmark.model.execution import Lease
from floodmark.observability.events import Events, StepFailed
from floodmark.queue.port import Consumer
from floodmark.sources.port import PrefersWorkers, Source
from floodmark.store.port import Offer


class Affinity:
    """Offers leases to other workers, and leases what they offer. `bell` rings when something may be offered here."""

    def __init__(
        self,
        queue: Consumer,
        sources: Mapping[str, Source],
        partition: Partition,
        events: Events,
        *,
        bell: Bell,
        within: timedelta,
    ) -> None:
        self._queue, self._partition, self._events, self._within = queue, partition, events, within
        self._sources = {kind: source for kind, source in sources.items() if isinstance(source, PrefersWorkers)}
        self.bell = bell

    async def offer(self, leases: list[Lease]) -> list[Lease]:
        """Offer the leases that other workers should have; return the rest, to be run here.

        After a failure all of them are run here: a preference must not keep an execution from running.
        """
        if not self._partition.is_shared or not any(lease.job.source in self._sources for lease in leases):
            return leases
        try:
            offers = await self._choose(leases)
            is_offered = await self._queue.offer(offers, within=self._within) if offers else []
        except Exception as error:  # noqa: BLE001 - a worker survives every failure of its stores; it is reported
            self._events.emit(StepFailed(step="affinity", error=f"{type(error).__name__}: {error}"))
            return leases
        gone = {offer.lease.execution_id for offer, is_gone in zip(offers, is_offered, strict=True) if is_gone}
        return [lease for lease in leases if lease.execution_id not in gone]

    async def take(self, limit: int, *, ttl: timedelta) -> list[Lease]:
        """Lease up to `limit` executions that are offered to this worker."""
        if not self._partition.is_shared:
            return []
        return await self._queue.lease_offers(limit, worker=self._partition.me, ttl=ttl, within=self._within)

    async def _choose(self, leases: list[Lease]) -> list[Offer]:
        by_source = defaultdict[str, list[Lease]](list)
        for lease in leases:
            if lease.job.source in self._sources and not lease.was_offered and lease.job.unreadable is None:
                by_source[lease.job.source].append(lease)
        others, offers = self._partition.workers - {self._partition.me}, list[Offer]()
        for kind, theirs in by_source.items():
            preferred = await self._sources[kind].preferred_workers(theirs)
            for lease, worker in zip(theirs, preferred, strict=True):
                if worker is not None and worker in others:
                    offers.append(Offer(lease=lease, worker=worker))
        return offers
