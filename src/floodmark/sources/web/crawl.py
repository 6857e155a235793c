"""One crawl of a site, or the rest of one.

    frontier     ->  fetchers        ->  seen     ->  batch
    queue of         fetch one page      visited      stored in one transaction: items, visited pages,
    pages            after another       pages        new pages and the watermark

The frontier is in the store. A page leaves it when the batch with its visit is stored: a crawl that is killed resumes
with the remaining pages and fetches no stored page again. Fetchers keep running while a batch is stored.
"""

import time
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from floodmark.errors import SlowDown, SourceError
from floodmark.extensions.services import Services
from floodmark.model.batch import Batch, SitePage
from floodmark.model.completeness import Coverage
from floodmark.observability.events import PagesVisited
from floodmark.sources.port import Context, Target

from .crawl_limits import CrawlLimits
from .crawl_policy import CrawlPolicy
from .crawl_tally import CrawlTally
from .extraction.rows import MOST_ROWS
from .fetchers import Fetchers
from .frontier import Frontier
from .matches import page_keys
from .page_items import PageItems
from .pages import Pages
from .params import PATIENCE, WebParams
from .responses import SITEMAP, VisitedPage, make_failed, make_skipped, make_unchanged
from .robots import FORBIDDEN
from .robots_by_origin import RobotsRules
from .sitemaps import read_latest_time
from .urls import Scope, host_of, origin_of
from .visiting import PageVisitor, RequestPace
from .watermark import CrawlMark

# The size of a batch: pages with text, and pages in all.
_BATCH, _MAX_SEEN = 40, 200
# Visited pages are stored after this long at the latest: a kill can cost that much work.
_STORE_AFTER_SECONDS = 2.0
# A longer crawl gives its slot to other jobs and resumes later.
TURN_SECONDS = 600.0
# A page may appear a while after its `lastmod`: a longer while than this is not expected.
_LASTMOD_MARGIN = timedelta(days=1)
# Pages looked up at once.
_LOOKED_UP = 500


