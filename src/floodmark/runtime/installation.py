"""Claims a Redis prefix for one installation, that is, for one database.

`facts`, name `installation`   a random id, created at the first start; a backup keeps it
`<prefix>:installation`        the same id in Redis; written by the first process, and again after Redis was emptied

Two installations with one prefix would take each other's executions from the queue and drop them. A Redis that may
delete any key when it is full is refused as well: it would delete the queue.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from floodmark.coordination.redis_errors import redis_errors
from floodmark.errors import Conflict
from floodmark.observability.events import Events, StepFailed
from floodmark.repositories.fleet import FleetRepository
from floodmark.security.masking import mask_text
from floodmark.settings import Settings

if TYPE_CHECKING:
    from redis.asyncio import Redis

_AGAIN = timedelta(seconds=5)
_SHOWN = 8


class Installation:
    """Stores in Redis which installation owns the prefix, and refuses to share it."""

    def __init__(self, redis: "Redis | None", fleet: FleetRepository, events: Events, settings: Settings) -> None:
        self._redis, self._fleet, self._events, self._settings = redis, fleet, events, settings
        self._key = f"{settings.scheduler_queue_prefix}:installation"
        self._id: str | None = None
        self._is_checked = False

    async def claim(self) -> None:
        """Store our id under the prefix if there is none. Redis may be away.

        `Conflict` if there is another id, or if this Redis may delete the queue.
        """
        redis = self._redis
        if redis is None:
            return
        if self._id is None:
            self._id = await self._fleet.installation(secrets.token_hex(8))
        try:
            await self._check_eviction(redis)
            await redis.set(self._key, self._id, nx=True)
            found = await redis.get(self._key)
        except redis_errors():
            # The queue reports it, and the next claim tries again.
            return
        owner = found.decode(errors="replace") if isinstance(found, bytes) else found
        if owner not in (None, self._id):
            raise self._shared(str(owner))

    @asynccontextmanager
    async def guard_prefix(self, stop: asyncio.Event) -> AsyncIterator[None]:
        """Claim the prefix every few seconds during the block. A conflict sets `stop` and is raised at the end."""
        guarding = asyncio.create_task(self._guard(stop), name="installation")
        try:
            yield
        finally:
            stop.set()
            await guarding

    async def _guard(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN.total_seconds()):
                    await stop.wait()
                return
            try:
                await self.claim()
            except Conflict:
                stop.set()
                raise
            except Exception as error:  # noqa: BLE001 - the database is away; the next claim tries again
                self._events.emit(StepFailed(step="installation", error=f"{type(error).__name__}: {error}"))

    async def _check_eviction(self, redis: "Redis") -> None:
        """Refuse a Redis that deletes any key when it is full. Once: `doctor` reports a policy that was changed."""
        if self._is_checked:
            return
        from redis.exceptions import ResponseError  # noqa: PLC0415 - see `redis_errors`

        policy = ""
        with suppress(ResponseError):
            # A user without the right to ask must not be kept from working.
            policy = str((await redis.info("memory")).get("maxmemory_policy", ""))
        self._is_checked = True
        if policy.startswith("allkeys-"):
            raise Conflict(
                f"the Redis {mask_text(self._settings.redis or '')} deletes any key when it is full, the queue too "
                f"(maxmemory-policy is {policy})",
                hint="set it with: redis-cli config set maxmemory-policy noeviction; or use another Redis; "
                "or leave out REDIS_URL: then the database is the queue",
            )

    def _shared(self, owner: str) -> Conflict:
        settings = self._settings
        prefix, ours = settings.scheduler_queue_prefix, str(self._id)
        return Conflict(
            f"the prefix {prefix!r} of the Redis {mask_text(settings.redis or '')} belongs to another installation "
            f"({owner[:_SHOWN]}), not to that of the database {mask_text(settings.database_url)} ({ours[:_SHOWN]})",
            hint="set another SCHEDULER_QUEUE_PREFIX or REDIS_URL here, or the DATABASE_URL of the other installation; "
            f"if this database replaces the other one: stop the processes of that one, then redis-cli DEL {self._key}",
        )
