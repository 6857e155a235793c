"""How far a crawl is: the watermark of a site. Pure."""

from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict

from floodmark.model.batch import Watermark

# What is named; further ones are counted.
_MOST_TROUBLES, _MOST_REPORTS = 50, 20


class CrawlMark(Struct, kw_only=True):
    """The counts are those of crawl number `crawl`, so far."""

    crawl: int = 0
    complete: bool = True
    visited: int = 0
    unchanged: int = 0
    new: int = 0
    changed: int = 0
    gone: int = 0
    missing: int = 0
    """Not there, for the first time."""
    skipped: int = 0
    """Not collected for a reason: not HTML, the same as another page, not to be indexed."""
    failed: int = 0
    fresh: int = 0
    """How many of the visited pages were visited for the first time."""
    indexes: int = 0
    """Sitemaps and feeds that were read."""
    found: int = 0
    """How many addresses were ever found: the place of the next one."""
    terms: str = ""
    """What was to be visited, as a hash: patterns, depth, robots.txt."""
    is_anew: bool = False
    """Whether every page is read as a whole, changed or not: what it leads to is wanted now and was not before."""
    strikes: dict[str, int] = field(default_factory=dict)
    """How often a page was answered with "wait"."""
    troubles: dict[str, str] = field(default_factory=dict)
    """Pages that failed or are missing, each with the reason."""
    more_troubles: int = 0
    reports: dict[str, tuple[int, str]] = field(default_factory=dict)
    """What else people should know: for each reason, how many pages it holds for, and the first of them."""
    more_reports: int = 0

    def watermark(self) -> Watermark:
        """As it is kept."""
        said = asdict(self)
        return {name: value for name, value in said.items() if value or name in {"crawl", "complete", "visited"}}

    def note_trouble(self, url: str, reason: str) -> None:
        """Remember a page that could not be had."""
        if url in self.troubles or len(self.troubles) < _MOST_TROUBLES:
            self.troubles[url] = reason
        else:
            self.more_troubles += 1

    def report(self, reason: str, url: str) -> None:
        """Remember a page about which the outcome says something."""
        count, first = self.reports.get(reason, (0, url))
        if count or len(self.reports) < _MOST_REPORTS:
            self.reports[reason] = (count + 1, first)
        else:
            self.more_reports += 1

    def notes(self) -> list[str]:
        """What the outcome says about pages, in sentences."""
        found = [
            f"{url}: {reason}" if count == 1 else f"{count:,} pages, such as {url}: {reason}"
            for reason, (count, url) in self.reports.items()
        ]
        return [*found, f"{self.more_reports:,} further pages are worth a look"] if self.more_reports else found

    def begun(self, newest: int, terms: str) -> "CrawlMark":
        """The next crawl, or the rest of this one. `newest` is the last crawl that visited anything."""
        is_anew = self.terms != terms
        if not self.complete and self.crawl >= newest and not is_anew:
            return self
        crawl = max(self.crawl, newest) + 1
        return CrawlMark(crawl=crawl, complete=False, found=self.found, terms=terms, is_anew=is_anew)

    @property
    def summary(self) -> str:
        """In words: `visited 40, unchanged 31, new 6, changed 2, gone 1`."""
        named = ("unchanged", "new", "changed", "gone", "missing", "skipped", "failed")
        counts = [f"{name} {getattr(self, name)}" for name in named if getattr(self, name)]
        return ", ".join([f"visited {self.visited}", *counts])


def mark_of(watermark: Watermark | None) -> CrawlMark:
    """How far the site is crawled; a watermark that someone made up counts as none."""
    said: Any = watermark or {}
    try:
        return msgspec.convert(said, CrawlMark)
    except msgspec.ValidationError:
        return CrawlMark()
