"""What an answer means for the page that was asked for. Pure: the same for a crawl and for `floodmark try`."""

import re
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from floodmark.model.batch import SitePage
from floodmark.outbound.client import HttpAnswer

from .charsets import decoded
from .extract import HOLLOW, MOST_LINKS, MOST_LISTED, MOST_TEXT, Document, document_of
from .feeds import Feed, parse_feed
from .nesting import TooNested
from .sitemaps import is_packed, parse_sitemap
from .trees import NotXml
from .urls import Scope, is_same_page

SITEMAP, FEED = "sitemap", "feed"
"""The notes of pages that list others."""
LED_TO, _LEADS_ON = "led to by a redirect", "redirects on to "
"""The notes of a page that was found by a redirect: before it is visited, and when it does nothing but redirect too."""

_NOTE = 300
_HTML = ("text/html", "application/xhtml+xml")
_HTML_BODY = re.compile(rb"[\s\xef\xbb\xbf]*<(?:!doctype\s+html|html)\b", re.IGNORECASE)
_REDIRECTED, _FOR_GOOD, _MISSING = (301, 302, 303, 307, 308), (301, 308), (404, 410)
# What is linked to and is never a page: not worth a request.
_FILES = re.compile(
    r"\.(?:jpe?g|png|gif|webp|svg|ico|bmp|tiff?|avif|mp[34]|m4[av]|ogg|og[av]|wav|flac|webm|avi|mov|wmv|mkv|pdf|docx?|"
    r"xlsx?|pptx?|od[tsp]|epub|zip|gz|tgz|bz2|xz|7z|rar|tar|exe|msi|dmg|iso|apk|deb|rpm|css|js|mjs|map|woff2?|ttf|otf|"
    r"eot|json|xml|rss|atom|csv|ics)$",
    re.IGNORECASE,
)


class Kind(StrEnum):
    """What came of a visit."""

    READ = "read"
    UNCHANGED = "unchanged"
    MISSING = "missing"
    SKIPPED = "skipped"
    FAILED = "failed"
    INDEX = "index"


class VisitedPage(Struct, kw_only=True):
    """One page after a visit. `before` is what was known of it, `page` what is known now."""

    kind: Kind
    before: SitePage
    page: SitePage
    follow: list[str] = field(default_factory=list)
    """Pages of the crawl that it leads to, in the order they stand there."""
    indexes: list[tuple[str, str]] = field(default_factory=list)
    """Sitemaps and feeds it names, each with its note."""
    near: str | None = None
    """A page that is this one under another address: it is as far from the start."""
    data: dict[str, Any] | None = None
    is_redirect: bool = False
    """Whether `follow` is where it redirects to."""
    reason: str | None = None
    """Why it could not be had. The note of a list of pages says that it is one."""
    notable: list[str] = field(default_factory=list)
    """What the outcome of the crawl should say about this page."""
    is_absent: bool = False
    """Whether it is a list of pages that just is not there: a status 404, or an HTML page in its place."""
    is_asked: bool = True
    """Whether it was asked for at all: what robots.txt forbids was not."""

    @property
    def is_new(self) -> bool:
        """Whether there is no item of it yet."""
        return self.before.content_hash is None


def is_index(page: SitePage) -> bool:
    """Whether it is a list of pages rather than a page."""
    return page.note in {SITEMAP, FEED}


def is_between(page: SitePage) -> bool:
    """Whether it is known only as a step from one redirect to the next."""
    return page.note is not None and page.note.startswith(_LEADS_ON)


def is_file(url: str) -> bool:
    """Whether an address is that of a picture, an archive or the like."""
    return _FILES.search(url.partition("?")[0]) is not None


def read(page: SitePage, answer: HttpAnswer, *, crawl: int, scope: Scope, now: datetime) -> VisitedPage:
    """What we have seen when `answer` is what came for `page`."""
    status = answer.status
    after = replace(page, crawl=crawl, status=status)
    if status == 304:
        # What kept it from being collected then still does; what went wrong since is over.
        note = page.note if page.content_hash is None else None
        kind = Kind.INDEX if is_index(page) else Kind.UNCHANGED
        notable = [note] if note in HOLLOW else []
        return VisitedPage(kind=kind, before=page, page=replace(after, misses=0, note=note), notable=notable)
    if status == 200:
        return _answered(page, after, answer, scope, now)
    if status in _REDIRECTED:
        return _redirected(page, after, answer, scope)
    if status in _MISSING:
        return _missing(page, after, f"not there (status {status})")
    return _noted(page, after, f"answers with status {status}")


