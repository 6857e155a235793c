"""One crawl of a site, or the rest of one.

    queue        ->  fetchers        ->  seen     ->  batch
    pages of the     fetch one page      visited      stored in one transaction: items, visited pages,
    frontier         after another       pages        new pages and the watermark

The frontier is in the store. A page leaves it when the batch with its visit is stored: a crawl that is killed resumes
with the remaining pages and fetches no stored page again. Fetchers keep running while a batch is stored.
"""

import asyncio
import hashlib
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from floodmark.errors import Permanent, SlowDown, SourceError
from floodmark.extensions.services import Services
from floodmark.model.batch import Batch, Item, SitePage
from floodmark.model.completeness import Coverage, Trouble
from floodmark.model.durations import format_duration
from floodmark.model.notes import drop_notes
from floodmark.observability.events import PagesVisited
from floodmark.sources.collected_items import CollectedItems
from floodmark.sources.port import Context, Target

from .difference import difference
from .extraction.rows import MOST_ROWS, Row
from .login import ends_session
from .matches import KnownMatches, find_stale, make_items, make_tombstones, page_keys
from .pages import Pages
from .params import PATIENCE, WebParams
from .responses import (
    LED_TO,
    SITEMAP,
    Kind,
    VisitedPage,
    is_file,
    is_index,
    is_intermediate,
    make_failed,
    make_skipped,
    make_unchanged,
)
from .robots import FORBIDDEN
from .robots_by_origin import RobotsRules
from .sitemaps import read_exact_time, read_latest_time
from .urls import Scope, host_of, origin_of
from .visiting import PageVisitor, RequestPace
from .watermark import RESULTS, CrawlMark

if TYPE_CHECKING:
    pass

# Pages read from the frontier at once, and the queue length below which more are read.
_CHUNK, _LOW_QUEUE = 1000, 100
# The size of a batch: pages with text, and pages in all.
_BATCH, _MAX_SEEN = 40, 200
# Visited pages are stored after this long at the latest: a kill can cost that much work.
_STORE_AFTER_SECONDS = 2.0
# How often a stop of the worker is noticed while no page arrives.
_POLL_SECONDS = 0.5
# A longer crawl gives its slot to other jobs and resumes later.
TURN_SECONDS = 600.0
# How often one page may cause a rate limit of the whole crawl.
_MAX_STRIKES = 3
_MAX_INDEXES, _MAX_STRUCK, _MAX_REMEMBERED = 200, 1000, 500_000
# Shorter texts are often the same on different pages: "Log in", an empty list.
_SAME_TEXT = 200
# A page may appear a while after its `lastmod`: a longer while than this is not expected.
_LASTMOD_MARGIN = timedelta(days=1)
# Pages looked up at once.
_LOOKED_UP = 500
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)
# A page counts as gone when it is missing for the second time: the first may be a temporary fault.
_GONE_AFTER = 2