class Crawl:
    """Visits the pages of a site. `rules` are those of its robots.txt; None to ignore it."""

    # Made by `_start`: they need the mark, and only the store tells whether the crawl is new or resumed.
    _frontier: Frontier
    _tally: CrawlTally

    def __init__(
        self,
        services: Services,
        target: Target,
        context: Context,
        *,
        params: WebParams,
        scope: Scope,
        mark: CrawlMark,
        rules: RobotsRules | None,
        visitor: PageVisitor,
    ) -> None:
        self._services, self._context, self._stream = services, context, target.stream
        self._params, self._scope, self._mark, self._rules = params, scope, mark, rules
        self._pages, self._visitor = Pages(services.database), visitor
        has_matches = params.plan.select is not None
        self._items = PageItems(services.database, services.clock, target.stream, has_matches=has_matches)
        self._policy = CrawlPolicy(params, scope, rules)
        self._limits = CrawlLimits(
            host_of(scope.start),
            context.stopping,
            pages=params.max_pages,
            turn_seconds=TURN_SECONDS,
            own_delay=services.settings.web_domain_delay if params.delay is None else params.delay,
            rules=rules,
        )
        self._concurrency = params.concurrency or services.settings.web_domain_concurrency
        self._fetchers = Fetchers(self._concurrency)
        self._seen: list[VisitedPage] = []
        self._texts = 0
        self._wait: SlowDown | None = None
        self._stored_at = time.monotonic()

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield batches until the crawl is complete; raise `SlowDown` if it has to wait."""
        await self._visitor.open()
        try:
            await self._start()
            while True:
                await self._refill()
                if self._wait is None:
                    self._fetchers.start(self._frontier.waiting, self._fetch_pages)
                if not self._fetchers.are_running and (not self._seen or self._wait is not None):
                    break
                if not self._is_due():
                    await self._fetchers.wait_for_work()
                if self._fetchers.error is not None:
                    raise self._fetchers.error
                if self._is_due():
                    batch = await self._make_batch()
                    yield batch
                    self._frontier.forget_stored(batch.pages)
        finally:
            await self._fetchers.cancel()
            await self._visitor.close()
        if self._wait is None and not self._context.stopping.is_set():
            self._mark.complete, self._mark.strikes = True, {}
        batch = await self._make_batch()
        yield replace(batch, coverage=self._make_coverage()) if self._mark.complete else batch
        self._tally.write_result(self._context, is_spent=self._limits.is_spent, is_full=self._frontier.is_full)
        if self._wait is not None:
            raise self._wait
        self._tally.check_start()

    async def _start(self) -> None:
        """Start a new crawl or resume one. The start page and sitemaps come first: new pages are linked from there."""
        extent = await self._pages.count(self._stream)
        refused = [*self._mark.troubles] if self._context.gaps else []
        now = self._services.clock.now().timestamp()
        mark = self._mark = self._mark.start_or_resume(extent.newest, self._policy.hash_terms(), now)
        self._tally = CrawlTally(mark, self._scope.start, self._params, self._policy)
        self._frontier = Frontier(
            self._pages,
            self._stream,
            params=self._params,
            policy=self._policy,
            tally=self._tally,
            mark=mark,
            extent=extent,
        )
        self._limits.count_earlier(mark.visited)
        seeds = self._policy.list_seeds()
        if self._context.gaps:
            # Pages that were refused come first, so that the limit of the crawl does not leave them out again.
            refused += await self._pages.find_refused(self._stream, limit=_LOOKED_UP)
            seeds = {url: SitePage(url=url) for url in refused if self._scope.contains(url)} | seeds
        await self._frontier.queue_first(seeds)
        if not self._limits.is_over():
            await self._frontier.queue_rests()

    async def _refill(self) -> None:
        """Read more of the frontier before the queue is empty."""
        if self._wait is None and not self._limits.is_over():
            await self._frontier.read_more()
        # A fetcher may have met a rate limit meanwhile.
        if self._wait is not None:
            return
        self._frontier.queue_later()
        is_idle = self._frontier.is_exhausted and not self._fetchers.are_running and not self._seen
        if is_idle and not self._limits.is_over():
            await self._frontier.queue_rests()

    # Visits

    async def _fetch_pages(self) -> None:
        while (chosen := self._next_page()) is not None:
            page, skip = chosen
            try:
                seen = await self._skip(page) or await self._visit(page, skip)
            except SlowDown as wait:
                if self._wait is None:
                    self._wait = wait
                    self._frontier.clear_queue()
                    # A wait that was known before the request is not caused by this page.
                    if wait.is_answer:
                        self._frontier.note_strike(page.url)
                return
            seen.skipped_links = skip
            self._seen.append(seen)
            self._texts += _weigh(seen)
            self._frontier.add_links(seen)
            if seen.lastmods:
                await self._use_lastmods(seen.lastmods)
            if self._is_due() or self._frontier.is_low:
                self._fetchers.report_work()

    def _next_page(self) -> tuple[SitePage, int] | None:
        """Return the next page to visit, with the number of links to skip; None to stop for now."""
        if self._wait is None and self._limits.is_over():
            self._wait = None if self._limits.is_spent else self._limits.find_pause()
            self._frontier.clear_queue()
        # With a slow store, visited pages must not fill the memory.
        is_full = len(self._seen) >= 2 * _MAX_SEEN or self._texts >= 2 * _BATCH
        return None if self._wait is not None or is_full else self._frontier.pop_page()

    async def _skip(self, page: SitePage) -> VisitedPage | None:
        """Return the result of a page that must not be fetched; None if it is to be fetched."""
        seen = self._policy.skip_page(page, self._mark)
        if seen is not None:
            return seen
        self._limits.count_visit(page)
        seen = None if self._rules is None else await self._skip_by_robots(page, self._rules)
        if seen is not None:
            self._limits.uncount_visit(page)
        return seen

    async def _skip_by_robots(self, page: SitePage, rules: RobotsRules) -> VisitedPage | None:
        origin = origin_of(page.url)
        robots = rules.of(origin)
        if robots is None:
            try:
                robots = await rules.fetch(origin)
            except SlowDown:
                raise
            except SourceError as error:
                return make_failed(page, self._mark.crawl, f"robots.txt cannot be fetched: {error}", is_asked=False)
            for address in self._policy.list_sitemaps(origin) if self._params.sitemaps else ():
                self._frontier.add_page(address, 0, SITEMAP)
        return None if robots.allows(page.url) else make_skipped(page, self._mark.crawl, FORBIDDEN)

    async def _visit(self, page: SitePage, skip: int) -> VisitedPage:
        delay = self._limits.delay
        pace = RequestPace(concurrency=self._concurrency, delay=delay if delay <= PATIENCE else None)
        return await self._visitor.visit(page, self._mark.crawl, pace, is_anew=self._mark.is_anew, skip=skip)

    # Sitemaps say when pages were changed

    async def _use_lastmods(self, lastmods: Mapping[str, str]) -> None:
        """Remember the times of changes since the last crawl, and skip pages that have not changed."""
        since = datetime.fromtimestamp(self._mark.since, UTC)
        if not self._mark.since:
            return
        self._items.note_changes(lastmods, since)
        if self._params.trusts_lastmod and not self._mark.is_anew:
            await self._skip_unchanged(lastmods, since - _LASTMOD_MARGIN)

    async def _skip_unchanged(self, lastmods: Mapping[str, str], before: datetime) -> None:
        """Skip pages that were read by the last crawl, and changed last at a time `before` it.

        They are stored in the same batch as the sitemap, so that a resumed crawl does not request them either.
        """
        old = [url for url, text in lastmods.items() if (at := read_latest_time(text)) is not None and at < before]
        for first in range(0, len(old), _LOOKED_UP):
            skipped = await self._frontier.take_unchanged(old[first : first + _LOOKED_UP], start=self._scope.start)
            # Not in one expression with the await: `_make_batch` may replace the list meanwhile.
            self._seen += [make_unchanged(page, self._mark.crawl) for page in skipped]

    # Batches

    def _is_due(self) -> bool:
        if not self._seen or (self._wait is not None and self._fetchers.are_running):
            # Wait for the running fetchers, then make the last batch.
            return False
        if self._texts >= _BATCH or len(self._seen) >= _MAX_SEEN or self._context.stopping.is_set():
            return True
        is_idle = not self._frontier.has_queued and self._fetchers.free > 0
        return is_idle or time.monotonic() - self._stored_at > _STORE_AFTER_SECONDS

    async def _make_batch(self) -> Batch:
        seen, self._seen, self._texts = self._seen, [], 0
        found = self._frontier.take_found()
        # In this batch are all links that these visits have found: only now the next part may start after them.
        for visit in seen:
            self._tally.note_rest(visit)
        seen = [visit for visit in seen if not visit.skipped_links]
        await self._visitor.sync()
        items, matched = await self._items.build(seen)
        for visit in seen:
            self._tally.count_visit(visit)
        # A page that returns after its tombstone is new.
        pages = [replace(visit.page, content_hash=None) if visit.is_gone else visit.page for visit in seen]
        self._stored_at = time.monotonic()
        self._services.events.emit(PagesVisited(self._tally.take_results()))
        return Batch(
            items,
            self._mark.watermark(),
            pages=[*pages, *found],
            has_times_of_change=True,
            matches=page_keys(matched),
        )

    def _make_coverage(self) -> Coverage:
        now = self._services.clock.now()
        return self._tally.make_coverage(now, is_spent=self._limits.is_spent, is_full=self._frontier.is_full)


def _weigh(visit: VisitedPage) -> int:
    """Return the share of a batch that a visit takes."""
    if visit.rows is not None:
        return 1 + len(visit.rows) * _BATCH // MOST_ROWS
    return int(visit.data is not None)
