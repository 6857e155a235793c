"""What the sources of the web ask of the rest of Floodmark."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from msgspec import Struct

from floodmark.model.batch import Page
from floodmark.model.clock import Clock
from floodmark.observability.events import Events
from floodmark.outbound.client import Answer, Limits

from .pages import Extent


class Frontier(Protocol):
    """What is known of the pages of a site."""

    async def waiting(self, stream: str, crawl: int, *, limit: int, visited: bool = False) -> Sequence[Page]:
        """Pages that this crawl has not visited, in the order to be visited."""
        ...

    async def known(self, stream: str, urls: Sequence[str]) -> Mapping[str, Page]:
        """What is known of these addresses."""
        ...

    async def alike(self, stream: str, hashes: Sequence[str]) -> Mapping[str, str]:
        """For each of these contents, the address that was found first with it."""
        ...

    async def extent(self, stream: str) -> Extent:
        """How many addresses are known, and the newest crawl."""
        ...


class Memory(Protocol):
    """What was collected before."""

    async def data(self, stream: str, keys: Sequence[str]) -> Mapping[str, Any]:
        """What was kept of these items."""
        ...


class Getting(Protocol):
    """How a page is asked for when there are many: `floodmark.outbound.polite`."""

    async def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        follow: bool = True,
        concurrency: int | None = None,
        delay: timedelta | None = None,
    ) -> Answer:
        """The answer, when it is this domain's turn."""
        ...


class Ports(Struct, frozen=True, kw_only=True):
    """All of it."""

    frontier: Frontier
    memory: Memory
    http: Getting
    clock: Clock
    events: Events
    agent: str
    """What we call ourselves: robots.txt speaks to this name."""
    concurrency: int
    delay: timedelta
    robots_ttl: timedelta
    """How long the robots.txt of a host is used at least."""