class Crawl:
    """Visits the pages of a site. `rules` are those of its robots.txt; None to ignore it."""

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
        self._pages, self._collected = Pages(services.database), CollectedItems(services.database)
        self._known_matches, self._visitor = KnownMatches(services.database), visitor
        self._params, self._scope, self._mark, self._rules = params, scope, mark, rules
        self._concurrency = params.concurrency or services.settings.web_domain_concurrency
        self._own_delay = services.settings.web_domain_delay if params.delay is None else params.delay
        self._queue: deque[SitePage] = deque()
        # Read from the frontier and not yet stored, so that they are not read again.
        self._taken: dict[str, SitePage] = {}
        self._fetchers: set[asyncio.Task[None]] = set()
        self._seen: list[VisitedPage] = []
        self._texts = 0
        self._found: list[SitePage] = []
        self._remembered: set[str] = set()
        # When pages were changed since the last crawl, as their sitemaps say.
        self._changed_at: dict[str, datetime] = {}
        # Targets of redirects in this run, and pages that are visited only if they are such a target.
        self._led_to: set[str] = set()
        self._intermediate: dict[str, SitePage] = {}
        # Pages that were rate-limited before: visited last, so that they do not delay the others.
        self._later: list[SitePage] = []
        # Pages to visit again for the links that the last visit left over, and those that this run has visited so.
        self._rests: deque[tuple[SitePage, int]] = deque()
        self._tried_rests: set[tuple[str, int]] = set()
        self._wake = asyncio.Event()
        self._wait: SlowDown | None = None
        self._error: BaseException | None = None
        # Whether the frontier may have more pages than were read.
        self._has_more = True
        # How many more URLs may be stored, pages visited, and pages visited for the first time.
        self._room, self._budget, self._fresh_share = 0, params.max_pages, params.max_pages
        # Results of pages since the last event.
        self._results: Counter[str] = Counter()
        self._visits = 0
        self._start_trouble: str | None = None
        self._began = self._stored_at = time.monotonic()

    @property
    def delay(self) -> timedelta:
        """The delay between two requests."""
        return self._own_delay if self._rules is None else max(self._own_delay, self._rules.delay)

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield batches until the crawl is complete; raise `SlowDown` if it has to wait."""
        await self._visitor.open()
        try:
            await self._start()
            while True:
                await self._refill()
                self._start_fetchers()
                if not self._fetchers and (not self._seen or self._wait is not None):
                    break
                if not self._is_due():
                    await self._wait_for_work()
                if self._error is not None:
                    raise self._error
                if self._is_due():
                    batch = await self._make_batch()
                    yield batch
                    self._forget_stored(batch)
        finally:
            await self._cancel_fetchers()
            await self._visitor.close()
        if self._wait is None and not self._context.stopping.is_set():
            self._mark.complete, self._mark.strikes = True, {}
        batch = await self._make_batch()
        yield replace(batch, coverage=self._coverage()) if self._mark.complete else batch
        self._write_result()
        if self._wait is not None:
            raise self._wait
        self._check_start()

    # Which page is next

    async def _start(self) -> None:
        """Queue the start page and sitemaps first: new pages are linked from there."""
        extent = await self._pages.count(self._stream)
        refused = [*self._mark.troubles] if self._context.gaps else []
        now = self._services.clock.now().timestamp()
        self._mark = self._mark.start_or_resume(extent.newest, self._terms(), now)
        self._fresh_share = self._params.max_pages - min(extent.visited, self._params.max_pages // 2)
        seeds = self._seeds()
        if self._context.gaps:
            # Pages that were refused come first, so that the limit of the crawl does not leave them out again.
            refused += await self._pages.find_refused(self._stream, limit=_LOOKED_UP)
            seeds = {url: SitePage(url=url) for url in refused if self._scope.contains(url)} | seeds
        known = await self._pages.find(self._stream, list(seeds))
        for url, page in seeds.items():
            self._remembered.add(url)
            waiting = known.get(url, page)
            if waiting.crawl < self._mark.crawl:
                self._take(waiting)
        self._room = self._params.most_known - extent.known
        self._budget = self._params.max_pages - self._mark.visited
        await self._queue_rests()

    def _seeds(self) -> dict[str, SitePage]:
        start, only = self._scope.start, self._params.sitemap_only
        seeds = {} if only else {start: SitePage(url=start)}
        named = [start] if only and is_sitemap_url(start) else []
        if self._params.sitemaps:
            for address in named or self._sitemaps(origin_of(start)):
                seeds.setdefault(address, SitePage(url=address, note=SITEMAP))
        return seeds

    def _terms(self) -> str:
        """Return a hash of what selects pages. If it changes, unchanged pages (304) are read again for their links."""
        params, rules = self._params, self._rules
        robots = None if rules is None else rules.of(origin_of(self._scope.start))
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

    def _sitemaps(self, origin: str) -> list[str]:
        robots = None if self._rules is None else self._rules.of(origin)
        named = [] if robots is None else robots.sitemaps
        found = [address for text in named if (address := self._scope.link(text, f"{origin}/"))]
        return found or [f"{origin}/sitemap.xml"]

    async def _refill(self) -> None:
        """Read more of the frontier before the queue is empty."""
        await self._read_frontier()
        if not self._queue and not self._has_more and self._wait is None:
            self._queue.extend(self._later)
            self._later.clear()
            if not self._queue and not self._fetchers and not self._seen:
                await self._queue_rests()

    async def _queue_rests(self) -> None:
        """Queue pages whose remaining links are to be followed: at the start, and when no other page is left."""
        wanted = {url: at for url, at in self._mark.rests.items() if (url, at) not in self._tried_rests}
        if not wanted or self._room <= 0 or self._is_over():
            return
        known = await self._pages.find(self._stream, list(wanted))
        for url, at in wanted.items():
            if url in known:
                self._rests.append((known[url], at))
            else:
                del self._mark.rests[url]
        self._tried_rests.update(wanted.items())

    async def _read_frontier(self) -> None:
        if len(self._queue) > _LOW_QUEUE or not self._has_more or self._wait is not None or self._is_over():
            return
        # A site that generates URLs endlessly must not prevent visits to known pages.
        fresh = self._fresh_share - self._mark.fresh - sum(page.crawl == 0 for page in self._taken.values())
        if fresh > 0 or not await self._queue_pages(_CHUNK, visited=True):
            self._has_more = await self._queue_pages(min(_CHUNK, fresh) if fresh > 0 else _CHUNK)
        if self._room < self._params.most_known // 4:
            # Some of the found URLs were known before: count again when it matters.
            extent = await self._pages.count(self._stream)
            self._room = self._params.most_known - extent.known - len(self._found)

    async def _queue_pages(self, count: int, *, visited: bool = False) -> bool:
        """Queue up to `count` pages and return whether there may be more; with `visited`, whether there were any."""
        before = len(self._queue)
        while True:
            limit = count + len(self._taken)
            waiting = await self._pages.read_frontier(self._stream, self._mark.crawl, limit=limit, visited=visited)
            for page in [page for page in waiting if page.url not in self._taken][:count]:
                self._take(page)
            # Otherwise all pages read were set aside: read further.
            if len(waiting) < limit or self._queue:
                return len(self._queue) > before if visited else len(waiting) == limit

    def _take(self, page: SitePage) -> None:
        self._taken[page.url] = page
        self._remembered.add(page.url)
        if is_intermediate(page) and page.url not in self._led_to:
            # A site may generate a new URL with every redirect; the old ones are not worth a visit.
            self._intermediate[page.url] = page
        elif page.url in self._mark.strikes:
            self._later.append(page)
        else:
            self._queue.append(page)

    def _is_over(self) -> bool:
        return self._budget <= 0 or self._context.stopping.is_set() or self._pause() is not None

    def _pause(self) -> SlowDown | None:
        """Return why the crawl should give its slot to others now, if it should."""
        if (delay := self.delay) > PATIENCE and self._visits:
            host = host_of(self._scope.start)
            return SlowDown(delay, None, f"{host} asks for {format_duration(delay)} between two pages")
        if time.monotonic() - self._began > TURN_SECONDS and self._visits:
            return SlowDown(timedelta(seconds=1), None, "a long crawl lets other jobs run and resumes soon")
        return None

    def _start_fetchers(self) -> None:
        waiting = len(self._queue) + len(self._rests)
        count = 0 if self._wait is not None else min(waiting, self._concurrency - len(self._fetchers))
        for _ in range(count):
            task = asyncio.create_task(self._fetch_pages())
            self._fetchers.add(task)
            task.add_done_callback(self._end_fetcher)

    async def _fetch_pages(self) -> None:
        while (chosen := self._next()) is not None:
            page, skip = chosen
            try:
                seen = await self._skip(page) or await self._visit(page, skip)
            except SlowDown as wait:
                if self._wait is None:
                    self._wait = wait
                    self._queue.clear()
                    self._rests.clear()
                    # A wait that was known before the request is not caused by this page.
                    if wait.is_answer:
                        self._strike(page.url)
                return
            seen.skipped_links = skip
            self._seen.append(seen)
            self._texts += _weigh(seen)
            self._add_links(seen)
            if seen.lastmods:
                await self._use_lastmods(seen.lastmods)
            if self._is_due() or (self._has_more and len(self._queue) <= _LOW_QUEUE):
                self._wake.set()

    def _end_fetcher(self, fetcher: "asyncio.Task[None]") -> None:
        self._fetchers.discard(fetcher)
        if not fetcher.cancelled():
            self._error = self._error or fetcher.exception()
        self._wake.set()

    def _next(self) -> tuple[SitePage, int] | None:
        """Return the next page to visit, with the number of links to skip; None to stop for now."""
        if self._wait is None and self._is_over():
            self._wait = self._pause() if self._budget > 0 else None
            self._queue.clear()
            self._rests.clear()
        # With a slow store, visited pages must not fill the memory.
        is_full = len(self._seen) >= 2 * _MAX_SEEN or self._texts >= 2 * _BATCH
        if self._wait is not None or is_full:
            return None
        if self._rests:
            return self._rests.popleft()
        return (self._queue.popleft(), 0) if self._queue else None

    async def _skip(self, page: SitePage) -> VisitedPage | None:
        """Return the result of a page that must not be fetched; None if it is to be fetched."""
        seen = self._skip_by_params(page)
        if seen is not None:
            return seen
        cost = 0 if is_index(page) else 1
        self._visits, self._budget = self._visits + 1, self._budget - cost
        seen = None if self._rules is None else await self._skip_by_robots(page, self._rules)
        if seen is not None:
            self._visits, self._budget = self._visits - 1, self._budget + cost
        return seen

    def _skip_by_params(self, page: SitePage) -> VisitedPage | None:
        crawl = self._mark.crawl
        if is_index(page):
            if self._mark.indexes < _MAX_INDEXES:
                return None
            seen = make_skipped(page, crawl, "too many sitemaps and feeds")
            seen.notable = [f"not read: the site has more than {_MAX_INDEXES} sitemaps and feeds"]
            return seen
        if page.url != self._scope.start and not self._scope.contains(page.url):
            return make_skipped(page, crawl, "matches no pattern")
        if page.depth > self._params.max_depth:
            return make_skipped(page, crawl, f"more than {self._params.max_depth} links away")
        if self._mark.strikes.get(page.url, 0) >= _MAX_STRIKES:
            return make_failed(page, crawl, f"rate-limited {_MAX_STRIKES} times", is_asked=False)
        return None

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
            for address in self._sitemaps(origin) if self._params.sitemaps else ():
                self._add_page(address, 0, SITEMAP)
        return None if robots.allows(page.url) else make_skipped(page, self._mark.crawl, FORBIDDEN)

    async def _visit(self, page: SitePage, skip: int) -> VisitedPage:
        delay = self.delay
        pace = RequestPace(concurrency=self._concurrency, delay=delay if delay <= PATIENCE else None)
        return await self._visitor.visit(page, self._mark.crawl, pace, is_anew=self._mark.is_anew, skip=skip)

    async def _wait_for_work(self) -> None:
        timer = asyncio.get_running_loop().call_later(_POLL_SECONDS, self._wake.set)
        await self._wake.wait()
        timer.cancel()
        self._wake.clear()

    def _strike(self, url: str) -> None:
        strikes = self._mark.strikes
        strikes[url] = strikes.pop(url, 0) + 1
        while len(strikes) > _MAX_STRUCK:
            del strikes[next(iter(strikes))]

    # Sitemaps say when pages were changed

    async def _use_lastmods(self, lastmods: Mapping[str, str]) -> None:
        """Remember the times of changes since the last crawl, and skip pages that have not changed."""
        since = datetime.fromtimestamp(self._mark.since, UTC)
        if not self._mark.since:
            return
        # Times of one day or more before are not parsed: a sitemap can have 50,000.
        day = (since - timedelta(days=1)).date().isoformat()
        for url, lastmod in lastmods.items():
            if lastmod >= day and len(self._changed_at) < _MAX_REMEMBERED:
                at = read_exact_time(lastmod)
                if at is not None and since < at <= self._services.clock.now():
                    self._changed_at[url] = at
        if self._params.trusts_lastmod and not self._mark.is_anew:
            await self._skip_unchanged(lastmods, since - _LASTMOD_MARGIN)

    async def _skip_unchanged(self, lastmods: Mapping[str, str], before: datetime) -> None:
        """Skip pages that were read by the last crawl, and changed last at a time `before` it.

        They are stored in the same batch as the sitemap, so that a resumed crawl does not request them either.
        """
        old = [url for url, text in lastmods.items() if (at := read_latest_time(text)) is not None and at < before]
        for start in range(0, len(old), _LOOKED_UP):
            known = await self._pages.find(self._stream, old[start : start + _LOOKED_UP])
            queued = {page.url for page in self._queue}
            skipped = {
                url: page
                for url, page in known.items()
                if url != self._scope.start
                and page.content_hash is not None
                and page.misses == 0
                and page.crawl == self._mark.crawl - 1
                and (url in queued or url not in self._taken)
            }
            if skipped:
                self._queue = deque(page for page in self._queue if page.url not in skipped)
                self._taken |= skipped
                self._remembered |= skipped.keys()
                self._seen += [make_unchanged(page, self._mark.crawl) for page in skipped.values()]

    # New pages

    def _add_links(self, seen: VisitedPage) -> None:
        depth = seen.page.depth + 1
        if seen.near is not None:
            self._add_page(seen.near, seen.page.depth, None)
        if depth > self._params.max_depth or (self._params.sitemap_only and not self._leads_on(seen)):
            return
        for address, note in seen.indexes:
            is_wanted = self._params.sitemaps if note == SITEMAP else self._params.feeds
            if is_wanted and self._scope.is_inside(address):
                self._add_page(address, depth, note)
                if note == SITEMAP and self._params.trusts_lastmod:
                    self._move_to_front(address)
        if seen.is_redirect:
            self._queue_redirect_targets(seen.follow)
        for address in seen.follow:
            is_left_out = is_file(address, self._params.plan) or (self._params.login and ends_session(address))
            if address not in self._remembered and not is_left_out:
                self._add_page(address, depth, LED_TO if seen.is_redirect else None)

    @staticmethod
    def _leads_on(seen: VisitedPage) -> bool:
        """Return whether a crawl of sitemaps alone goes on from here: from sitemaps, and from pages that have moved."""
        return (seen.kind is Kind.INDEX and seen.page.note == SITEMAP) or seen.is_redirect

    def _move_to_front(self, url: str) -> None:
        """Visit a queued sitemap next: it may say that other queued pages need no visit."""
        found = next((page for page in self._queue if page.url == url), None)
        if found is not None:
            self._queue.remove(found)
            self._queue.appendleft(found)

    def _queue_redirect_targets(self, addresses: list[str]) -> None:
        self._led_to.update(addresses)
        known = self._intermediate
        self._queue.extend(known.pop(address) for address in addresses if address in known)

    def _add_page(self, url: str, depth: int, note: str | None) -> None:
        if url in self._remembered or self._room <= 0:
            return
        if len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered.add(url)
        robots = None if self._rules is None else self._rules.of(origin_of(url))
        # With many wildcard rules, a URL is checked only before its visit.
        if robots is None or robots.is_long or robots.allows(url):
            self._mark.found += 1
            self._room -= 1
            self._found.append(SitePage(url=url, depth=depth, place=self._mark.found, note=note))
        else:
            self._results["refused"] += 1

    # Batches

    def _is_due(self) -> bool:
        if not self._seen or (self._wait is not None and self._fetchers):
            # Wait for the running fetchers, then make the last batch.
            return False
        if self._texts >= _BATCH or len(self._seen) >= _MAX_SEEN or self._context.stopping.is_set():
            return True
        is_idle = not self._queue and len(self._fetchers) < self._concurrency
        return is_idle or time.monotonic() - self._stored_at > _STORE_AFTER_SECONDS

    async def _make_batch(self) -> Batch:
        seen, self._seen, self._texts = self._seen, [], 0
        found, self._found = self._found, []
        # In this batch are all links that these visits have found: only now the next part may start after them.
        for visit in seen:
            self._note_rest(visit)
        seen = [visit for visit in seen if not visit.skipped_links]
        await self._visitor.sync()
        await self._skip_duplicates(seen)
        gone = [visit for visit in seen if _is_gone(visit)]
        changed = [visit for visit in seen if visit.kind is Kind.READ and not visit.is_new]
        keys = [visit.page.url for visit in (*gone, *changed)]
        before = await self._collected.data(self._stream, keys) if keys else {}
        items, matched = await self._make_matches(seen)
        for visit in seen:
            self._count(visit)
            if visit.kind is Kind.READ and visit.rows is None:
                url = visit.page.url
                items.append(_make_item(visit, before.get(url), self._changed_at.get(url)))
            elif _is_gone(visit) and visit.page.url in before:
                items.append(Item(visit.page.url, before.get(visit.page.url), None, "gone", deleted=True))
        items.sort(key=lambda item: item.occurred_at or _LONG_AGO)
        # A page that returns after its tombstone is new.
        pages = [replace(visit.page, content_hash=None) if _is_gone(visit) else visit.page for visit in seen]
        self._stored_at = time.monotonic()
        results, self._results = self._results, Counter()
        self._services.events.emit(PagesVisited(results))
        return Batch(
            items,
            self._mark.watermark(),
            pages=[*pages, *found],
            has_times_of_change=True,
            matches=page_keys(matched),
        )

    async def _make_matches(self, seen: list[VisitedPage]) -> tuple[list[Item], dict[str, list[Row]]]:
        """Return the items of the matches on pages, with the tombstones of those that have disappeared."""
        if self._params.plan.select is None:
            return [], {}
        matched: dict[str, list[Row]] = {visit.page.url: [] for visit in seen if _is_gone(visit)}
        matched |= {visit.page.url: visit.rows for visit in seen if visit.rows is not None}
        known = await self._known_matches.find(self._stream, list(matched)) if matched else {}
        stale, tombstones = find_stale(known, matched), list[Item]()
        for start in range(0, len(stale), _LOOKED_UP):
            keys = stale[start : start + _LOOKED_UP]
            tombstones += make_tombstones(keys, await self._collected.data(self._stream, keys))
        now = self._services.clock.now()
        raw = {visit.page.url: visit.raw for visit in seen}
        items = [item for url, rows in matched.items() for item in make_items(url, rows, now, raw[url])]
        return [*tombstones, *items], matched

    def _forget_stored(self, batch: Batch) -> None:
        for page in batch.pages:
            if page.crawl == self._mark.crawl:
                self._taken.pop(page.url, None)
            else:
                self._has_more = True

    async def _skip_duplicates(self, seen: list[VisitedPage]) -> None:
        """Skip new pages with the same content as another page."""
        fresh = [visit for visit in seen if visit.kind is Kind.READ and visit.is_new and _is_comparable(visit)]
        hashes = [visit.page.content_hash for visit in fresh if visit.page.content_hash is not None]
        if not hashes:
            return
        kept = await self._pages.find_by_content(self._stream, hashes)
        changed = {visit.page.url for visit in seen if visit.kind is Kind.READ and not visit.is_new}
        first = {content: url for content, url in kept.items() if url not in changed}
        for visit in fresh:
            url = visit.page.url
            other = first.setdefault(str(visit.page.content_hash), url)
            if other != url:
                same = make_skipped(visit.page, self._mark.crawl, f"the same as {other}")
                # Without its tags: if the other page changes or disappears, this one is read again.
                alone = replace(same.page, content_hash=None, etag=None, last_modified=None)
                visit.kind, visit.page = Kind.SKIPPED, alone

    def _note_rest(self, visit: VisitedPage) -> None:
        """Record where the remaining links of a page start. A page that could not be read keeps its place."""
        is_read = visit.is_asked and visit.page.status == 200 and visit.kind is not Kind.FAILED
        if is_read or visit.kind is Kind.MISSING:
            self._mark.note_rest(visit.page.url, visit.rest, is_next=visit.skipped_links > 0)

    def _count(self, visit: VisitedPage) -> None:
        mark, url = self._mark, visit.page.url
        for reason in visit.notable:
            mark.report(reason, url)
        if visit.kind is Kind.INDEX:
            mark.indexes += 1
            if visit.reason is not None and not self._is_guess(visit):
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
        if url == self._scope.start and visit.kind not in {Kind.READ, Kind.UNCHANGED} and not visit.follow:
            self._start_trouble = visit.page.note

    def _is_guess(self, visit: VisitedPage) -> bool:
        """Return whether it is the default sitemap, which robots.txt does not name and which does not exist."""
        url = visit.page.url
        robots = None if self._rules is None else self._rules.of(origin_of(url))
        named = () if robots is None else robots.sitemaps
        return visit.is_absent and url == f"{origin_of(url)}/sitemap.xml" and url not in named

    # The end

    def _coverage(self) -> Coverage:
        """Return what a complete crawl says: every page was read that it found, but for refusals and limits."""
        mark, params = self._mark, self._params
        troubles = [Trouble(kind="refused", reason=reason, count=count) for reason, count in mark.refused.items()]
        if self._budget <= 0:
            troubles.append(Trouble(kind="bound", reason=f"the crawl stopped at max_pages={params.max_pages}"))
        if self._room <= 0:
            reason = f"{params.most_known:,} URLs are known; further ones are not stored"
            troubles.append(Trouble(kind="bound", reason=reason))
        began = datetime.fromtimestamp(mark.began, UTC)
        return Coverage(
            axis="crawl",
            ranges=((1, mark.crawl),),
            begins_at=began,
            ends_at=self._services.clock.now(),
            troubles=troubles,
            cleared=("refused", "bound"),
        )

    def _write_result(self) -> None:
        mark, result = self._mark, self._context.result
        # The mark has the notes of all slices.
        drop_notes(result)
        result["crawl"], result["summary"] = mark.crawl, mark.summary
        result |= {name: getattr(mark, name) for name in ("visited", *RESULTS)}
        if self._budget <= 0:
            result["stopped"] = f"at max_pages={self._params.max_pages}"
            self._context.note(f"stopped at max_pages={self._params.max_pages}: the next crawls continue with the rest")
        if mark.rests:
            self._context.note(f"pages with more links than were followed: {len(mark.rests)}; the next crawls continue")
        if self._room <= 0:
            result["full"] = f"{self._params.most_known:,} URLs are known; further ones are not stored"
            self._context.note(f"{result['full']} (20 times max_pages)")
        if mark.troubles:
            result["troubles"] = mark.troubles
        if mark.more_troubles:
            result["more_troubles"] = mark.more_troubles
        if mark.failed:
            self._context.note(f"pages that could not be read: {mark.failed:,} (see troubles)")
        for note in mark.notes():
            self._context.note(note)

    def _check_start(self) -> None:
        """Fail the crawl if the start page cannot be read and there are no other pages."""
        if self._params.sitemap_only and self._mark.complete and not (self._mark.visited or self._mark.unchanged):
            raise Permanent(
                f"{self._scope.start}: its sitemaps list no pages of this crawl",
                hint="name a sitemap as the target, as in https://example.com/sitemap.xml, or leave out --sitemap-only",
            )
        if self._start_trouble is not None and self._mark.visited <= 1 and not self._mark.unchanged:
            raise Permanent(
                f"{self._scope.start}: {self._start_trouble}",
                hint=f"See the response with: floodmark try {self._scope.start}",
            )

    async def _cancel_fetchers(self) -> None:
        tasks = list(self._fetchers)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def is_sitemap_url(url: str) -> bool:
    """Return whether a start URL names a sitemap."""
    return url.partition("?")[0].lower().endswith((".xml", ".xml.gz", ".txt"))


def _weigh(visit: VisitedPage) -> int:
    """Return the share of a batch that a visit takes."""
    if visit.rows is not None:
        return 1 + len(visit.rows) * _BATCH // MOST_ROWS
    return int(visit.data is not None)


def _result_name(visit: VisitedPage) -> str:
    """Return the name of the mark's count that a visit adds to."""
    if visit.kind is Kind.READ:
        return "new" if visit.is_new else "changed"
    return "gone" if _is_gone(visit) else visit.kind.value


def _is_refused(visit: VisitedPage) -> bool:
    """Return whether a page exists, but could not be read."""
    is_answered = visit.kind is Kind.SKIPPED and visit.is_asked and (visit.page.status or 0) >= 400
    return visit.kind is Kind.FAILED or is_answered


def _is_gone(visit: VisitedPage) -> bool:
    return visit.kind is Kind.MISSING and visit.page.misses >= _GONE_AFTER and visit.page.content_hash is not None


def _is_comparable(visit: VisitedPage) -> bool:
    return visit.data is not None and len(visit.data["text"]) >= _SAME_TEXT


def _make_item(visit: VisitedPage, before: object, changed_at: datetime | None) -> Item:
    data = visit.data
    assert data is not None
    if visit.raw is not None:
        data = {**data, "raw": visit.raw}
    if isinstance(before, dict) and isinstance(before.get("text"), str):
        changes = difference(before["text"], data["text"])
        if before.get("title") != data["title"]:
            changes = f"-{before.get('title')}\n+{data['title']}\n{changes}".rstrip()
        data = {**data, "difference": changes}
    return Item(visit.page.url, data, changed_at, visit.page.content_hash)
