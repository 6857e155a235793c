"""Jobs whose targets are URLs: sites and feeds."""

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from floodmark.errors import InvalidInput
from floodmark.model.hosts import allowed_hosts
from floodmark.model.spec import JobSpec
from floodmark.outbound.guard import AddressRefused, Guard

from .urls import parse_start_url

if TYPE_CHECKING:
    from floodmark.extensions.services import Services
    from floodmark.settings import Settings


# What people type for a site: with a scheme, or a name with a dot; with a port and a path, if they want.
_TYPED = re.compile(r"https?://\S+|[\w-]+(?:\.[\w-]+)*\.[a-z][\w-]*(?::\d+)?(?:[/?]\S*)?", re.IGNORECASE)
# The end of a path that is nearly always a feed: /feed, /rss.xml, /atom/news, /feeds/all.atom.xml, /index.xml.
_FEED = re.compile(
    r"(?:/\S*)?(?:[/.](?:rss|atom|feeds?)(?:[/.]\w+)*|\.(?:xml|rdf)|feed\.json)/?(?:\?\S*)?", re.IGNORECASE
)


def is_url(text: str) -> bool:
    """Return whether a text looks like the address of a site or a page."""
    return _TYPED.fullmatch(text.strip()) is not None


def is_feed_url(text: str) -> bool:
    """Return whether a text looks like the address of a feed."""
    _, slash, path = text.strip().rpartition("://")[2].partition("/")
    return is_url(text) and _FEED.fullmatch(f"{slash}{path}") is not None


class UrlSource:
    """Base of the sources `web` and `feed`. Without services it can only check jobs."""

    def __init__(self, settings: "Settings") -> None:
        self._guard = Guard(allowed_hosts(settings.http_allow_hosts))
        self._services: Services | None = None

    def use_services(self, services: "Services") -> None:
        """Use the process's services, such as its polite HTTP client."""
        self._services = services

    def complete(self, spec: JobSpec) -> JobSpec:
        """Return the job with its normalized URL; `InvalidInput` if the guard refuses it."""
        return complete_spec(spec, self._guard)

    def _require_services(self) -> "Services":
        if self._services is None:
            raise InvalidInput("this process can only check jobs", hint="Start floodmark up, or a worker")
        return self._services


def complete_spec(spec: JobSpec, guard: Guard | None = None) -> JobSpec:
    """Return the job with its normalized URL, so that all spellings of a URL make the same job.

    A URL that `guard` refuses is refused now, since every run would be refused.
    """
    target = parse_start_url(spec.target)
    try:
        if guard is not None:
            guard.check_url(target)
    except AddressRefused as refused:
        raise InvalidInput(str(refused), hint=refused.hint) from None
    return replace(spec, target=target)