def failed(page: SitePage, crawl: int, reason: str, *, is_asked: bool = True) -> VisitedPage:
    """The page could not be had; what is known of it stays."""
    after = replace(page, crawl=crawl, note=_kept_note(page, reason))
    return VisitedPage(kind=Kind.FAILED, before=page, page=after, reason=reason[:_NOTE], is_asked=is_asked)


def skipped(page: SitePage, crawl: int, reason: str) -> VisitedPage:
    """The page is not to be asked for."""
    after = replace(page, crawl=crawl, note=_kept_note(page, reason))
    return VisitedPage(kind=Kind.SKIPPED, before=page, page=after, is_asked=False)


def _answered(page: SitePage, after: SitePage, answer: HttpAnswer, scope: Scope, now: datetime) -> VisitedPage:
    after = replace(
        after,
        misses=0,
        etag=_bounded(answer.headers.get("ETag")),
        last_modified=_bounded(answer.headers.get("Last-Modified")),
    )
    if is_index(page) or _is_xml(answer):
        return _index(page, after, answer, scope)
    if answer.media_type in _HTML or (not answer.media_type and answer.body.lstrip()[:1] == b"<"):
        return _page(page, after, answer, scope, now)
    return _noted(page, after, f"not HTML: {answer.media_type or 'of no type'}")


def _redirected(page: SitePage, after: SitePage, answer: HttpAnswer, scope: Scope) -> VisitedPage:
    said = answer.headers.get("Location", "")
    to = scope.link(said, page.url)
    where = to or said[:200] or "nowhere"
    if to == page.url:
        return _noted(page, after, "redirects to itself")
    if answer.status in _FOR_GOOD and page.content_hash is not None:
        seen = _missing(page, after, f"moved to {where}")
    else:
        is_led_to = page.note == LED_TO or is_between(page)
        seen = _noted(page, after, f"{_LEADS_ON if is_led_to else 'redirects to '}{where}")
    if to is not None and is_index(page):
        seen.indexes = [(to, page.note or FEED)]
    elif to is not None and scope.holds(to):
        seen.follow, seen.is_redirect = [to], True
        seen.near = to if is_same_page(to, page.url) else None
    return seen


def _missing(page: SitePage, after: SitePage, reason: str) -> VisitedPage:
    if is_index(page):
        seen = _noted(page, after, reason)
        seen.is_absent = True
        return seen
    missed = replace(after, misses=page.misses + 1, etag=None, last_modified=None, note=reason[:_NOTE])
    return VisitedPage(kind=Kind.MISSING, before=page, page=missed)


def _noted(page: SitePage, after: SitePage, reason: str) -> VisitedPage:
    kind = Kind.INDEX if is_index(page) else Kind.SKIPPED
    return VisitedPage(
        kind=kind, before=page, page=replace(after, note=_kept_note(page, reason)), reason=reason[:_NOTE]
    )


def _kept_note(page: SitePage, reason: str) -> str | None:
    # A list of pages is known by its note, whatever became of it this time.
    return page.note if is_index(page) else reason[:_NOTE]


def _is_xml(answer: HttpAnswer) -> bool:
    return "xml" in answer.media_type and answer.media_type not in _HTML


def _index(page: SitePage, after: SitePage, answer: HttpAnswer, scope: Scope) -> VisitedPage:
    """A sitemap or a feed: the pages it lists are found."""
    body = answer.body
    notable: list[str] = []
    try:
        if page.note == SITEMAP or is_packed(body) or b"<urlset" in body[:2000] or b"<sitemapindex" in body[:2000]:
            listed = parse_sitemap(body, answer.charset)
            pages, indexes, note = listed.pages, listed.sitemaps, SITEMAP
            notable += listed.faults
        else:
            feed = parse_feed(body, answer.charset, page.url)
            pages, indexes, note = tuple(entry.link for entry in feed.entries if entry.link), (), FEED
            notable += _faults(feed)
    except NotXml as error:
        if not is_index(page):
            return _noted(page, after, f"not HTML: {answer.media_type}")
        seen = _noted(page, after, f"cannot be read: {error}")
        seen.is_absent = _HTML_BODY.match(body) is not None
        return seen
    links = scope.links(pages, page.url)
    return VisitedPage(
        kind=Kind.INDEX,
        before=page,
        page=replace(after, note=note),
        follow=_wanted(links),
        indexes=[(address, SITEMAP) for address in scope.links(indexes, page.url)],
        notable=notable,
    )


