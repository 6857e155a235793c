"""Named leases: at most one holder at a time, for as long as it renews the lease."""

from datetime import timedelta
from typing import Protocol


class Leases(Protocol):
    """Locks that expire. They save work; correctness depends on fences and unique rows, never on a lease."""

    async def acquire(self, name: str, *, holder: str, ttl: timedelta) -> bool:
        """Take or renew the lease. Returns False while another process holds it."""
        ...

    async def release(self, name: str, *, holder: str) -> None:
        """End the lease if `holder` still holds it."""
        ...

    async def holder(self, name: str) -> str | None:
        """Return the current holder, if any."""
        ...


class YieldingLeases(Leases, Protocol):
    """Leases that a holder can mark as free for a better suited process."""

    async def acquire(self, name: str, *, holder: str, ttl: timedelta, yields: bool = False) -> bool:
        """Take or renew the lease. A process that asks without `yields` takes it from a holder that `yields`."""
        ...
