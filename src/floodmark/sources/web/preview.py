"""Fetches a URL once and shows what would be collected, without storing it."""

from datetime import datetime
from functools import partial
from typing import Any

from msgspec import Struct, field

from floodmark.model.batch import SitePage
from floodmark.outbound.client import Http, HttpAnswer
from floodmark.sources.feed.source import make_items

from . import matches
from .extraction.documents import ExtractedDocument
from .extraction.plan import ExtractionPlan, require_packages
from .extraction.pool import ExtractionPool
from .feeds import parse_feed
from .responses import Kind, make_request, read_response
from .robots import FORBIDDEN
from .robots_cache import fetch_robots
from .source import ROBOTS_LIMITS
from .urls import Scope, normalize_url, origin_of
from .xml_trees import NotXml


class UrlPreview(Struct, kw_only=True):
    """The response of a URL and what would be collected. `kind`: page, feed, sitemap or nothing."""

    url: str
    kind: str = "nothing"
    is_allowed: bool = True
    """Whether robots.txt allows it; if not, it was not fetched."""
    delay_seconds: float = 0.0
    """The delay between two pages in robots.txt."""
    status: int | None = None
    media_type: str = ""
    redirects: tuple[str, ...] = ()
    wire_bytes: int = 0
    seconds: float = 0.0
    note: str | None = None
    """Why nothing would be collected."""
    items: list[dict[str, Any]] = field(default_factory=list)
    follow: list[str] = field(default_factory=list)
    """Pages of the same site that a crawl would visit next."""
    lists: list[str] = field(default_factory=list)
    """Feeds and sitemaps that it links to."""
    title: str = ""
    remarks: list[str] = field(default_factory=list)
    """Values that could not be read, and limits that were reached."""
    is_selected: bool = False
    """Whether the items are matches of a selector."""


async def preview_url(
    http: Http,
    url: str,
    *,
    agent: str,
    now: datetime,
    obeys_robots: bool = True,
    plan: ExtractionPlan | None = None,
) -> UrlPreview:
    """Fetch a URL once and return what would be collected by the plan."""
    plan = plan or ExtractionPlan()
    require_packages(plan.packages)
    found = UrlPreview(url=url)
    if obeys_robots:
        robots = await fetch_robots(partial(http.get, limits=ROBOTS_LIMITS), origin_of(url), agent)
        found.is_allowed, found.delay_seconds = robots.allows(url), robots.delay.total_seconds()
        if not found.is_allowed:
            found.note = FORBIDDEN
            return found
    answer = await http.get(url)
    found.url = normalize_url(answer.url) or answer.url
    found.status, found.media_type, found.redirects = answer.status, answer.media_type, answer.redirects
    found.wire_bytes, found.seconds = answer.wire_bytes, answer.seconds
    extracted = None
    if (request := make_request(SitePage(url=found.url), answer, plan)) is not None:
        extracted = await ExtractionPool(1).read(request)
    _read_answer(found, answer, extracted, now)
    return found


def _read_answer(found: UrlPreview, answer: HttpAnswer, extracted: ExtractedDocument | None, now: datetime) -> None:
    page, scope = SitePage(url=found.url), Scope(found.url)
    seen = read_response(page, answer, crawl=1, scope=scope, now=now, extracted=extracted)
    found.remarks = seen.notable
    found.follow, found.lists = seen.follow, [address for address, _ in seen.indexes]
    if seen.kind is Kind.INDEX:
        found.kind = seen.page.note or "list"
        _read_feed(found, answer, now)
        return
    found.kind = "page" if answer.media_type.endswith("html") or seen.data is not None else "nothing"
    found.note = seen.page.note
    if seen.rows is not None:
        found.kind, found.is_selected = "page", True
        found.items = [item.data for item in matches.make_items(found.url, seen.rows, now)]
        found.title = extracted.document.title if extracted is not None and extracted.document is not None else ""
    if seen.data is not None:
        found.items, found.title = [seen.data], seen.data["title"]


def _read_feed(found: UrlPreview, answer: HttpAnswer, now: datetime) -> None:
    try:
        feed = parse_feed(answer.body, answer.charset, answer.url)
    except NotXml:
        found.note = "a list of pages; read only for its links"
        return
    found.title = feed.title
    found.items = [item.data for item in make_items(feed, answer.url, now)]
