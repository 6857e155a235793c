"""What the hosts of a site ask for: with and without `www.`, over http and https, each has a robots.txt of its own."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from floodmark.errors import SlowDown, SourceError

from .robots import Robots


class RobotsRules:
    """Those of the start are read beforehand; any other host is asked when its first page is come to."""

    def __init__(self, read: Callable[[str], Awaitable[Robots]], origin: str, robots: Robots) -> None:
        self._read, self._known, self._asking = read, {origin: robots}, asyncio.Lock()
        self._failed: dict[str, SourceError] = {}
        # Between two pages: the longest that any of them asks for.
        self.delay: timedelta = robots.delay

    def of(self, origin: str) -> Robots | None:
        """The rules of an origin; None if it was not asked yet."""
        return self._known.get(origin)

    async def ask(self, origin: str) -> Robots:
        """Read the rules of an origin, once. One that cannot say is not asked again."""
        async with self._asking:
            if origin in self._failed:
                raise self._failed[origin]
            if origin not in self._known:
                self._known[origin] = await self._asked(origin)
                self.delay = max(self.delay, self._known[origin].delay)
            return self._known[origin]

    async def _asked(self, origin: str) -> Robots:
        try:
            return await self._read(origin)
        except SlowDown:
            raise
        except SourceError as error:
            self._failed[origin] = error
            raise
