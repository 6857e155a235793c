"""The database as the queue: `queued` rows of `executions` in order of `queue_rank`.

It stores nothing itself. A signal wakes workers at once; polling every `_POLL` covers lost signals.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta

from sqlalchemy import func, select

from floodmark.coordination.signals.port import Signals, Topic
from floodmark.model.execution import Lease, Queued, State
from floodmark.model.job import Priority
from floodmark.observability.events import Events, ExecutionsEnqueued, ExecutionsLeased, ExecutionsOffered
from floodmark.process.failpoints import failpoint
from floodmark.store.database import Database
from floodmark.store.port import Extended, Leasing, Offer, Settlement
from floodmark.store.tables import job_executions

_POLL = timedelta(seconds=1)


class SqlQueue:
    """The queue on SQLite, on PostgreSQL without Redis, and while Redis is unreachable."""

    def __init__(self, database: Database, leasing: Leasing, signals: Signals, events: Events) -> None:
        self._database, self._leasing, self._signals, self._events = database, leasing, signals, events
        self._bell = signals.bell(Topic.QUEUE)

    async def put(self, executions: Sequence[Queued], *, again: bool = False) -> int:
        """Wake the workers: the rows of the executions are already there."""
        if executions:
            await self._signals.notify(Topic.QUEUE)
            self._events.emit(ExecutionsEnqueued(Counter(e.priority for e in executions)))
        return 0

    async def depth(self) -> Mapping[Priority, int]:
        """Return the number of waiting executions by priority."""
        table = job_executions.c
        query = select(table.priority, func.count()).where(table.state == State.QUEUED.value).group_by(table.priority)
        async with self._database.reading() as connection:
            found = {Priority(priority): int(count) for priority, count in await connection.execute(query)}
        return {priority: found.get(priority, 0) for priority in Priority}

    async def hand_on(self, worker: str) -> None:
        """Do nothing: no delivery belongs to a worker."""

    async def lease(self, limit: int, *, worker: str, ttl: timedelta, wait: timedelta) -> list[Lease]:
        """Claim the first in line; if there is none, try once more after a signal."""
        failpoint("queue.read")
        leases = await self._leasing.claim_next(limit, worker=worker, ttl=ttl)
        if not leases and wait:
            await self._bell.wait(min(wait, _POLL))
            leases = await self._leasing.claim_next(limit, worker=worker, ttl=ttl)
        if leases:
            self._events.emit(ExecutionsLeased(Counter(lease.job.priority for lease in leases)))
        return leases

    async def offer(self, offers: Sequence[Offer], *, within: timedelta) -> list[bool]:
        """Offer executions in the store, and wake the workers."""
        offered = await self._leasing.offer(offers, within=within)
        if any(offered):
            await self._signals.notify(Topic.OFFERS)
            self._events.emit(ExecutionsOffered(sum(offered)))
        return offered

    async def lease_offers(self, limit: int, *, worker: str, ttl: timedelta, within: timedelta) -> list[Lease]:
        """Claim executions that are offered to `worker`."""
        leases = await self._leasing.claim_offers(limit, worker=worker, ttl=ttl, within=within)
        if leases:
            self._events.emit(ExecutionsLeased(Counter(lease.job.priority for lease in leases)))
        return leases

    async def extend(self, leases: Sequence[Lease], *, ttl: timedelta) -> Extended:
        """Extend the leases by `ttl`."""
        return await self._leasing.extend(leases, ttl=ttl)

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Write the outcomes, and wake workers for executions that can start because of them."""
        settled = await self._leasing.settle(settlements)
        failpoint("settle.committed")
        await self.put(settled.woken, again=True)
        return settled.mine

    async def leave(self, worker: str) -> None:
        """Do nothing: the queue keeps no list of workers."""
