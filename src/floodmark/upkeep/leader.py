"""Which of the schedulers does the work. Losing leadership is harmless; having none is what hurts."""

import time
from datetime import timedelta

from floodmark.failpoints import failpoint
from floodmark.leases.port import Leases
from floodmark.telemetry.events import Events, LeaderChanged, LeaderElectionAttempted


class Leader:
    """Holds the leader's lease and renews it. Takes over when another holder's lease ends."""

    def __init__(self, leases: Leases, events: Events, *, name: str, holder: str, ttl: timedelta) -> None:
        self._leases, self._events = leases, events
        self._name, self.holder, self._ttl = name, holder, ttl
        self._acts_until = 0.0
        self._was_leader = False

    @property
    def is_leader(self) -> bool:
        """Only for two thirds of the lease: a leader that could not renew falls silent before another begins."""
        return time.monotonic() < self._acts_until

    async def step(self) -> timedelta:
        """Take or renew the lease."""
        began = time.monotonic()
        won = await self._leases.acquire(self._name, holder=self.holder, ttl=self._ttl)
        if won:
            failpoint("leader.acquired")
        self._acts_until = began + self._ttl.total_seconds() * 2 / 3 if won else 0.0
        if not self._was_leader or not won:
            self._events.emit(LeaderElectionAttempted(won=won))
        if won != self._was_leader:
            self._was_leader = won
            holder = self.holder if won else await self._leases.holder(self._name)
            self._events.emit(LeaderChanged(is_leader=won, holder=holder))
        return self._ttl / 3

    async def resign(self) -> None:
        """Let another take over at once."""
        if self._was_leader:
            self._acts_until, self._was_leader = 0.0, False
            await self._leases.release(self._name, holder=self.holder)
            self._events.emit(LeaderChanged(is_leader=False, holder=None))
