"""The queue: an index of the executions that can start now. The store is the truth; losing the queue loses nothing."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from floodmark.model.execution import Lease, Queued
from floodmark.model.job import Priority
from floodmark.store.port import Extended, Settlement


class Publisher(Protocol):
    """The scheduler's half of the queue."""

    async def put(self, executions: Sequence[Queued], *, again: bool = False) -> int:
        """Make them available; how many the queue did not know. Putting the same id again changes nothing.

        `again` is for executions that were in the hands of a worker before (taken back, handed back, woken, retried):
        what was delivered then no longer counts, and may not be gone yet.
        Never raises because the queue is away: what could not be put is found by the requeuer.
        """
        ...

    async def depth(self) -> Mapping[Priority, int]:
        """How many wait, by priority."""
        ...

    async def hand_on(self, worker: str) -> None:
        """A worker has died: make what it had been handed available to others. Never raises, as `put`."""
        ...


class Consumer(Protocol):
    """The worker's half: at least once, one holder at a time."""

    async def lease(self, limit: int, *, worker: str, ttl: timedelta, wait: timedelta) -> list[Lease]:
        """Hand out up to `limit` executions, most urgent first.

        Each step of priority is worth one QUEUE_PATIENCE of waiting, so nothing waits for ever. Waits up to `wait` for
        something to come; an empty list means nothing did.
        """
        ...

    async def extend(self, leases: Sequence[Lease], *, ttl: timedelta) -> Extended:
        """Keep them for another `ttl`; tells which are lost or to be cancelled."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Close the leases. False where one had already passed to another worker."""
        ...

    async def leave(self, worker: str) -> None:
        """The worker is going: forget it. What it still holds is taken back when its leases end."""
        ...


class Queue(Publisher, Consumer, Protocol):
    """Both halves."""
