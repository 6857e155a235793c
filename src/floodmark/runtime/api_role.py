"""The role of a process that only serves the API."""

import asyncio
from datetime import timedelta

from floodmark.coordination.service import Service, run_services
from floodmark.wiring.resources import Resources

from .presence import Presence

_PRESENCE = timedelta(seconds=5)
# Short: nothing depends on the last presence, so it need not wait for a database that is away.
_LAST_STEP = timedelta(seconds=1)


class ApiRole:
    """Keeps the process in the list of workers. The HTTP server runs beside it."""

    def __init__(self, resources: Resources) -> None:
        self._events = resources.events
        fleet, settings = resources.repositories.fleet, resources.settings
        presence = Presence(fleet, settings, name=resources.name, role="api", interval=_PRESENCE)
        self.services = [Service("presence", presence.renew, _PRESENCE)]

    async def announce(self) -> None:
        """Do nothing: the process holds nothing that others would wait for."""

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop`."""
        async with run_services(self.services, self._events, patience=_LAST_STEP):
            await stop.wait()
