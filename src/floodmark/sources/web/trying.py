"""One look at an address: what would be collected. Nothing is stored."""

from datetime import datetime
from functools import partial
from typing import Any

from msgspec import Struct, field

from floodmark.model.batch import SitePage
from floodmark.outbound.client import Http, HttpAnswer
from floodmark.sources.feed.source import items_of

from .feeds import parse_feed
from .reading import Kind, read
from .robots import FORBIDDEN
from .source import ROBOTS_LIMITS, robots_of
from .trees import NotXml
from .urls import Scope, canonical, origin_of


class Tried(Struct, kw_only=True):
    """What came, and what would become of it. `kind`: page, feed, sitemap, or what else it is."""

    url: str
    kind: str = "nothing"
    is_allowed: bool = True
    """Whether robots.txt lets us read it; if not, nothing was asked for."""
    delay_seconds: float = 0.0
    """What robots.txt wants between two pages."""
    status: int | None = None
    media_type: str = ""
    redirects: tuple[str, ...] = ()
    wire_bytes: int = 0
    seconds: float = 0.0
    note: str | None = None
    """Why nothing would be collected."""
    items: list[dict[str, Any]] = field(default_factory=list)
    """What would be collected."""
    follow: list[str] = field(default_factory=list)
    """Pages of the same site that a crawl would go on with."""
    lists: list[str] = field(default_factory=list)
    """Feeds and sitemaps it names."""
    title: str = ""


async def tried(http: Http, url: str, *, agent: str, now: datetime, obeys_robots: bool = True) -> Tried:
    """Fetch an address once and say what is there."""
    found = Tried(url=url)
    if obeys_robots:
        robots = await robots_of(partial(http.get, limits=ROBOTS_LIMITS), origin_of(url), agent)
        found.is_allowed, found.delay_seconds = robots.allows(url), robots.delay.total_seconds()
        if not found.is_allowed:
            found.note = FORBIDDEN
            return found
    answer = await http.get(url)
    found.url = canonical(answer.url) or answer.url
    found.status, found.media_type, found.redirects = answer.status, answer.media_type, answer.redirects
    found.wire_bytes, found.seconds = answer.wire_bytes, answer.seconds
    _look(found, answer, now)
    return found


def _look(found: Tried, answer: HttpAnswer, now: datetime) -> None:
    seen = read(SitePage(url=found.url), answer, crawl=1, scope=Scope(found.url), now=now)
    found.follow, found.lists = seen.follow, [address for address, _ in seen.indexes]
    if seen.kind is Kind.INDEX:
        found.kind = seen.page.note or "list"
        _look_at_feed(found, answer, now)
        return
    found.kind = "page" if answer.media_type.endswith("html") or seen.data is not None else "nothing"
    found.note = seen.page.note
    if seen.data is not None:
        found.items, found.title = [seen.data], seen.data["title"]


def _look_at_feed(found: Tried, answer: HttpAnswer, now: datetime) -> None:
    try:
        feed = parse_feed(answer.body, answer.charset, answer.url)
    except NotXml:
        found.note = "a list of pages: it is read for its links"
        return
    found.title = feed.title
    found.items = [item.data for item in items_of(feed, answer.url, now)]
