"""The queue: an index of the executions that can start now. It can be rebuilt from the store at any time."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from floodmark.model.execution import Lease, Queued
from floodmark.model.job import Priority
from floodmark.store.port import Extended, Offer, Settlement


class Publisher(Protocol):
    """The scheduler's half of the queue."""

    async def put(self, executions: Sequence[Queued], *, again: bool = False) -> int:
        """Make executions available; returns how many were new to the queue. Putting an id twice changes nothing.

        `again` is for executions that a worker has held before (rescued, released, woken, retried): it replaces the
        old delivery, which may still exist.
        Never raises because the queue is unreachable: the requeuer puts these executions later.
        """
        ...

    async def depth(self) -> Mapping[Priority, int]:
        """Return the number of waiting executions by priority."""
        ...

    async def hand_on(self, worker: str) -> None:
        """Make the deliveries of a dead worker available to others. Like `put`, it never raises."""
        ...


class Consumer(Protocol):
    """The worker's half: at least once, one holder at a time."""

    async def lease(self, limit: int, *, worker: str, ttl: timedelta, wait: timedelta) -> list[Lease]:
        """Lease up to `limit` executions, most urgent first.

        Each step of priority is worth one QUEUE_PATIENCE of waiting, so no execution starves. Waits up to `wait` for
        an execution; returns an empty list if there is none.
        """
        ...

    async def offer(self, offers: Sequence[Offer], *, within: timedelta) -> list[bool]:
        """Give leases up for preferred workers, which may lease them `within` this time; after that, any worker may.

        False for each lease that has passed to another worker or is to be cancelled: it is not offered.
        """
        ...

    async def lease_offers(self, limit: int, *, worker: str, ttl: timedelta, within: timedelta) -> list[Lease]:
        """Lease up to `limit` executions that are offered to `worker`."""
        ...

    async def extend(self, leases: Sequence[Lease], *, ttl: timedelta) -> Extended:
        """Extend the leases by `ttl`; returns those that are lost or to be cancelled."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Write the outcomes. False for each lease that had already passed to another worker."""
        ...

    async def leave(self, worker: str) -> None:
        """Remove a worker that stops. The executions it still holds are rescued when their leases end."""
        ...


class Queue(Publisher, Consumer, Protocol):
    """Both halves of the queue."""
