"""Detects dead processes long before their leases end."""

import time
from datetime import timedelta

from msgspec import Struct

from floodmark.coordination.leases.port import Leases
from floodmark.observability.events import Events, ProcessDied
from floodmark.process import lock_files as files
from floodmark.queue.port import Publisher

from .dead_processes import DeadProcesses

# A living process that lost its connection takes its lock again sooner. If it does not, a batch is fetched twice.
_MISSING = timedelta(seconds=1.2)


class Death(Struct, frozen=True):
    """A dead process. `lock_file`: freed by the kernel, so the death is certain; None for a missing session lock."""

    worker: str
    lock_file: str | None


class DeathWatch:
    """Checks the locks of all processes, and gives the work of dead ones to others.

    Every scheduler does this, not only the leader, because the leader's own lease is released here too.
    """

    def __init__(
        self, dead: DeadProcesses, leases: Leases, queue: Publisher, events: Events, *, me: str, leader_key: str
    ) -> None:
        self._dead, self._leases, self._queue, self._events = dead, leases, queue, events
        self._me, self._leader_key = me, leader_key
        self._missing_since: dict[str, float] = {}

    async def step(self) -> int:
        """Check all processes once; returns how many are dead."""
        found = await self._find_dead()
        for death in found:
            await self.hand_on(death.worker, is_certain=death.lock_file is not None)
            if death.lock_file is not None:
                files.remove(death.lock_file)
        return len(found)

    async def hand_on(self, worker: str, *, is_certain: bool) -> None:
        """Give the work of a dead process to others. The store comes last: until then the next step repeats all."""
        await self._leases.release(self._leader_key, holder=worker)
        await self._queue.hand_on(worker)
        if await self._dead.record_death(worker, is_certain=is_certain):
            self._events.emit(ProcessDied(worker, is_certain=is_certain))

    async def _find_dead(self) -> list[Death]:
        # Reset first: if the query fails, we do not know whether the locks were missing all the time.
        before, self._missing_since = self._missing_since, {}
        holders, now = await self._dead.holders(self._me), time.monotonic()
        dead = list[Death]()
        for holder in holders:
            is_free = None if holder.lock_file is None else files.is_free(holder.lock_file)
            if is_free:
                dead.append(Death(holder.worker, holder.lock_file))
            elif is_free is None and holder.is_missing:
                since = self._missing_since[holder.worker] = before.get(holder.worker, now)
                if now - since >= _MISSING.total_seconds():
                    dead.append(Death(holder.worker, None))
        return dead