def _faults(feed: Feed) -> list[str]:
    found = [] if feed.fault is None else [f"this feed is not well-formed ({feed.fault}): it is read as far as it goes"]
    read = len(feed.entries) + feed.empty
    return [*found, f"this feed has {feed.total:,} entries: only {read:,} are followed"] if feed.total > read else found


def _page(page: SitePage, after: SitePage, answer: HttpAnswer, scope: Scope, now: datetime) -> VisitedPage:
    rules = "\n".join(answer.headers.getall("X-Robots-Tag", ()))
    try:
        document = document_of(decoded(answer.body, answer.charset), rules=rules)
    except TooNested as error:
        return _noted(page, after, str(error))
    base = _base(page.url, document, scope)
    links = scope.links(document.hrefs, base)
    notable = _crop(links) + ([document.lacking] if document.lacking else [])
    if len(document.text) >= MOST_TEXT:
        notable.append(f"its text is cut at {MOST_TEXT:,} characters")
    follow = _wanted(links) if document.is_followed else []
    feeds = [(address, FEED) for address in scope.links(document.feeds, base)]
    seen = VisitedPage(kind=Kind.SKIPPED, before=page, page=after, follow=follow, indexes=feeds, notable=notable)
    canonical = scope.link(document.canonical, base) if document.canonical else None
    reason = _why_not(page.url, document, canonical, scope)
    if document.is_soft_miss:
        # Its links are those of the error page.
        return _missing(page, after, "says that it is not there, though with status 200")
    if reason is not None:
        seen.page = replace(after, note=reason[:_NOTE])
        if canonical is not None and canonical != page.url and scope.holds(canonical):
            seen.follow = [canonical, *follow]
            seen.near = canonical if is_same_page(canonical, page.url) else None
        return seen
    fingerprint = document.fingerprint
    if fingerprint == page.content_hash:
        seen.kind, seen.page = Kind.UNCHANGED, replace(after, note=None)
        return seen
    seen.kind, seen.page = Kind.READ, replace(after, content_hash=fingerprint, note=None)
    all_links = list(links | scope.links(document.others, base))
    seen.data = _data(page.url, document, fingerprint, all_links, now)
    return seen


def _why_not(url: str, document: Document, canonical: str | None, scope: Scope) -> str | None:
    if canonical is not None and canonical != url and scope.holds(canonical):
        return f"its canonical address is {canonical}"
    if not document.is_indexed:
        return "asks not to be indexed (noindex)"
    if not scope.is_wanted(url):
        return "no pattern wants it; read for its links"
    if document.lacking is not None and not document.text:
        return document.lacking
    return "holds no text" if not document.text and not document.title else None


def _data(url: str, document: Document, fingerprint: str, links: list[str], now: datetime) -> dict[str, Any]:
    return {
        "url": url,
        "title": document.title,
        "text": document.text,
        **document.facts,
        "links": links[:MOST_LISTED],
        **({"more_links": len(links) - MOST_LISTED} if len(links) > MOST_LISTED else {}),
        "hash": fingerprint,
        "fetched_at": now.isoformat(),
    }


def _base(url: str, document: Document, scope: Scope) -> str:
    found = scope.link(document.base, url) if document.base else None
    return found or url


def _crop(links: dict[str, bool]) -> list[str]:
    """Leave out the links beyond what one page may lead to, and say so."""
    more = list(links)[MOST_LINKS:]
    for address in more:
        del links[address]
    return [f"has more than {MOST_LINKS:,} links: the others are not followed"] if more else []


def _wanted(links: dict[str, bool]) -> list[str]:
    return [address for address, is_wanted in links.items() if is_wanted]


def _bounded(text: str | None) -> str | None:
    return text if text and len(text) <= 500 else None
