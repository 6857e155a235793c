"""Counts the visited pages of a crawl, and makes its result and coverage from the counts."""

from collections import Counter
from datetime import UTC, datetime

from floodmark.errors import Permanent
from floodmark.model.completeness import Coverage, Trouble
from floodmark.model.notes import drop_notes
from floodmark.sources.port import Context

from .crawl_policy import CrawlPolicy
from .params import WebParams
from .responses import Kind, VisitedPage
from .robots import FORBIDDEN
from .watermark import RESULTS, CrawlMark


class CrawlTally:
    """Counts visited pages in `mark` and writes the result of the crawl. `start`: the URL of the start page."""

    def __init__(self, mark: CrawlMark, start: str, params: WebParams, policy: CrawlPolicy) -> None:
        self._mark, self._start, self._params, self._policy = mark, start, params, policy
        # Results of pages since the last event.
        self._results: Counter[str] = Counter()
        self._start_trouble: str | None = None

    # Visits

    def count_visit(self, visit: VisitedPage) -> None:
        """Count a visit that the next batch stores."""
        mark, url = self._mark, visit.page.url
        for reason in visit.notable:
            mark.report(reason, url)
        if visit.kind is Kind.INDEX:
            mark.indexes += 1
            # A default sitemap that does not exist is no problem of the site.
            is_expected = visit.is_absent and self._policy.is_guessed(url)
            if visit.reason is not None and not is_expected:
                mark.report(f"this {visit.page.note} {visit.reason}", url)
            return
        mark.visited += visit.is_asked
        mark.fresh += visit.is_asked and visit.before.crawl == 0
        result = _result_name(visit)
        setattr(mark, result, getattr(mark, result) + 1)
        self._results["refused" if visit.page.note == FORBIDDEN else result] += 1
        if visit.kind in {Kind.FAILED, Kind.MISSING}:
            mark.note_trouble(url, visit.reason or visit.page.note or "")
        if _is_refused(visit):
            mark.note_refused(visit.reason or visit.page.note or "no reason")
        if url == self._start and visit.kind not in {Kind.READ, Kind.UNCHANGED} and not visit.follow:
            self._start_trouble = visit.page.note

    def count_refused(self) -> None:
        """Count a page that robots.txt forbids and that is therefore not added."""
        self._results["refused"] += 1

    def note_rest(self, visit: VisitedPage) -> None:
        """Record where the remaining links of a page start. A page that could not be read keeps its place."""
        is_read = visit.is_asked and visit.page.status == 200 and visit.kind is not Kind.FAILED
        if is_read or visit.kind is Kind.MISSING:
            self._mark.note_rest(visit.page.url, visit.rest, is_next=visit.skipped_links > 0)

    def take_results(self) -> Counter[str]:
        """Return the number of pages by result since the last call."""
        results, self._results = self._results, Counter()
        return results

    # The end

    def make_coverage(self, ends_at: datetime, *, is_spent: bool, is_full: bool) -> Coverage:
        """Return what a complete crawl says: every page was read that it found, but for refusals and limits.

        `is_spent`: it stopped at `max_pages`. `is_full`: URLs that it found were not stored.
        """
        mark, params = self._mark, self._params
        troubles = [Trouble(kind="refused", reason=reason, count=count) for reason, count in mark.refused.items()]
        if is_spent:
            troubles.append(Trouble(kind="bound", reason=f"the crawl stopped at max_pages={params.max_pages}"))
        if is_full:
            reason = f"{params.most_known:,} URLs are known; further ones are not stored"
            troubles.append(Trouble(kind="bound", reason=reason))
        began = datetime.fromtimestamp(mark.began, UTC)
        return Coverage(
            axis="crawl",
            ranges=((1, mark.crawl),),
            begins_at=began,
            ends_at=ends_at,
            troubles=troubles,
            cleared=("refused", "bound"),
        )

    def write_result(self, context: Context, *, is_spent: bool, is_full: bool) -> None:
        """Write the counts and remarks of this crawl, with all its runs, to the result of the execution."""
        mark, result = self._mark, context.result
        # The mark has the notes of all slices.
        drop_notes(result)
        result["crawl"], result["summary"] = mark.crawl, mark.summary
        result |= {name: getattr(mark, name) for name in ("visited", *RESULTS)}
        if is_spent:
            result["stopped"] = f"at max_pages={self._params.max_pages}"
            context.note(f"stopped at max_pages={self._params.max_pages}: the next crawls continue with the rest")
        if mark.rests:
            context.note(f"pages with more links than were followed: {len(mark.rests)}; the next crawls continue")
        if is_full:
            result["full"] = f"{self._params.most_known:,} URLs are known; further ones are not stored"
            context.note(f"{result['full']} (20 times max_pages)")
        if mark.troubles:
            result["troubles"] = mark.troubles
        if mark.more_troubles:
            result["more_troubles"] = mark.more_troubles
        if mark.failed:
            context.note(f"pages that could not be read: {mark.failed:,} (see troubles)")
        for note in mark.notes():
            context.note(note)

    def check_start(self) -> None:
        """Raise `Permanent` if the start page cannot be read and there are no other pages."""
        mark = self._mark
        if self._params.sitemap_only and mark.complete and not (mark.visited or mark.unchanged):
            raise Permanent(
                f"{self._start}: its sitemaps list no pages of this crawl",
                hint="name a sitemap as the target, as in https://example.com/sitemap.xml, or leave out --sitemap-only",
            )
        if self._start_trouble is not None and mark.visited <= 1 and not mark.unchanged:
            raise Permanent(
                f"{self._start}: {self._start_trouble}",
                hint=f"See the response with: floodmark try {self._start}",
            )


def _result_name(visit: VisitedPage) -> str:
    """Return the name of the mark's count that a visit adds to."""
    if visit.kind is Kind.READ:
        return "new" if visit.is_new else "changed"
    return "gone" if visit.is_gone else visit.kind.value


def _is_refused(visit: VisitedPage) -> bool:
    """Return whether a page exists, but could not be read."""
    is_answered = visit.kind is Kind.SKIPPED and visit.is_asked and (visit.page.status or 0) >= 400
    return visit.kind is Kind.FAILED or is_answered
