"""Which pages a crawl visits: decided by its parameters, its scope and robots.txt. Keeps no state of the run."""

import hashlib

from floodmark.model.batch import SitePage

from .login import ends_session
from .params import WebParams
from .responses import SITEMAP, Kind, VisitedPage, is_file, is_index, make_failed, make_skipped
from .robots import Robots
from .robots_by_origin import RobotsRules
from .urls import Scope, origin_of
from .watermark import CrawlMark

# How often one page may cause a rate limit of the whole crawl.
_MAX_STRIKES = 3
_MAX_INDEXES = 200


class CrawlPolicy:
    """Selects the pages of a crawl. `rules` are those of its robots.txt; None to ignore it."""

    def __init__(self, params: WebParams, scope: Scope, rules: RobotsRules | None) -> None:
        self._params, self._scope, self._rules = params, scope, rules

    def hash_terms(self) -> str:
        """Return a hash of what selects pages. If it changes, unchanged pages (304) are read again for their links."""
        params, robots = self._params, self._find_robots(origin_of(self._scope.start))
        parts: tuple[object, ...] = (
            self._scope.start,
            params.include,
            params.exclude,
            params.max_depth,
            params.sitemaps,
            params.feeds,
        )
        if params.sitemap_only or params.subdomains or params.render or not params.plan.is_default:
            parts = (*parts, params.sitemap_only, params.subdomains, params.render, params.wait_for, params.plan)
        if params.headers or params.basic_auth or params.login:
            parts = (*parts, params.headers, params.basic_auth, params.login_url, params.login)
        return hashlib.sha256(repr((*parts, robots and robots.terms)).encode()).hexdigest()[:16]

    # The start page and sitemaps

    def list_seeds(self) -> dict[str, SitePage]:
        """Return the start page and sitemaps by URL."""
        start, only = self._scope.start, self._params.sitemap_only
        seeds = {} if only else {start: SitePage(url=start)}
        named = [start] if only and _is_sitemap_url(start) else []
        if self._params.sitemaps:
            for address in named or self.list_sitemaps(origin_of(start)):
                seeds.setdefault(address, SitePage(url=address, note=SITEMAP))
        return seeds

    def list_sitemaps(self, origin: str) -> list[str]:
        """Return the sitemaps of an origin: those that robots.txt names, or else the default one."""
        robots = self._find_robots(origin)
        named = [] if robots is None else robots.sitemaps
        found = [address for text in named if (address := self._scope.link(text, f"{origin}/"))]
        return found or [f"{origin}/sitemap.xml"]

    def is_guessed(self, url: str) -> bool:
        """Return whether it is the default sitemap, which robots.txt does not name."""
        origin = origin_of(url)
        robots = self._find_robots(origin)
        named = () if robots is None else robots.sitemaps
        return url == f"{origin}/sitemap.xml" and url not in named

    # Links

    def leads_on(self, seen: VisitedPage) -> bool:
        """Return whether the crawl follows the links of a page."""
        if seen.page.depth + 1 > self._params.max_depth:
            return False
        # A crawl of sitemaps alone goes on from sitemaps, and from pages that have moved.
        is_sitemap = seen.kind is Kind.INDEX and seen.page.note == SITEMAP
        return not self._params.sitemap_only or is_sitemap or seen.is_redirect

    def select_indexes(self, seen: VisitedPage) -> list[tuple[str, str]]:
        """Return the sitemaps and feeds to read of those that a page links to, each with its note."""
        return [
            (address, note)
            for address, note in seen.indexes
            if (self._params.sitemaps if note == SITEMAP else self._params.feeds) and self._scope.is_inside(address)
        ]

    def select_links(self, seen: VisitedPage) -> list[str]:
        """Return the pages to visit of those that a page links to."""
        plan, login = self._params.plan, self._params.login
        return [
            address for address in seen.follow if not is_file(address, plan) and not (login and ends_session(address))
        ]

    def may_add(self, url: str) -> bool:
        """Return whether robots.txt allows a new page, as far as that is known."""
        robots = self._find_robots(origin_of(url))
        # With many wildcard rules, a URL is checked only before its visit.
        return robots is None or robots.is_long or robots.allows(url)

    # Queued pages

    def skip_page(self, page: SitePage, mark: CrawlMark) -> VisitedPage | None:
        """Return the result of a page that the parameters and limits exclude; None if it may be visited."""
        if is_index(page):
            if mark.indexes < _MAX_INDEXES:
                return None
            seen = make_skipped(page, mark.crawl, "too many sitemaps and feeds")
            seen.notable = [f"not read: the site has more than {_MAX_INDEXES} sitemaps and feeds"]
            return seen
        if page.url != self._scope.start and not self._scope.contains(page.url):
            return make_skipped(page, mark.crawl, "matches no pattern")
        if page.depth > self._params.max_depth:
            return make_skipped(page, mark.crawl, f"more than {self._params.max_depth} links away")
        if mark.strikes.get(page.url, 0) >= _MAX_STRIKES:
            return make_failed(page, mark.crawl, f"rate-limited {_MAX_STRIKES} times", is_asked=False)
        return None

    def _find_robots(self, origin: str) -> Robots | None:
        return None if self._rules is None else self._rules.of(origin)


def _is_sitemap_url(url: str) -> bool:
    """Return whether a start URL names a sitemap."""
    return url.partition("?")[0].lower().endswith((".xml", ".xml.gz", ".txt"))
