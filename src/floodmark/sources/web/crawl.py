"""One crawl of a site, or the rest of one.

    queue  ->  walkers    ->  seen  ->  batch
    pages of   ask for one    what      kept in one transaction: items, what is known of the visited pages,
    the        after the      came      pages that were found, and how far the crawl is
    frontier   other

The frontier is in the store. A page is taken from it, and is visited once what came of it is kept: a crawl that is
killed goes on with the pages that are left, and asks for none a second time that was kept. The walkers go on while a
batch is kept, as far as the queue goes.
"""

import asyncio
import hashlib
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator
from datetime import timedelta

from msgspec.structs import replace

from floodmark.errors import Permanent, SlowDown, SourceError
from floodmark.extensions.services import Services
from floodmark.model.batch import Batch, Item, SitePage
from floodmark.model.durations import format_duration
from floodmark.model.notes import drop_notes
from floodmark.observability.events import PagesVisited
from floodmark.outbound.client import HttpAnswer
from floodmark.sources.collected_items import CollectedItems
from floodmark.sources.port import Context, Target

from .difference import difference
from .marks import CrawlMark
from .pages import Pages
from .params import PATIENCE, WebParams
from .reading import LED_TO, SITEMAP, Kind, VisitedPage, failed, is_between, is_file, is_index, read, skipped
from .robots import FORBIDDEN
from .rules import RobotsRules
from .urls import Scope, host_of, origin_of

# Pages of the frontier that are read at once. When fewer than these are left it is time to read on.
CHUNK, _FEW = 1000, 100
# What is kept at once: so many pages with their text, or so many in all.
BATCH, _MOST_SEEN = 40, 200
# What was seen is kept after this long at the latest: that much a kill can cost.
_KEEP_AFTER_SECONDS = 2.0
# How often we look whether the worker is leaving, when no page comes.
_LOOK_SECONDS = 0.5
# A crawl that takes longer than this gives its slot to others, and goes on when it is its turn again.
TURN_SECONDS = 600.0
# So often a page may be the reason why the whole crawl is told to wait.
_MOST_STRIKES = 3
_MOST_INDEXES, _MOST_STRUCK, _MOST_REMEMBERED = 200, 1000, 500_000
# Short texts are alike by chance: "Log in", an empty list.
_SAME_TEXT = 200
# The body of a larger page is taken apart beside the loop.
_LARGE = 256 * 1024
# Pages that vanished are believed the second time: the first may be a mishap of the site.
_GONE_AFTER = 2


