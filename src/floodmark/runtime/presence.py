"""Shows other processes that this one is alive. Table: `workers`."""

import os
from datetime import timedelta

from floodmark.coordination.service import attempt
from floodmark.observability.events import Events
from floodmark.process.process_lock import ProcessLock
from floodmark.repositories.fleet import FleetRepository
from floodmark.settings import Settings
from floodmark.worker.worker import Worker


class Presence:
    """The row of this process in the list of workers. It has to be renewed every `interval`."""

    def __init__(
        self,
        fleet: FleetRepository,
        settings: Settings,
        *,
        name: str,
        role: str,
        interval: timedelta,
        lock: ProcessLock | None = None,
        worker: Worker | None = None,
    ) -> None:
        self._fleet, self._hostname, self._name, self._role = fleet, settings.hostname, name, role
        # At least three intervals: short leases must not make a process look dead.
        self._ttl = max(settings.execution_lease, 3 * interval)
        self._lock, self._worker = lock, worker

    async def announce(self, events: Events) -> None:
        """Take the lock of the process and write the row, before the process holds anything."""
        if self._lock is not None:
            self._lock.take()
        await attempt(self.renew(), events)

    async def renew(self) -> None:
        """Write the row."""
        lock, worker = self._lock, self._worker
        await self._fleet.record_presence(
            worker=self._name,
            role=self._role,
            hostname=self._hostname,
            pid=os.getpid(),
            slots=0 if worker is None else worker.slots,
            busy=0 if worker is None else worker.busy,
            draining=worker is not None and worker.is_leaving,
            ttl=self._ttl,
            lock_file=None if lock is None else lock.file,
            lock_key=None if lock is None else lock.key,
        )

    async def leave(self) -> None:
        """Remove the row."""
        await self._fleet.remove(self._name)
