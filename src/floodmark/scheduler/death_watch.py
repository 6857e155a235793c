"""Notices that a process has died, long before its leases end."""

import time
from datetime import timedelta

from msgspec import Struct

from floodmark.coordination.leases.port import Leases
from floodmark.observability.events import Events, ProcessDied
from floodmark.process import lock_files as files
from floodmark.queue.port import Publisher

from .dead_processes import Deaths

# A living process that lost its connection takes its lock again within moments. The other way round the worst is that
# something is fetched twice.
_MISSING = timedelta(seconds=1.2)


class Death(Struct, frozen=True):
    """A process that has died. `lock_file`: freed by the kernel, which leaves no doubt; None for a missing lock."""

    worker: str
    lock_file: str | None


class DeathWatch:
    """Looks at the locks of all processes, and hands on what the dead ones hold.

    Every scheduler looks, the leader and those that wait to take over: the leader's own lease is given up here too.
    """

    def __init__(
        self, deaths: Deaths, leases: Leases, queue: Publisher, events: Events, *, me: str, leader_key: str
    ) -> None:
        self._deaths, self._leases, self._queue, self._events = deaths, leases, queue, events
        self._me, self._leader_key = me, leader_key
        self._missing_since: dict[str, float] = {}

    async def step(self) -> int:
        """Look once; how many were found dead."""
        found = await self._look()
        for death in found:
            await self.hand_on(death.worker, is_certain=death.lock_file is not None)
            if death.lock_file is not None:
                files.remove(death.lock_file)
        return len(found)

    async def hand_on(self, worker: str, *, is_certain: bool) -> None:
        """Give the work of a dead process to others. The store comes last: until then the next look repeats it."""
        await self._leases.release(self._leader_key, holder=worker)
        await self._queue.hand_on(worker)
        if await self._deaths.bury(worker, is_certain=is_certain):
            self._events.emit(ProcessDied(worker, is_certain=is_certain))

    async def _look(self) -> list[Death]:
        # A look that fails says nothing about the time since the one before it.
        before, self._missing_since = self._missing_since, {}
        holders, now = await self._deaths.holders(self._me), time.monotonic()
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