class Crawl:
    """Visits pages and yields what came of it. `rules` are those of the site; None: they are not asked for."""

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
    ) -> None:
        self._services, self._context, self._stream = services, context, target.stream
        self._pages, self._collected = Pages(services.database), CollectedItems(services.database)
        self._params, self._scope, self._mark, self._rules = params, scope, mark, rules
        self._concurrency = params.concurrency or services.settings.web_domain_concurrency
        self._asked_delay = services.settings.web_domain_delay if params.delay is None else params.delay
        self._queue: deque[SitePage] = deque()
        # Taken from the frontier and not yet kept, so that they are not taken again.
        self._taken: dict[str, SitePage] = {}
        self._walkers: set[asyncio.Task[None]] = set()
        self._seen: list[VisitedPage] = []
        self._texts = 0
        self._found: list[SitePage] = []
        self._remembered: set[str] = set()
        # Where redirects have led in this run, and pages that are of interest only if one does.
        self._led_to: set[str] = set()
        self._aside: dict[str, SitePage] = {}
        # Pages that were answered with "wait" before: asked for last, so that they do not hold up the others.
        self._later: list[SitePage] = []
        self._wake = asyncio.Event()
        self._put_off: SlowDown | None = None
        self._fault: BaseException | None = None
        # Whether there may be more in the frontier than was taken.
        self._has_more = True
        # How many more addresses are remembered, and how many more pages may be asked for.
        self._room, self._budget, self._fresh_share = 0, params.max_pages, params.max_pages
        # What became of pages since this was last told.
        self._results: Counter[str] = Counter()
        self._visits = 0
        self._start_trouble: str | None = None
        self._began = self._kept_at = time.monotonic()

    @property
    def delay(self) -> timedelta:
        """Between two requests."""
        return self._asked_delay if self._rules is None else max(self._asked_delay, self._rules.delay)

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """All that there is to visit, then the crawl is complete; or what could be visited before it was put off."""
        await self._begin()
        try:
            while True:
                await self._refill()
                self._send_walkers()
                if not self._walkers and (not self._seen or self._put_off is not None):
                    break
                if not self._is_due():
                    await self._look_around()
                if self._fault is not None:
                    raise self._fault
                if self._is_due():
                    batch = await self._batch()
                    yield batch
                    self._forget_kept(batch)
        finally:
            await self._leave()
        if self._put_off is None and not self._context.stopping.is_set():
            self._mark.complete, self._mark.strikes = True, {}
        yield await self._batch()
        self._tell()
        if self._put_off is not None:
            raise self._put_off
        self._complain()

    # What is next

    async def _begin(self) -> None:
        """The pages to begin with come first in every crawl: what is new is linked from there."""
        extent = await self._pages.extent(self._stream)
        self._mark = self._mark.begun(extent.newest, self._terms())
        self._fresh_share = self._params.max_pages - min(extent.visited, self._params.max_pages // 2)
        seeds = {self._scope.start: SitePage(url=self._scope.start)}
        if self._params.sitemaps:
            for address in self._sitemaps(origin_of(self._scope.start)):
                seeds.setdefault(address, SitePage(url=address, note=SITEMAP))
        known = await self._pages.known(self._stream, list(seeds))
        for url, page in seeds.items():
            self._remembered.add(url)
            waiting = known.get(url, page)
            if waiting.crawl < self._mark.crawl:
                self._take(waiting)
        self._room = self._params.most_known - extent.known
        self._budget = self._params.max_pages - self._mark.visited

    def _terms(self) -> str:
        """What decides which pages are found. Links on a page that answers 304 are not seen, so this is remembered."""
        params, rules = self._params, self._rules
        robots = None if rules is None else rules.of(origin_of(self._scope.start))
        said = (self._scope.start, params.include, params.exclude, params.max_depth, params.sitemaps, params.feeds)
        return hashlib.sha256(repr((*said, robots and robots.terms)).encode()).hexdigest()[:16]

    def _sitemaps(self, origin: str) -> list[str]:
        robots = None if self._rules is None else self._rules.of(origin)
        named = [] if robots is None else robots.sitemaps
        found = [address for text in named if (address := self._scope.link(text, f"{origin}/"))]
        return found or [f"{origin}/sitemap.xml"]

    async def _refill(self) -> None:
        """Read on in the frontier before the queue is empty."""
        await self._read_frontier()
        if not self._queue and not self._has_more and self._put_off is None:
            self._queue.extend(self._later)
            self._later.clear()

    async def _read_frontier(self) -> None:
        if len(self._queue) > _FEW or not self._has_more or self._put_off is not None or self._is_over():
            return
        # What a site makes up without end must not keep us from what we know.
        fresh = self._fresh_share - self._mark.fresh - sum(page.crawl == 0 for page in self._taken.values())
        if fresh > 0 or not await self._read_on(CHUNK, visited=True):
            self._has_more = await self._read_on(min(CHUNK, fresh) if fresh > 0 else CHUNK)
        if self._room < self._params.most_known // 4:
            # What was found may have been known before this run: counted again when it matters.
            extent = await self._pages.extent(self._stream)
            self._room = self._params.most_known - extent.known - len(self._found)

    async def _read_on(self, count: int, *, visited: bool = False) -> bool:
        """Put up to so many pages in the queue; whether there were as many, or any that were `visited` before."""
        before = len(self._queue)
        while True:
            limit = count + len(self._taken)
            waiting = await self._pages.waiting(self._stream, self._mark.crawl, limit=limit, visited=visited)
            for page in [page for page in waiting if page.url not in self._taken][:count]:
                self._take(page)
            # All that was read may have been put aside.
            if len(waiting) < limit or self._queue:
                return len(self._queue) > before if visited else len(waiting) == limit

    def _take(self, page: SitePage) -> None:
        self._taken[page.url] = page
        self._remembered.add(page.url)
        if is_between(page) and page.url not in self._led_to:
            # A site that makes up an address with every redirect would have us ask for all it ever made up.
            self._aside[page.url] = page
        elif page.url in self._mark.strikes:
            self._later.append(page)
        else:
            self._queue.append(page)

    def _is_over(self) -> bool:
        return self._budget <= 0 or self._context.stopping.is_set() or self._rest() is not None

    def _rest(self) -> SlowDown | None:
        """Why it is time to make room for others, if it is."""
        if (delay := self.delay) > PATIENCE and self._visits:
            host = host_of(self._scope.start)
            return SlowDown(delay, None, f"{host} wants {format_duration(delay)} between two pages")
        if time.monotonic() - self._began > TURN_SECONDS and self._visits:
            return SlowDown(timedelta(seconds=1), None, "a long crawl makes room for others, and goes on")
        return None

    def _send_walkers(self) -> None:
        wanted = 0 if self._put_off is not None else min(len(self._queue), self._concurrency - len(self._walkers))
        for _ in range(wanted):
            task = asyncio.create_task(self._walk())
            self._walkers.add(task)
            task.add_done_callback(self._came_back)

    async def _walk(self) -> None:
        """One page after the other, as long as there are any."""
        while (page := self._next()) is not None:
            try:
                seen = await self._unwanted(page) or await self._visit(page)
            except SlowDown as told:
                if self._put_off is None:
                    self._put_off = told
                    self._queue.clear()
                    # That the host is to be left alone says nothing about a page that was not asked for.
                    if told.is_answer:
                        self._strike(page.url)
                return
            self._seen.append(seen)
            self._texts += seen.data is not None
            self._note_found(seen)
            if self._is_due() or (self._has_more and len(self._queue) <= _FEW):
                self._wake.set()

    def _came_back(self, walker: "asyncio.Task[None]") -> None:
        self._walkers.discard(walker)
        if not walker.cancelled():
            self._fault = self._fault or walker.exception()
        self._wake.set()

    def _next(self) -> SitePage | None:
        """The next page to visit; None if that is enough for now."""
        if self._put_off is None and self._is_over():
            self._put_off = self._rest() if self._budget > 0 else None
            self._queue.clear()
        # What was seen is kept first: a store that is slow must not fill our memory.
        is_full = len(self._seen) >= 2 * _MOST_SEEN or self._texts >= 2 * BATCH
        return None if self._put_off is not None or is_full or not self._queue else self._queue.popleft()

    async def _unwanted(self, page: SitePage) -> VisitedPage | None:
        """What is said of a page that is in the frontier and is not asked for all the same; None if it is."""
        seen = self._why_not(page)
        if seen is not None:
            return seen
        cost = 0 if is_index(page) else 1
        self._visits, self._budget = self._visits + 1, self._budget - cost
        seen = None if self._rules is None else await self._forbidden(page, self._rules)
        if seen is not None:
            self._visits, self._budget = self._visits - 1, self._budget + cost
        return seen

    def _why_not(self, page: SitePage) -> VisitedPage | None:
        crawl = self._mark.crawl
        if is_index(page):
            if self._mark.indexes < _MOST_INDEXES:
                return None
            seen = skipped(page, crawl, "one list of pages too many")
            seen.notable = [f"is one of more than {_MOST_INDEXES} sitemaps and feeds, and is not read"]
            return seen
        if page.url != self._scope.start and not self._scope.holds(page.url):
            return skipped(page, crawl, "no pattern wants it")
        if page.depth > self._params.max_depth:
            return skipped(page, crawl, f"more than {self._params.max_depth} links away")
        if self._mark.strikes.get(page.url, 0) >= _MOST_STRIKES:
            return failed(page, crawl, f"told us to wait {_MOST_STRIKES} times", is_asked=False)
        return None

    async def _forbidden(self, page: SitePage, rules: RobotsRules) -> VisitedPage | None:
        origin = origin_of(page.url)
        robots = rules.of(origin)
        if robots is None:
            try:
                robots = await rules.ask(origin)
            except SlowDown:
                raise
            except SourceError as error:
                return failed(page, self._mark.crawl, f"robots.txt cannot be had: {error}", is_asked=False)
            for address in self._sitemaps(origin) if self._params.sitemaps else ():
                self._find(address, 0, SITEMAP)
        return None if robots.allows(page.url) else skipped(page, self._mark.crawl, FORBIDDEN)

    # Asking

    async def _visit(self, page: SitePage) -> VisitedPage:
        delay = self.delay
        try:
            answer = await self._services.http.get(
                page.url,
                headers=None if self._mark.is_anew else _conditions(page),
                follow=False,
                concurrency=self._concurrency,
                delay=delay if delay <= PATIENCE else None,
            )
        except SlowDown:
            raise
        except SourceError as error:
            return failed(page, self._mark.crawl, str(error))
        if len(answer.body) > _LARGE:
            return await asyncio.to_thread(self._read, page, answer)
        return self._read(page, answer)

    def _read(self, page: SitePage, answer: HttpAnswer) -> VisitedPage:
        try:
            return read(page, answer, crawl=self._mark.crawl, scope=self._scope, now=self._services.clock.now())
        except Exception as error:  # noqa: BLE001 - whatever a stranger wrote there, the other pages can be read
            return failed(page, self._mark.crawl, f"cannot be read: {type(error).__name__}: {error}")

    async def _look_around(self) -> None:
        """Wait until there is something to do, or it is time to look."""
        timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._wake.set)
        await self._wake.wait()
        timer.cancel()
        self._wake.clear()

    def _strike(self, url: str) -> None:
        strikes = self._mark.strikes
        strikes[url] = strikes.pop(url, 0) + 1
        while len(strikes) > _MOST_STRUCK:
            del strikes[next(iter(strikes))]

    # What was found

    def _note_found(self, seen: VisitedPage) -> None:
        depth = seen.page.depth + 1
        if seen.near is not None:
            self._find(seen.near, seen.page.depth, None)
        if depth > self._params.max_depth:
            return
        for address, note in seen.indexes:
            is_wanted = self._params.sitemaps if note == SITEMAP else self._params.feeds
            if is_wanted and self._scope.is_inside(address):
                self._find(address, depth, note)
        if seen.is_redirect:
            self._lead_to(seen.follow)
        for address in seen.follow:
            if address not in self._remembered and not is_file(address):
                self._find(address, depth, LED_TO if seen.is_redirect else None)

    def _lead_to(self, addresses: list[str]) -> None:
        self._led_to.update(addresses)
        self._queue.extend(self._aside.pop(address) for address in addresses if address in self._aside)

    def _find(self, url: str, depth: int, note: str | None) -> None:
        if url in self._remembered or self._room <= 0:
            return
        if len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered.add(url)
        robots = None if self._rules is None else self._rules.of(origin_of(url))
        # Where that takes long, only those addresses are judged that are come to.
        if robots is None or robots.is_long or robots.allows(url):
            self._mark.found += 1
            self._room -= 1
            self._found.append(SitePage(url=url, depth=depth, place=self._mark.found, note=note))
        else:
            self._results["refused"] += 1

    # What is kept

    def _is_due(self) -> bool:
        if not self._seen or (self._put_off is not None and self._walkers):
            # Whoever is on the way is waited for: then it is the end.
            return False
        if self._texts >= BATCH or len(self._seen) >= _MOST_SEEN or self._context.stopping.is_set():
            return True
        is_waited_for = not self._queue and len(self._walkers) < self._concurrency
        return is_waited_for or time.monotonic() - self._kept_at > _KEEP_AFTER_SECONDS

    async def _batch(self) -> Batch:
        seen, self._seen, self._texts = self._seen, [], 0
        found, self._found = self._found, []
        await self._compare(seen)
        gone = [visit for visit in seen if _is_gone(visit)]
        changed = [visit for visit in seen if visit.kind is Kind.READ and not visit.is_new]
        keys = [visit.page.url for visit in (*gone, *changed)]
        before = await self._collected.data(self._stream, keys) if keys else {}
        items: list[Item] = []
        for visit in seen:
            self._count(visit)
            if visit.kind is Kind.READ:
                items.append(_item(visit, before.get(visit.page.url)))
            elif _is_gone(visit):
                items.append(Item(visit.page.url, before.get(visit.page.url), None, "gone", deleted=True))
        # Should a page come back after its tombstone, it is new.
        pages = [replace(visit.page, content_hash=None) if _is_gone(visit) else visit.page for visit in seen]
        self._kept_at = time.monotonic()
        results, self._results = self._results, Counter()
        self._services.events.emit(PagesVisited(results))
        return Batch(items, self._mark.watermark(), pages=[*pages, *found])

    def _forget_kept(self, batch: Batch) -> None:
        for page in batch.pages:
            if page.crawl == self._mark.crawl:
                self._taken.pop(page.url, None)
            else:
                self._has_more = True

    async def _compare(self, seen: list[VisitedPage]) -> None:
        """Pages that are new and hold what another page does make no item."""
        fresh = [visit for visit in seen if visit.kind is Kind.READ and visit.is_new and _is_telling(visit)]
        hashes = [visit.page.content_hash for visit in fresh if visit.page.content_hash is not None]
        if not hashes:
            return
        kept = await self._pages.alike(self._stream, hashes)
        changed = {visit.page.url for visit in seen if visit.kind is Kind.READ and not visit.is_new}
        first = {content: url for content, url in kept.items() if url not in changed}
        for visit in fresh:
            url = visit.page.url
            other = first.setdefault(str(visit.page.content_hash), url)
            if other != url:
                same = skipped(visit.page, self._mark.crawl, f"the same as {other}")
                # Without its tag: should the other one change or vanish, this is the page that holds the text.
                alone = replace(same.page, content_hash=None, etag=None, last_modified=None)
                visit.kind, visit.page = Kind.SKIPPED, alone

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
        result = _result(visit)
        setattr(mark, result, getattr(mark, result) + 1)
        self._results["refused" if visit.page.note == FORBIDDEN else result] += 1
        if visit.kind in {Kind.FAILED, Kind.MISSING}:
            mark.note_trouble(url, visit.reason or visit.page.note or "")
        if url == self._scope.start and visit.kind not in {Kind.READ, Kind.UNCHANGED} and not visit.follow:
            self._start_trouble = visit.page.note

    def _is_guess(self, visit: VisitedPage) -> bool:
        """Whether it is a sitemap that nobody named, at the usual place, and just is not there."""
        url = visit.page.url
        robots = None if self._rules is None else self._rules.of(origin_of(url))
        named = () if robots is None else robots.sitemaps
        return visit.is_absent and url == f"{origin_of(url)}/sitemap.xml" and url not in named

    # The end

    def _tell(self) -> None:
        mark, result = self._mark, self._context.result
        # The mark has those of all slices.
        drop_notes(result)
        result["crawl"], result["summary"] = mark.crawl, mark.summary
        names = ("visited", "unchanged", "new", "changed", "gone", "missing", "skipped", "failed")
        result |= {name: getattr(mark, name) for name in names}
        if self._budget <= 0:
            result["stopped"] = f"at max_pages={self._params.max_pages}"
            self._context.note(f"stopped at max_pages={self._params.max_pages}: the next crawls go on with the rest")
        if self._room <= 0:
            result["full"] = f"{self._params.most_known:,} addresses are known; further ones are not remembered"
            self._context.note(f"{result['full']} (20 times max_pages)")
        if mark.troubles:
            result["troubles"] = mark.troubles
        if mark.more_troubles:
            result["more_troubles"] = mark.more_troubles
        if mark.failed:
            self._context.note(f"pages that could not be read: {mark.failed:,} (see troubles)")
        for note in mark.notes():
            self._context.note(note)

    def _complain(self) -> None:
        """A site of which nothing can be read is not done well, but failed."""
        if self._start_trouble is not None and self._mark.visited <= 1 and not self._mark.unchanged:
            raise Permanent(
                f"{self._scope.start}: {self._start_trouble}",
                hint=f"Look at what comes with: floodmark try {self._scope.start}",
            )

    async def _leave(self) -> None:
        """Nothing is left in flight."""
        tasks = list(self._walkers)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _result(visit: VisitedPage) -> str:
    """What became of a page, as the counts of the mark are named."""
    match visit.kind:
        case Kind.READ:
            return "new" if visit.is_new else "changed"
        case Kind.MISSING:
            return "gone" if _is_gone(visit) else "missing"
        case _:
            return {Kind.UNCHANGED: "unchanged", Kind.SKIPPED: "skipped", Kind.FAILED: "failed"}[visit.kind]


def _conditions(page: SitePage) -> dict[str, str] | None:
    """What makes the answer short if nothing has changed."""
    said = {"If-None-Match": page.etag, "If-Modified-Since": page.last_modified}
    found = {name: value for name, value in said.items() if value}
    return found or None


def _is_gone(visit: VisitedPage) -> bool:
    return visit.kind is Kind.MISSING and visit.page.misses >= _GONE_AFTER and visit.page.content_hash is not None


def _is_telling(visit: VisitedPage) -> bool:
    return visit.data is not None and len(visit.data["text"]) >= _SAME_TEXT


def _item(visit: VisitedPage, before: object) -> Item:
    data = visit.data
    assert data is not None
    if isinstance(before, dict) and isinstance(before.get("text"), str):
        told = difference(before["text"], data["text"])
        if before.get("title") != data["title"]:
            told = f"-{before.get('title')}\n+{data['title']}\n{told}".rstrip()
        data = {**data, "difference": told}
    return Item(visit.page.url, data, None, visit.page.content_hash)
