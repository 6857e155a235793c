"""Interprets the response to the request of a page, for crawls and `floodmark try`. Pure."""

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from floodmark.model.batch import SitePage
from floodmark.outbound.client import REDIRECTED, HttpAnswer

from .charsets import decode_text
from .extract import EMPTY, HOLLOW, MOST_LINKS, MOST_LISTED, MOST_TEXT, SCRIPTED, Document, parse_document
from .extraction.documents import HTML, JSON, PDF, ExtractedDocument, ExtractionRequest
from .extraction.plan import ExtractionPlan
from .extraction.rows import Row
from .extraction.selectors import Language
from .feeds import Feed, parse_feed
from .nesting import TooNested
from .sitemaps import is_gzip, parse_sitemap
from .urls import Scope, is_same_page, normalize_url
from .xml_trees import NotXml

SITEMAP, FEED = "sitemap", "feed"
"""The notes of pages that list other pages."""
LED_TO, _LEADS_ON = "led to by a redirect", "redirects on to "
"""The notes of a page that was found by a redirect: before its visit, and if it redirects as well. Both are stored."""

NO_MATCH = "no part of it matches the selector"
_NOTE = 300
HTML_TYPES = ("text/html", "application/xhtml+xml")
_HTML_BODY = re.compile(rb"[\s\xef\xbb\xbf]*<(?:!doctype\s+html|html)\b", re.IGNORECASE)
_PERMANENT, _MISSING = (301, 308), (404, 410)
# A page counts as gone when it is missing for the second time: the first may be a temporary fault.
_GONE_AFTER = 2
# Links to these are not worth a request.
_FILES = re.compile(
    r"\.(?:jpe?g|png|gif|webp|svg|ico|bmp|tiff?|avif|mp[34]|m4[av]|ogg|og[av]|wav|flac|webm|avi|mov|wmv|mkv|pdf|docx?|"
    r"xlsx?|pptx?|od[tsp]|epub|zip|gz|tgz|bz2|xz|7z|rar|tar|exe|msi|dmg|iso|apk|deb|rpm|css|js|mjs|map|woff2?|ttf|otf|"
    r"eot|json|xml|rss|atom|csv|ics)$",
    re.IGNORECASE,
)


class Kind(StrEnum):
    """The result of a visit."""

    READ = "read"
    UNCHANGED = "unchanged"
    MISSING = "missing"
    SKIPPED = "skipped"
    FAILED = "failed"
    INDEX = "index"


class VisitedPage(Struct, kw_only=True):
    """A page after a visit: `before` and `page` are its stored rows before and after."""

    kind: Kind
    before: SitePage
    page: SitePage
    follow: list[str] = field(default_factory=list)
    """Pages of the crawl that it links to, in document order."""
    indexes: list[tuple[str, str]] = field(default_factory=list)
    """Sitemaps and feeds that it links to, each with its note."""
    near: str | None = None
    """Another URL of the same page, at the same depth."""
    data: dict[str, Any] | None = None
    rows: list[Row] | None = None
    """The matches of a selector, which are items instead of the page."""
    raw: str | None = None
    """The hash of its content, if that is stored."""
    is_redirect: bool = False
    """Whether `follow` is the target of its redirect."""
    reason: str | None = None
    """Why it was not read. (The note of a sitemap or feed only says what it is.)"""
    notable: list[str] = field(default_factory=list)
    """Remarks about this page for the result of the crawl."""
    is_absent: bool = False
    """Whether it is a sitemap or feed that does not exist: a status 404, or an HTML page instead."""
    is_asked: bool = True
    """Whether a request was sent."""
    lastmods: Mapping[str, str] = field(default_factory=dict)
    """When other pages were changed last, as this sitemap says."""
    skipped_links: int = 0
    """If not 0: it was visited again only for its links after this many."""
    rest: int = 0
    """How many of its links to skip to read the remaining ones; 0 if none remain."""

    @property
    def is_new(self) -> bool:
        """Whether the page has no item yet."""
        return self.before.content_hash is None

    @property
    def is_gone(self) -> bool:
        """Whether the page has an item and no longer exists."""
        return self.kind is Kind.MISSING and self.page.misses >= _GONE_AFTER and self.page.content_hash is not None


def is_index(page: SitePage) -> bool:
    """Return whether it is a sitemap or a feed."""
    return page.note in {SITEMAP, FEED}


def is_intermediate(page: SitePage) -> bool:
    """Return whether the page is known only as a step in a chain of redirects."""
    return page.note is not None and page.note.startswith(_LEADS_ON)


