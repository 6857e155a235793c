"""The robots.txt rules of origins, as all runs of a process share them."""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from floodmark.errors import Permanent, Transient
from floodmark.extensions.services import Services
from floodmark.outbound.client import HttpAnswer, TooLarge

if TYPE_CHECKING:
    from .robots import Robots

# Origins whose rules are cached, and for how long at most (RFC 9309, section 2.4).
_MAX_CACHED, _LONGEST_TTL = 1000, timedelta(days=1)
_MAX_AGE = re.compile(r"\bmax-age\s*=\s*\"?(\d{1,9})", re.IGNORECASE | re.ASCII)


class RobotsCache:
    """Fetches the rules of each origin once, until they expire."""

    def __init__(self) -> None:
        self._cached: OrderedDict[str, tuple[datetime, Robots]] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def read(self, services: Services, get: Callable[[str], Awaitable[HttpAnswer]], origin: str) -> "Robots":
        """Return the rules of an origin; all runs share one request until they expire."""
        lock = self._locks.setdefault(origin, asyncio.Lock())
        async with lock:
            cached = self._cached.get(origin)
            if cached is not None and services.clock.now() < cached[0]:
                return cached[1]
            ttl = services.settings.web_robots_ttl

            async def get_with_ttl(url: str) -> HttpAnswer:
                nonlocal ttl
                answer = await get(url)
                ttl = max(ttl, _max_age(answer))
                return answer

            agent = services.settings.http_user_agent or "floodmark"
            found = await fetch_robots(get_with_ttl, origin, agent)
            self._cached[origin] = services.clock.now() + min(ttl, _LONGEST_TTL), found
            self._cached.move_to_end(origin)
            while len(self._cached) > _MAX_CACHED:
                self._cached.popitem(last=False)
            return found


def _max_age(answer: HttpAnswer) -> timedelta:
    found = _MAX_AGE.search(answer.headers.get("Cache-Control", ""))
    return timedelta(seconds=int(found[1])) if found else timedelta()


async def fetch_robots(get: Callable[[str], Awaitable[HttpAnswer]], origin: str, agent: str) -> "Robots":
    """Fetch the rules of an origin. A missing robots.txt allows everything; a server error raises `Transient`."""
    from .charsets import decode_text  # noqa: PLC0415 - slow to import
    from .robots import Robots  # noqa: PLC0415

    try:
        answer = await get(f"{origin}/robots.txt")
    except TooLarge as error:
        raise Permanent(
            f"{origin}/robots.txt cannot be read: {error}",
            hint="if the site is yours, add it with --robots ignore",
        ) from error
    if answer.status >= 500:
        raise Transient(f"{origin}/robots.txt answers with status {answer.status}")
    # In a thread: a long file takes seconds.
    return await asyncio.to_thread(Robots, decode_text(answer.body) if answer.status == 200 else "", agent)
