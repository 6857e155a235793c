"""Leader election among schedulers. Two leaders at once do no harm; without one nothing is fired."""

import time
from datetime import timedelta

from floodmark.observability.events import Events, LeaderChanged, LeaderElectionAttempted
from floodmark.process.failpoints import failpoint

from .leases.port import Leases


class Leader:
    """Holds the leader's lease and renews it. Takes over when another holder's lease ends."""

    def __init__(self, leases: Leases, events: Events, *, name: str, holder: str, ttl: timedelta) -> None:
        self._leases, self._events = leases, events
        self._name, self.holder, self._ttl = name, holder, ttl
        self._acts_until = 0.0
        self._was_leader = False

    @property
    def is_leader(self) -> bool:
        """Whether this process leads. Ends after two thirds of the lease, so that a new leader never overlaps."""
        return time.monotonic() < self._acts_until

    async def step(self) -> timedelta:
        """Take or renew the lease."""
        began = time.monotonic()
        try:
            won = await self._leases.acquire(self._name, holder=self.holder, ttl=self._ttl)
        except Exception:
            if self._was_leader and not self.is_leader:
                # The lease could not be renewed in time: another process may lead by now.
                self._lose(None)
            raise
        if won:
            failpoint("leader.acquired")
        self._acts_until = began + self._ttl.total_seconds() * 2 / 3 if won else 0.0
        if not self._was_leader or not won:
            self._events.emit(LeaderElectionAttempted(won=won))
        if won != self._was_leader:
            if won:
                self._was_leader = True
                self._events.emit(LeaderChanged(is_leader=True, holder=self.holder))
            else:
                self._lose(await self._leases.holder(self._name))
        return self._ttl / 3

    async def resign(self) -> None:
        """Let another take over at once."""
        if self._was_leader:
            self._acts_until = 0.0
            try:
                await self._leases.release(self._name, holder=self.holder)
            finally:
                self._lose(None)

    def _lose(self, holder: str | None) -> None:
        self._acts_until, self._was_leader = 0.0, False
        self._events.emit(LeaderChanged(is_leader=False, holder=holder))