def is_file(url: str, plan: ExtractionPlan | None = None) -> bool:
    """Return whether a URL has the extension of a picture, an archive or another file that the plan does not take."""
    found = _FILES.search(url.partition("?")[0])
    if found is None or plan is None:
        return found is not None
    kind = found[0].lower()
    return not (kind == ".pdf" and plan.pdf) and not (kind == ".json" and _takes_json(plan))


def make_request(page: SitePage, answer: HttpAnswer, plan: ExtractionPlan) -> ExtractionRequest | None:
    """Return what a process has to read of a response; None if the crawl reads it by itself."""
    if answer.status != 200 or is_index(page) or plan.is_default:
        return None
    if answer.media_type in HTML_TYPES or (not answer.media_type and answer.body.lstrip()[:1] == b"<"):
        kind = HTML
    elif plan.pdf and (answer.media_type == "application/pdf" or answer.body.startswith(b"%PDF-")):
        kind = PDF
    elif _takes_json(plan) and (answer.media_type == "application/json" or answer.media_type.endswith("+json")):
        kind = JSON
    else:
        return None
    return ExtractionRequest(
        kind=kind, body=answer.body, url=page.url, plan=plan, charset=answer.charset, rules=_robots_rules(answer)
    )


def _takes_json(plan: ExtractionPlan) -> bool:
    return plan.select is not None and plan.select.language is Language.JSONPATH


def _robots_rules(answer: HttpAnswer) -> str:
    return "\n".join(answer.headers.getall("X-Robots-Tag", ()))


def read_response(
    page: SitePage,
    answer: HttpAnswer,
    *,
    crawl: int,
    scope: Scope,
    now: datetime,
    extracted: ExtractedDocument | None = None,
    skip: int = 0,
) -> VisitedPage:
    """Return the result of a visit from the response to it. `extracted`: its content, if a process has read it.

    `skip`: how many links of the page an earlier visit has followed.
    """
    status = answer.status
    after = replace(page, crawl=crawl, status=status)
    if status == 304:
        # The reason why it was not collected still applies; a later failure has ended.
        note = page.note if page.content_hash is None else None
        kind = Kind.INDEX if is_index(page) else Kind.UNCHANGED
        notable = [note] if note in HOLLOW else []
        return VisitedPage(kind=kind, before=page, page=replace(after, misses=0, note=note), notable=notable)
    if status == 200:
        return _read_ok(page, after, answer, extracted, scope=scope, now=now, skip=skip)
    if status in REDIRECTED:
        return _read_redirect(page, after, answer, scope)
    if status in _MISSING:
        return _make_missing(page, after, f"not found (status {status})")
    return _make_noted(page, after, f"answers with status {status}")


def read_script_redirect(page: SitePage, answer: HttpAnswer, crawl: int, scope: Scope) -> VisitedPage | None:
    """Return the result of a rendered page whose script has moved on to another URL; None if it has not."""
    to = normalize_url(answer.url)
    if to is None or to == page.url or not answer.url.startswith("http"):
        return None
    seen = make_skipped(page, crawl, f"its script leads to {to}")
    seen.is_asked, seen.page = True, replace(seen.page, status=answer.status)
    if scope.contains(to):
        seen.follow, seen.is_redirect = [to], True
    return seen


def note_rendered(seen: VisitedPage, remarks: list[str]) -> None:
    """Add the remarks about a rendered page. One that still has no text does not need a browser, but content."""
    seen.notable = [EMPTY if remark == SCRIPTED else remark for remark in (*seen.notable, *remarks)]
    if seen.page.note == SCRIPTED:
        seen.page = replace(seen.page, note=EMPTY)


def make_failed(page: SitePage, crawl: int, reason: str, *, is_asked: bool = True) -> VisitedPage:
    """Return the result of a page that could not be read; what is stored of it stays."""
    after = replace(page, crawl=crawl, note=_choose_note(page, reason))
    return VisitedPage(kind=Kind.FAILED, before=page, page=after, reason=reason[:_NOTE], is_asked=is_asked)


def make_skipped(page: SitePage, crawl: int, reason: str) -> VisitedPage:
    """Return the result of a page that must not be fetched."""
    after = replace(page, crawl=crawl, note=_choose_note(page, reason))
    return VisitedPage(kind=Kind.SKIPPED, before=page, page=after, is_asked=False)


def make_unchanged(page: SitePage, crawl: int) -> VisitedPage:
    """Return the result of a page that its sitemap reports as unchanged."""
    return VisitedPage(kind=Kind.UNCHANGED, before=page, page=replace(page, crawl=crawl), is_asked=False)


