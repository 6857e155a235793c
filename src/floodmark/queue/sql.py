"""The database as the queue: `queued` rows of `executions` in order of `queue_rank`.

Nothing of its own is stored. A signal makes a put felt at once; looking again every `_LOOK_AGAIN` makes it sure.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta

from sqlalchemy import func, select

from floodmark.coordination.signals.port import Signals, Topic
from floodmark.model.execution import Lease, Queued, State
from floodmark.model.job import Priority
from floodmark.observability.events import Events, ExecutionsEnqueued, ExecutionsLeased
from floodmark.process.failpoints import failpoint
from floodmark.store.database import Database
from floodmark.store.port import Extended, Leasing, Settlement
from floodmark.store.tables import job_executions

_LOOK_AGAIN = timedelta(seconds=1)


class SqlQueue:
    """A queue for SQLite, for PostgreSQL alone, and for while Redis is away."""

    def __init__(self, database: Database, leasing: Leasing, signals: Signals, events: Events) -> None:
        self._database, self._leasing, self._signals, self._events = database, leasing, signals, events
        self._bell = signals.bell(Topic.QUEUE)

    async def put(self, executions: Sequence[Queued], *, again: bool = False) -> int:
        """Their rows are there already: only wake the workers."""
        if executions:
            await self._signals.notify(Topic.QUEUE)
            self._events.emit(ExecutionsEnqueued(Counter(e.priority for e in executions)))
        return 0

    async def depth(self) -> Mapping[Priority, int]:
        """How many wait, by priority."""
        table = job_executions.c
        statement = (
            select(table.priority, func.count()).where(table.state == State.QUEUED.value).group_by(table.priority)
        )
        async with self._database.reading() as connection:
            found = {Priority(priority): int(count) for priority, count in await connection.execute(statement)}
        return {priority: found.get(priority, 0) for priority in Priority}

    async def hand_on(self, worker: str) -> None:
        """Nothing is kept per worker."""

    async def lease(self, limit: int, *, worker: str, ttl: timedelta, wait: timedelta) -> list[Lease]:
        """Claim what is first in line, once more after a signal."""
        failpoint("queue.read")
        leases = await self._leasing.claim_next(limit, worker=worker, ttl=ttl)
        if not leases and wait:
            await self._bell.wait(min(wait, _LOOK_AGAIN))
            leases = await self._leasing.claim_next(limit, worker=worker, ttl=ttl)
        if leases:
            self._events.emit(ExecutionsLeased(Counter(lease.job.priority for lease in leases)))
        return leases

    async def extend(self, leases: Sequence[Lease], *, ttl: timedelta) -> Extended:
        """Keep them for another `ttl`."""
        return await self._leasing.extend(leases, ttl=ttl)

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Write the outcomes, and let the workers know of what can start because of them."""
        settled = await self._leasing.settle(settlements)
        failpoint("settle.committed")
        await self.put(settled.woken, again=True)
        return settled.mine

    async def leave(self, worker: str) -> None:
        """Nothing is kept per worker."""
