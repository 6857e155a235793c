"""One crawl of a site, or the rest of one.

    queue  ->  in flight  ->  seen  ->  batch
    pages of   being asked    what      kept in one transaction: items, what is known of the visited pages,
    the        for            came      pages that were found, and how far the crawl is
    frontier

The frontier is in the store. A page is taken from it, and is visited once what came of it is kept: a crawl that is
killed goes on with the pages that are left, and asks for none a second time that was kept.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator
from datetime import timedelta

from msgspec.structs import replace

from floodmark.batch import Batch, Item, Page
from floodmark.durations import format_duration
from floodmark.errors import Permanent, SlowDown, SourceError
from floodmark.http.client import Answer
from floodmark.sources.port import Context, Target
from floodmark.telemetry.events import PagesVisited

from .difference import difference
from .marks import Mark
from .params import PATIENCE, Params
from .port import Ports
from .reading import SITEMAP, Kind, Seen, failed, is_file, is_index, read, skipped
from .robots import Robots
from .urls import Scope, host_of, origin_of

# Pages of the frontier that are read at once, and pages that are kept at once.
CHUNK, BATCH = 200, 40
# What was seen is kept after this long at the latest: that much a kill can cost.
_KEEP_AFTER_SECONDS = 5.0
# How often we look whether the worker is leaving, when no page comes.
_LOOK_SECONDS = 0.5
# A crawl that takes longer than this gives its slot to others, and goes on when it is its turn again.
TURN_SECONDS = 600.0
# So often a page may be the reason why the whole crawl is told to wait.
_MOST_STRIKES = 3
_MOST_INDEXES, _MOST_TROUBLES, _MOST_REMEMBERED = 200, 20, 500_000
# Short texts are alike by chance: "Log in", an empty list.
_SAME_TEXT = 200
# The body of a larger page is taken apart beside the loop.
_LARGE = 256 * 1024
# Pages that vanished are believed the second time: the first may be a mishap of the site.
_GONE_AFTER = 2


class Crawl:
    """Visits pages and yields what came of it. `robots` are the rules of the site."""

    def __init__(
        self,
        ports: Ports,
        target: Target,
        context: Context,
        *,
        params: Params,
        scope: Scope,
        mark: Mark,
        robots: Robots | None,
    ) -> None:
        self._ports, self._context, self._stream = ports, context, target.stream
        self._params, self._scope, self._mark, self._robots = params, scope, mark, robots
        self._concurrency = params.concurrency or ports.concurrency
        asked = ports.delay if params.delay is None else params.delay
        self.delay = asked if robots is None else max(asked, robots.delay)
        self._queue: deque[Page] = deque()
        self._flying: dict[str, asyncio.Task[Seen]] = {}
        self._landed: deque[asyncio.Task[Seen]] = deque()
        self._seen: list[Seen] = []
        self._found: list[Page] = []
        self._remembered: set[str] = set()
        self._wake = asyncio.Event()
        self._put_off: SlowDown | None = None
        # How many more addresses are remembered, and how many more pages may be asked for.
        self._room, self._budget, self._fresh_share = 0, params.max_pages, params.max_pages
        self._troubles: dict[str, str] = {}
        # What became of pages since this was last told.
        self._results: Counter[str] = Counter()
        self._visits = 0
        self._start_trouble: str | None = None
        self._began = self._kept_at = asyncio.get_running_loop().time()

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """All that there is to visit, then the crawl is complete; or what could be visited before it was put off."""
        await self._begin()
        try:
            while True:
                await self._refill()
                self._launch()
                if self._flying:
                    await self._arrivals()
                elif not self._seen or self._put_off is not None:
                    break
                if self._is_due():
                    yield await self._batch()
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
        extent = await self._ports.frontier.extent(self._stream)
        self._mark = self._mark.begun(extent.newest)
        self._fresh_share = self._params.max_pages - min(extent.visited, self._params.max_pages // 2)
        seeds = {self._scope.start: Page(url=self._scope.start)}
        if self._params.sitemaps:
            for address in self._sitemaps():
                seeds.setdefault(address, Page(url=address, note=SITEMAP))
        known = await self._ports.frontier.known(self._stream, list(seeds))
        for url, page in seeds.items():
            self._remembered.add(url)
            waiting = known.get(url, page)
            if waiting.crawl < self._mark.crawl:
                self._queue.append(waiting)
        self._room = self._params.most_known - extent.known
        self._budget = self._params.max_pages - self._mark.visited

    def _sitemaps(self) -> list[str]:
        named = [] if self._robots is None else self._robots.sitemaps
        found = [address for text in named if (address := self._scope.link(text, self._scope.start))]
        return found or [f"{origin_of(self._scope.start)}/sitemap.xml"]

    async def _refill(self) -> None:
        """Read on in the frontier, once what was seen is kept: what it leads to is waiting there."""
        if self._queue or self._seen or self._put_off is not None or self._is_over():
            return
        frontier, flying = self._ports.frontier, len(self._flying)
        # What a site makes up without end must not keep us from what we know.
        fresh = self._fresh_share - self._mark.fresh
        limit = min(CHUNK, fresh if fresh > 0 else CHUNK) + flying
        waiting = await frontier.waiting(self._stream, self._mark.crawl, limit=limit, visited=fresh <= 0)
        if not waiting and fresh <= 0:
            waiting = await frontier.waiting(self._stream, self._mark.crawl, limit=limit)
        self._queue.extend(page for page in waiting if page.url not in self._flying)
        self._room = self._params.most_known - (await frontier.extent(self._stream)).known

    def _is_over(self) -> bool:
        return self._budget <= 0 or self._context.stopping.is_set() or self._rest() is not None

    def _rest(self) -> SlowDown | None:
        """Why it is time to make room for others, if it is."""
        if self.delay > PATIENCE and self._visits:
            host = host_of(self._scope.start)
            return SlowDown(self.delay, None, f"{host} wants {format_duration(self.delay)} between two pages")
        if asyncio.get_running_loop().time() - self._began > TURN_SECONDS and self._visits:
            return SlowDown(timedelta(seconds=1), None, "a long crawl makes room for others, and goes on")
        return None

    def _launch(self) -> None:
        while self._queue and len(self._flying) < self._concurrency and self._put_off is None and not self._is_over():
            page = self._queue.popleft()
            reason = self._why_not(page)
            if reason is None:
                self._visits += 1
                self._budget -= not is_index(page)
                task = asyncio.create_task(self._visit(page))
                self._flying[page.url] = task
                task.add_done_callback(self._land)
            else:
                self._seen.append(reason)
        if self._put_off is None and self._is_over():
            self._queue.clear()
            self._put_off = self._rest() if self._budget > 0 else None

    def _why_not(self, page: Page) -> Seen | None:
        """A page that is in the frontier and is not asked for all the same."""
        crawl = self._mark.crawl
        if self._robots is not None and not self._robots.allows(page.url):
            return skipped(page, crawl, "robots.txt does not allow it")
        if is_index(page):
            is_wanted = self._mark.indexes < _MOST_INDEXES
            return None if is_wanted else skipped(page, crawl, "one list of pages too many")
        if page.url != self._scope.start and not self._scope.holds(page.url):
            return skipped(page, crawl, "no pattern wants it")
        if page.depth > self._params.max_depth:
            return skipped(page, crawl, f"more than {self._params.max_depth} links away")
        if self._mark.strikes.get(page.url, 0) >= _MOST_STRIKES:
            return failed(page, crawl, f"told us to wait {_MOST_STRIKES} times", is_asked=False)
        return None

    # Asking

    async def _visit(self, page: Page) -> Seen:
        try:
            answer = await self._ports.http.get(
                page.url,
                headers=_conditions(page),
                follow=False,
                concurrency=self._concurrency,
                delay=self.delay if self.delay <= PATIENCE else None,
            )
        except SlowDown:
            raise
        except SourceError as error:
            return failed(page, self._mark.crawl, str(error))
        if len(answer.body) > _LARGE:
            return await asyncio.to_thread(self._read, page, answer)
        return self._read(page, answer)

    def _read(self, page: Page, answer: Answer) -> Seen:
        return read(page, answer, crawl=self._mark.crawl, scope=self._scope, now=self._ports.clock.now())

    def _land(self, task: asyncio.Task[Seen]) -> None:
        self._landed.append(task)
        self._wake.set()

    async def _arrivals(self) -> None:
        """Wait until a page came, or it is time to look around."""
        if not self._landed:
            timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._wake.set)
            await self._wake.wait()
            timer.cancel()
        self._wake.clear()
        while self._landed:
            self._arrive(self._landed.popleft())

    def _arrive(self, task: asyncio.Task[Seen]) -> None:
        url = next(url for url, flying in self._flying.items() if flying is task)
        del self._flying[url]
        try:
            seen = task.result()
        except SlowDown as told:
            if self._put_off is None:
                self._put_off = told
                self._queue.clear()
                self._strike(url)
            return
        self._seen.append(seen)
        self._note_found(seen)

    def _strike(self, url: str) -> None:
        strikes = self._mark.strikes
        strikes[url] = strikes.pop(url, 0) + 1
        while len(strikes) > _MOST_TROUBLES:
            del strikes[next(iter(strikes))]

    # What was found

    def _note_found(self, seen: Seen) -> None:
        depth = seen.page.depth + 1
        if seen.near is not None:
            self._find(seen.near, seen.page.depth, None)
        if depth > self._params.max_depth:
            return
        for address, note in seen.indexes:
            is_wanted = self._params.sitemaps if note == SITEMAP else self._params.feeds
            if is_wanted and self._scope.is_inside(address):
                self._find(address, depth, note)
        for address in seen.follow:
            if address not in self._remembered and not is_file(address):
                self._find(address, depth, None)

    def _find(self, url: str, depth: int, note: str | None) -> None:
        if url in self._remembered or self._room <= 0:
            return
        if len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered.add(url)
        if self._robots is None or self._robots.allows(url):
            self._mark.found += 1
            self._room -= 1
            self._found.append(Page(url=url, depth=depth, place=self._mark.found, note=note))
        else:
            self._results["refused"] += 1

    # What is kept

    def _is_due(self) -> bool:
        if self._context.stopping.is_set():
            return True
        if not self._seen or (self._put_off is not None and not self._flying):
            return False
        is_waited_for = not self._queue and len(self._flying) < self._concurrency
        waited = asyncio.get_running_loop().time() - self._kept_at
        return is_waited_for or len(self._seen) >= BATCH or waited > _KEEP_AFTER_SECONDS

    async def _batch(self) -> Batch:
        seen, self._seen = self._seen, []
        found, self._found = self._found, []
        await self._compare(seen)
        gone = [visit for visit in seen if _is_gone(visit)]
        changed = [visit for visit in seen if visit.kind is Kind.READ and not visit.is_new]
        keys = [visit.page.url for visit in (*gone, *changed)]
        before = await self._ports.memory.data(self._stream, keys) if keys else {}
        items: list[Item] = []
        for visit in seen:
            self._count(visit)
            if visit.kind is Kind.READ:
                items.append(_item(visit, before.get(visit.page.url)))
            elif _is_gone(visit):
                items.append(Item(visit.page.url, before.get(visit.page.url), None, "gone", deleted=True))
        # Should a page come back after its tombstone, it is new.
        pages = [replace(visit.page, content_hash=None) if _is_gone(visit) else visit.page for visit in seen]
        self._kept_at = asyncio.get_running_loop().time()
        results, self._results = self._results, Counter()
        self._ports.events.emit(PagesVisited(results))
        return Batch(items, self._mark.watermark(), pages=[*pages, *found])

    async def _compare(self, seen: list[Seen]) -> None:
        """Pages that are new and hold what another page does make no item."""
        fresh = [visit for visit in seen if visit.kind is Kind.READ and visit.is_new and _is_telling(visit)]
        hashes = [visit.page.content_hash for visit in fresh if visit.page.content_hash is not None]
        if not hashes:
            return
        first = dict(await self._ports.frontier.alike(self._stream, hashes))
        for visit in fresh:
            url = visit.page.url
            other = first.setdefault(str(visit.page.content_hash), url)
            if other != url:
                same = skipped(visit.page, self._mark.crawl, f"the same as {other}")
                visit.kind, visit.page = Kind.SKIPPED, replace(same.page, content_hash=None)

    def _count(self, visit: Seen) -> None:
        mark, url = self._mark, visit.page.url
        if visit.kind is Kind.INDEX:
            mark.indexes += 1
            return
        mark.visited += visit.is_asked
        mark.fresh += visit.is_asked and visit.before.crawl == 0
        result = _result(visit)
        setattr(mark, result, getattr(mark, result) + 1)
        is_forbidden = result == "skipped" and self._robots is not None and not self._robots.allows(url)
        self._results["refused" if is_forbidden else result] += 1
        if visit.kind in {Kind.FAILED, Kind.MISSING} and len(self._troubles) < _MOST_TROUBLES:
            self._troubles[url] = visit.page.note or ""
        if url == self._scope.start and visit.kind not in {Kind.READ, Kind.UNCHANGED} and not visit.follow:
            self._start_trouble = visit.page.note

    # The end

    def _tell(self) -> None:
        mark, result = self._mark, self._context.result
        result["crawl"], result["summary"] = mark.crawl, mark.summary
        names = ("visited", "unchanged", "new", "changed", "gone", "missing", "skipped", "failed")
        result |= {name: getattr(mark, name) for name in names}
        if self._budget <= 0:
            result["stopped"] = f"at max_pages={self._params.max_pages}"
        if self._room <= 0:
            result["full"] = f"{self._params.most_known:,} addresses are known; further ones are not remembered"
        if self._troubles:
            result["troubles"] = self._troubles

    def _complain(self) -> None:
        """A site of which nothing can be read is not done well, but failed."""
        if self._start_trouble is not None and self._mark.visited <= 1 and not self._mark.unchanged:
            raise Permanent(
                f"{self._scope.start}: {self._start_trouble}",
                hint=f"Look at what comes with: floodmark try {self._scope.start}",
            )

    async def _leave(self) -> None:
        """Nothing is left in flight."""
        tasks = list(self._flying.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _result(visit: Seen) -> str:
    """What became of a page, as the counts of the mark are named."""
    match visit.kind:
        case Kind.READ:
            return "new" if visit.is_new else "changed"
        case Kind.MISSING:
            return "gone" if _is_gone(visit) else "missing"
        case _:
            return {Kind.UNCHANGED: "unchanged", Kind.SKIPPED: "skipped", Kind.FAILED: "failed"}[visit.kind]


def _conditions(page: Page) -> dict[str, str] | None:
    """What makes the answer short if nothing has changed."""
    said = {"If-None-Match": page.etag, "If-Modified-Since": page.last_modified}
    found = {name: value for name, value in said.items() if value}
    return found or None


def _is_gone(visit: Seen) -> bool:
    return visit.kind is Kind.MISSING and visit.page.misses >= _GONE_AFTER and visit.page.content_hash is not None


def _is_telling(visit: Seen) -> bool:
    return visit.data is not None and len(visit.data["text"]) >= _SAME_TEXT


def _item(visit: Seen, before: object) -> Item:
    data = visit.data
    assert data is not None
    if isinstance(before, dict) and isinstance(before.get("text"), str):
        told = difference(before["text"], data["text"])
        if before.get("title") != data["title"]:
            told = f"-{before.get('title')}\n+{data['title']}\n{told}".rstrip()
        data = {**data, "difference": told}
    return Item(visit.page.url, data, None, visit.page.content_hash)
