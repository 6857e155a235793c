"""The watermark of a crawl: its number, counts and problems. Pure."""

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict

from floodmark.model.batch import Watermark

RESULTS = ("unchanged", "new", "changed", "gone", "missing", "skipped", "failed")
"""The results of visited pages, each with a count in the mark."""
# Further ones are only counted.
_MAX_TROUBLES, _MAX_REPORTS, _MAX_RESTS = 50, 20, 100


class CrawlMark(Struct, kw_only=True):
    """The state of crawl number `crawl`; all counts are of this crawl."""

    crawl: int = 0
    complete: bool = True
    visited: int = 0
    unchanged: int = 0
    new: int = 0
    changed: int = 0
    gone: int = 0
    missing: int = 0
    """Missing for the first time."""
    skipped: int = 0
    """Not collected: not HTML, same as another page, noindex and so on."""
    failed: int = 0
    fresh: int = 0
    """Visited pages that no earlier crawl has visited."""
    indexes: int = 0
    """Sitemaps and feeds read."""
    began: float = 0.0
    """When this crawl began, in seconds since 1970."""
    since: float = 0.0
    """When the crawl before it began; 0 if that is not known."""
    found: int = 0
    """URLs found by all crawls; gives each page its place."""
    terms: str = ""
    """Hash of what selects the pages: patterns, depth, robots.txt."""
    is_anew: bool = False
    """Whether unchanged pages are read again: `terms` have changed, and their links may now belong to the crawl."""
    strikes: dict[str, int] = field(default_factory=dict)
    """How often a page was rate-limited."""
    troubles: dict[str, str] = field(default_factory=dict)
    """Failed and missing pages, each with the reason."""
    more_troubles: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    """How many pages could not be read, by reason."""
    reports: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Other remarks: each with its number of pages and the first of them."""
    more_reports: int = 0
    rests: dict[str, int] = field(default_factory=dict)
    """Pages and sitemaps with more links than one visit follows, each with the number of links followed so far."""

    def watermark(self) -> Watermark:
        """Return the stored form, without fields that are empty."""
        return {
            name: value for name, value in asdict(self).items() if value or name in {"crawl", "complete", "visited"}
        }

    def note_trouble(self, url: str, reason: str) -> None:
        """Record a page that failed or is missing."""
        if url in self.troubles or len(self.troubles) < _MAX_TROUBLES:
            self.troubles[url] = reason
        else:
            self.more_troubles += 1

    def note_refused(self, reason: str) -> None:
        """Count a page that could not be read."""
        known = reason if reason in self.refused or len(self.refused) < _MAX_REPORTS else "other reasons"
        self.refused[known] = self.refused.get(known, 0) + 1

    def report(self, reason: str, url: str) -> None:
        """Record a remark about a page."""
        count, first = self.reports.get(reason, (0, url))
        if count or len(self.reports) < _MAX_REPORTS:
            self.reports[reason] = (count + 1, first)
        else:
            self.more_reports += 1

    def note_rest(self, url: str, rest: int, *, is_next: bool) -> None:
        """Record where the remaining links of a page start; 0 if none remain.

        `is_next`: an earlier part was followed before. Otherwise the stored place counts: the first links may have been
        read again meanwhile.
        """
        if not rest:
            self.rests.pop(url, None)
        elif url in self.rests:
            self.rests[url] = rest if is_next else self.rests[url]
        elif len(self.rests) < _MAX_RESTS:
            self.rests[url] = rest
        else:
            self.report(
                f"has more links than one visit follows, as {_MAX_RESTS} other pages: the rest is left out", url
            )

    def notes(self) -> list[str]:
        """Return the remarks as notes for the execution's result."""
        found = [
            f"{url}: {reason}" if count == 1 else f"{count:,} pages, such as {url}: {reason}"
            for reason, (count, url) in self.reports.items()
        ]
        return [*found, f"{self.more_reports:,} further pages have remarks"] if self.more_reports else found

    def start_or_resume(self, newest: int, terms: str, now: float) -> "CrawlMark":
        """Return this mark to resume its crawl, or a new one. `newest`: the last crawl that visited a page."""
        is_anew = self.terms != terms
        if not self.complete and self.crawl >= newest and not is_anew:
            return self
        crawl = max(self.crawl, newest) + 1
        since = self.began if self.crawl >= newest else 0.0
        return CrawlMark(
            crawl=crawl,
            complete=False,
            began=now,
            since=since,
            found=self.found,
            terms=terms,
            is_anew=is_anew,
            # With other terms all links are read again.
            rests={} if is_anew else dict(self.rests),
        )

    @property
    def summary(self) -> str:
        """The counts as text: `visited 40, unchanged 31, new 6, changed 2, gone 1`."""
        counts = [f"{name} {getattr(self, name)}" for name in RESULTS if getattr(self, name)]
        return ", ".join([f"visited {self.visited}", *counts])


def parse_mark(watermark: Watermark | None) -> CrawlMark:
    """Return the mark in a watermark; an invalid watermark counts as none."""
    try:
        return msgspec.convert(watermark or {}, CrawlMark)
    except msgspec.ValidationError:
        return CrawlMark()
