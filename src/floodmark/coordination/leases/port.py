"""Named leases: at most one holder at a time, for as long as it says it is alive."""

from datetime import timedelta
from typing import Protocol


class Leases(Protocol):
    """Locks with an end. They save work; safety comes from fences and unique rows, never from here."""

    async def acquire(self, name: str, *, holder: str, ttl: timedelta) -> bool:
        """Take or renew the lease. False while someone else holds it."""
        ...

    async def release(self, name: str, *, holder: str) -> None:
        """Give it back, if it is still ours; a stranger's lease is left alone."""
        ...

    async def holder(self, name: str) -> str | None:
        """Who holds it now, None if nobody does."""
        ...


class YieldingLeases(Leases, Protocol):
    """Leases that a holder may keep for want of a better one."""

    async def acquire(self, name: str, *, holder: str, ttl: timedelta, yields: bool = False) -> bool:
        """Take or renew the lease. With `yields` it is ours only until someone without `yields` asks for it."""
        ...
