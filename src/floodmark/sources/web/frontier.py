"""The pages that a crawl has still to visit. Table: `pages`, which is written with the batches of the crawl.

    store  ->  queue  ->  a fetcher  ->  links of the page  ->  found: stored with the next batch

The queue holds a part of the frontier. A page that was read from the store is remembered as taken until its visit is
stored. Several fetchers share a frontier: its methods leave it consistent at each `await`.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence

from floodmark.model.batch import SitePage

from .crawl_policy import CrawlPolicy
from .crawl_tally import CrawlTally
from .pages import Extent, Pages
from .params import WebParams
from .responses import LED_TO, SITEMAP, VisitedPage, is_intermediate
from .watermark import CrawlMark

# Pages read from the store at once, and the queue length below which more are read.
_CHUNK, _LOW_QUEUE = 1000, 100
_MAX_STRUCK, _MAX_REMEMBERED = 1000, 500_000


class Frontier:
    """The queue of a crawl, read from the store, and the new pages for the store. `extent`: the pages stored before."""

    def __init__(
        self,
        pages: Pages,
        stream: str,
        *,
        params: WebParams,
        policy: CrawlPolicy,
        tally: CrawlTally,
        mark: CrawlMark,
        extent: Extent,
    ) -> None:
        self._pages, self._stream = pages, stream
        self._params, self._policy, self._tally, self._mark = params, policy, tally, mark
        self._queue: deque[SitePage] = deque()
        # Read from the store and not yet stored again, so that they are not read again.
        self._taken: dict[str, SitePage] = {}
        self._found: list[SitePage] = []
        self._remembered: set[str] = set()
        # Targets of redirects in this run, and pages that are visited only if they are such a target.
        self._led_to: set[str] = set()
        self._intermediate: dict[str, SitePage] = {}
        # Pages that were rate-limited before: visited last, so that they do not delay the others.
        self._later: list[SitePage] = []
        # Pages to visit again for the links that the last visit left over, and those that this run has visited so.
        self._rests: deque[tuple[SitePage, int]] = deque()
        self._tried_rests: set[tuple[str, int]] = set()
        # Whether the store may have more pages than were read.
        self._has_more = True
        # How many more URLs may be stored, and how many pages visited for the first time.
        self._room = params.most_known - extent.known
        self._fresh_share = params.max_pages - min(extent.visited, params.max_pages // 2)

    # Its state

    @property
    def has_queued(self) -> bool:
        """Whether pages are queued."""
        return bool(self._queue)

    @property
    def waiting(self) -> int:
        """The number of visits that can start now."""
        return len(self._queue) + len(self._rests)

    @property
    def is_low(self) -> bool:
        """Whether the queue is short and the store may have more pages."""
        return self._has_more and len(self._queue) <= _LOW_QUEUE

    @property
    def is_exhausted(self) -> bool:
        """Whether no page is queued and the store has no more."""
        return not self._queue and not self._has_more

    @property
    def is_full(self) -> bool:
        """Whether no further URL is stored."""
        return self._room <= 0

    # Pages to visit

    async def queue_first(self, seeds: Mapping[str, SitePage]) -> None:
        """Queue these pages before all others, except those that this crawl has visited."""
        known = await self._pages.find(self._stream, list(seeds))
        for url, page in seeds.items():
            self._remembered.add(url)
            waiting = known.get(url, page)
            if waiting.crawl < self._mark.crawl:
                self._take(waiting)

    async def read_more(self) -> None:
        """Queue more pages of the store if the queue is short."""
        if not self.is_low:
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

    def queue_later(self) -> None:
        """Queue the pages that were rate-limited before, if no others are left."""
        if self.is_exhausted:
            self._queue.extend(self._later)
            self._later.clear()

    async def queue_rests(self) -> None:
        """Queue pages whose remaining links are to be followed: at the start, and when no other page is left."""
        wanted = {url: at for url, at in self._mark.rests.items() if (url, at) not in self._tried_rests}
        if not wanted or self.is_full:
            return
        known = await self._pages.find(self._stream, list(wanted))
        for url, at in wanted.items():
            if url in known:
                self._rests.append((known[url], at))
            else:
                del self._mark.rests[url]
        self._tried_rests.update(wanted.items())

    def pop_page(self) -> tuple[SitePage, int] | None:
        """Return the next page to visit, with the number of links to skip; None if none is queued."""
        if self._rests:
            return self._rests.popleft()
        return (self._queue.popleft(), 0) if self._queue else None

    def clear_queue(self) -> None:
        """Drop the queued pages: they stay in the store for the next run."""
        self._queue.clear()
        self._rests.clear()

    def note_strike(self, url: str) -> None:
        """Record that a page was rate-limited, so that the next run visits it last."""
        strikes = self._mark.strikes
        strikes[url] = strikes.pop(url, 0) + 1
        while len(strikes) > _MAX_STRUCK:
            del strikes[next(iter(strikes))]

    async def take_unchanged(self, urls: Sequence[str], *, start: str) -> list[SitePage]:
        """Take pages that the last crawl has read and return them: they need no visit. `start` is always visited."""
        known = await self._pages.find(self._stream, urls)
        queued = {page.url for page in self._queue}
        skipped = {
            url: page
            for url, page in known.items()
            if url != start
            and page.content_hash is not None
            and page.misses == 0
            and page.crawl == self._mark.crawl - 1
            and (url in queued or url not in self._taken)
        }
        if skipped:
            self._queue = deque(page for page in self._queue if page.url not in skipped)
            self._taken |= skipped
            self._remembered |= skipped.keys()
        return list(skipped.values())

    # New pages

    def add_links(self, seen: VisitedPage) -> None:
        """Add the pages that a visited page leads to."""
        depth = seen.page.depth + 1
        if seen.near is not None:
            self.add_page(seen.near, seen.page.depth, None)
        if not self._policy.leads_on(seen):
            return
        for address, note in self._policy.select_indexes(seen):
            self.add_page(address, depth, note)
            if note == SITEMAP and self._params.trusts_lastmod:
                self._move_to_front(address)
        if seen.is_redirect:
            self._queue_redirect_targets(seen.follow)
        for address in self._policy.select_links(seen):
            self.add_page(address, depth, LED_TO if seen.is_redirect else None)

    def add_page(self, url: str, depth: int, note: str | None) -> None:
        """Add a new page, unless it is known, robots.txt forbids it or too many are known."""
        if url in self._remembered or self.is_full:
            return
        if len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered.add(url)
        if self._policy.may_add(url):
            self._mark.found += 1
            self._room -= 1
            self._found.append(SitePage(url=url, depth=depth, place=self._mark.found, note=note))
        else:
            self._tally.count_refused()

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

    # Batches

    def take_found(self) -> list[SitePage]:
        """Return the new pages since the last call."""
        found, self._found = self._found, []
        return found

    def forget_stored(self, pages: Collection[SitePage]) -> None:
        """Forget pages whose visit is stored; new ones among them can now be read from the store."""
        for page in pages:
            if page.crawl == self._mark.crawl:
                self._taken.pop(page.url, None)
            else:
                self._has_more = True
