"""The role of a process that does nothing but serve the API."""

import asyncio
import os
from datetime import timedelta

from floodmark.coordination.loop import Loop
from floodmark.store.fleet import Fleet
from floodmark.wiring.resources import Resources

_PRESENCE = timedelta(seconds=5)
_LAST_WORDS_SECONDS = 1.0


class ApiRole:
    """Says that it is there, so that it stands in the list of the fleet."""

    def __init__(self, parts: Resources) -> None:
        self._parts, self._fleet = parts, Fleet(parts.database, parts.clock)

    async def announce(self) -> None:
        """It holds nothing that others would have to wait for."""

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`."""
        presence = Loop("presence", self._present, interval=_PRESENCE, events=self._parts.events)
        present = asyncio.create_task(presence.run(), name=presence.name)
        await stop.wait()
        presence.stop()
        # Nothing depends on it: not worth waiting for a database that is away.
        _, late = await asyncio.wait([present], timeout=_LAST_WORDS_SECONDS)
        if late:
            present.cancel()
            await asyncio.wait([present], timeout=_LAST_WORDS_SECONDS)

    async def _present(self) -> None:
        await self._fleet.seen(
            worker=self._parts.name,
            role="api",
            hostname=self._parts.settings.hostname,
            pid=os.getpid(),
            slots=0,
            busy=0,
            draining=False,
            ttl=max(self._parts.settings.execution_lease, 3 * _PRESENCE),
        )