def _read_ok(
    page: SitePage,
    after: SitePage,
    answer: HttpAnswer,
    extracted: ExtractedDocument | None,
    *,
    scope: Scope,
    now: datetime,
    skip: int,
) -> VisitedPage:
    after = replace(
        after,
        misses=0,
        etag=_unless_long(answer.headers.get("ETag")),
        last_modified=_unless_long(answer.headers.get("Last-Modified")),
    )
    if extracted is not None:
        if extracted.document is None:
            return _make_noted(page, after, extracted.skipped or "cannot be read")
        return _read_document(page, after, extracted.document, extracted.rows, scope=scope, now=now, skip=skip)
    if is_index(page) or ("xml" in answer.media_type and answer.media_type not in HTML_TYPES):
        return _read_index(page, after, answer, scope, skip)
    if answer.media_type in HTML_TYPES or (not answer.media_type and answer.body.lstrip()[:1] == b"<"):
        return _read_page(page, after, answer, scope, now, skip=skip)
    return _make_noted(page, after, f"not HTML: {answer.media_type or 'no media type'}")


def _read_redirect(page: SitePage, after: SitePage, answer: HttpAnswer, scope: Scope) -> VisitedPage:
    location = answer.headers.get("Location", "")
    to = scope.link(location, page.url)
    where = to or location[:200] or "nowhere"
    if to == page.url:
        return _make_noted(page, after, "redirects to itself")
    if answer.status in _PERMANENT and page.content_hash is not None:
        seen = _make_missing(page, after, f"moved to {where}")
    else:
        is_led_to = page.note == LED_TO or is_intermediate(page)
        seen = _make_noted(page, after, f"{_LEADS_ON if is_led_to else 'redirects to '}{where}")
    if to is not None and is_index(page):
        seen.indexes = [(to, page.note or FEED)]
    elif to is not None and scope.contains(to):
        seen.follow, seen.is_redirect = [to], True
        seen.near = to if is_same_page(to, page.url) else None
    return seen


def _make_missing(page: SitePage, after: SitePage, reason: str) -> VisitedPage:
    if is_index(page):
        seen = _make_noted(page, after, reason)
        seen.is_absent = True
        return seen
    missed = replace(after, misses=page.misses + 1, etag=None, last_modified=None, note=reason[:_NOTE])
    return VisitedPage(kind=Kind.MISSING, before=page, page=missed)


def _make_noted(page: SitePage, after: SitePage, reason: str) -> VisitedPage:
    kind = Kind.INDEX if is_index(page) else Kind.SKIPPED
    return VisitedPage(
        kind=kind, before=page, page=replace(after, note=_choose_note(page, reason)), reason=reason[:_NOTE]
    )


def _choose_note(page: SitePage, reason: str) -> str | None:
    # Sitemaps and feeds are recognized by their note, whatever the result of this visit.
    return page.note if is_index(page) else reason[:_NOTE]


def _read_index(page: SitePage, after: SitePage, answer: HttpAnswer, scope: Scope, skip: int) -> VisitedPage:
    body, rest = answer.body, 0
    notable: list[str] = []
    lastmods: Mapping[str, str] = {}
    try:
        if page.note == SITEMAP or is_gzip(body) or b"<urlset" in body[:2000] or b"<sitemapindex" in body[:2000]:
            listed = parse_sitemap(body, answer.charset, skip=skip)
            pages, indexes, note = listed.pages, listed.sitemaps, SITEMAP
            notable += listed.faults
            lastmods, rest = listed.lastmods, listed.rest
        else:
            feed = parse_feed(body, answer.charset, page.url)
            pages, indexes, note = tuple(entry.link for entry in feed.entries if entry.link), (), FEED
            notable += _feed_remarks(feed)
    except NotXml as error:
        if not is_index(page):
            return _make_noted(page, after, f"not HTML: {answer.media_type}")
        seen = _make_noted(page, after, f"cannot be read: {error}")
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
        lastmods=lastmods,
        rest=rest,
    )


def _feed_remarks(feed: Feed) -> list[str]:
    found = (
        [] if feed.fault is None else [f"this feed is not well-formed ({feed.fault}) and is read as far as possible"]
    )
    read = len(feed.entries) + feed.empty
    return [*found, f"this feed has {feed.total:,} entries: only {read:,} are followed"] if feed.total > read else found


def _read_page(
    page: SitePage, after: SitePage, answer: HttpAnswer, scope: Scope, now: datetime, *, skip: int
) -> VisitedPage:
    try:
        document = parse_document(decode_text(answer.body, answer.charset), rules=_robots_rules(answer))
    except TooNested as error:
        return _make_noted(page, after, str(error))
    return _read_document(page, after, document, None, scope=scope, now=now, skip=skip)


