"""The robots.txt rules of each origin of a site: with and without `www.`, over http and https."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from floodmark.errors import SlowDown, SourceError

from .robots import Robots


class RobotsRules:
    """Rules by origin: that of the start URL is given, the others are fetched before their first page."""

    def __init__(self, read: Callable[[str], Awaitable[Robots]], origin: str, robots: Robots) -> None:
        self._read, self._known, self._lock = read, {origin: robots}, asyncio.Lock()
        self._failed: dict[str, SourceError] = {}
        self.delay: timedelta = robots.delay
        """The longest delay between two pages that any origin asks for."""

    def of(self, origin: str) -> Robots | None:
        """Return the rules of an origin; None if they have not been fetched."""
        return self._known.get(origin)

    async def fetch(self, origin: str) -> Robots:
        """Fetch the rules of an origin once; a failure is remembered and raised again."""
        async with self._lock:
            if origin in self._failed:
                raise self._failed[origin]
            if origin not in self._known:
                try:
                    self._known[origin] = await self._read(origin)
                except SlowDown:
                    raise
                except SourceError as error:
                    self._failed[origin] = error
                    raise
                self.delay = max(self.delay, self._known[origin].delay)
            return self._known[origin]