def _read_document(
    page: SitePage,
    after: SitePage,
    document: Document,
    rows: list[Row] | None,
    *,
    scope: Scope,
    now: datetime,
    skip: int,
) -> VisitedPage:
    base = (scope.link(document.base, page.url) if document.base else None) or page.url
    links, total, rest = _cut_links(scope.links(document.hrefs, base), skip)
    notable = [] if total <= MOST_LINKS else [f"has {total:,} links, which are followed in parts of {MOST_LINKS:,}"]
    notable += [*([document.lacking] if document.lacking else []), *document.remarks]
    if len(document.text) >= MOST_TEXT:
        notable.append(f"its text is cut at {MOST_TEXT:,} characters")
    follow = _wanted(links) if document.is_followed else []
    feeds = [(address, FEED) for address in scope.links(document.feeds, base)]
    seen = VisitedPage(
        kind=Kind.SKIPPED,
        before=page,
        page=after,
        follow=follow,
        indexes=feeds,
        notable=notable,
        rest=rest if document.is_followed else 0,
    )
    canonical = scope.link(document.canonical, base) if document.canonical else None
    reason = _skip_reason(page.url, document, canonical, scope, has_rows=bool(rows))
    if document.is_soft_miss and not rows:
        # Its links are those of the error page.
        return _make_missing(page, after, "says that it was not found, with status 200")
    if reason is not None:
        seen.page = replace(after, note=reason[:_NOTE])
        if canonical is not None and canonical != page.url and scope.contains(canonical):
            seen.follow = [canonical, *follow]
            seen.near = canonical if is_same_page(canonical, page.url) else None
        return seen
    if rows is not None:
        return _take_rows(page, after, seen, rows)
    fingerprint = document.fingerprint
    if fingerprint == page.content_hash:
        seen.kind, seen.page = Kind.UNCHANGED, replace(after, note=None)
        return seen
    seen.kind, seen.page = Kind.READ, replace(after, content_hash=fingerprint, note=None)
    all_links = list(links | scope.links(document.others, base))
    seen.data = _item_data(page.url, document, fingerprint, all_links, now)
    return seen


def _take_rows(page: SitePage, after: SitePage, seen: VisitedPage, rows: list[Row]) -> VisitedPage:
    """Return the result of a page whose matches are items."""
    if not rows and page.content_hash is not None:
        # The page may have been redesigned: as for missing pages, the second time counts.
        missing = _make_missing(page, after, f"{NO_MATCH} any more")
        missing.follow, missing.indexes, missing.notable = seen.follow, seen.indexes, seen.notable
        return missing
    if not rows:
        seen.page, seen.notable = replace(after, note=NO_MATCH), [*seen.notable, NO_MATCH]
        return seen
    fingerprint = _hash_rows(rows)
    if fingerprint == page.content_hash:
        seen.kind, seen.page = Kind.UNCHANGED, replace(after, note=None)
        return seen
    seen.kind, seen.page, seen.rows = Kind.READ, replace(after, content_hash=fingerprint, note=None), rows
    return seen


def _hash_rows(rows: list[Row]) -> str:
    return hashlib.blake2b(msgspec.json.encode(rows, order="sorted"), digest_size=16).hexdigest()


def _skip_reason(url: str, document: Document, canonical: str | None, scope: Scope, *, has_rows: bool) -> str | None:
    if canonical is not None and canonical != url and scope.contains(canonical):
        return f"its canonical URL is {canonical}"
    if not document.is_indexed:
        return "not to be indexed (noindex)"
    if not scope.is_wanted(url):
        return "matches no pattern; read only for its links"
    if has_rows:
        return None
    if document.lacking is not None and not document.text:
        return document.lacking
    return "has no text" if not document.text and not document.title else None


def _item_data(url: str, document: Document, fingerprint: str, links: list[str], now: datetime) -> dict[str, Any]:
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


def _cut_links(links: dict[str, bool], skip: int) -> tuple[dict[str, bool], int, int]:
    """Return the links to follow after the first `skip`, the number of all links, and where the next part starts."""
    total, end = len(links), skip + MOST_LINKS
    if not skip and total <= end:
        return links, total, 0
    return dict(list(links.items())[skip:end]), total, end if total > end else 0


def _wanted(links: dict[str, bool]) -> list[str]:
    return [address for address, is_wanted in links.items() if is_wanted]


def _unless_long(text: str | None) -> str | None:
    return text if text and len(text) <= 500 else None
