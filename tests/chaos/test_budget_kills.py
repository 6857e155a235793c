"""Adaptive feeds are collected by processes that are killed: no budget is overdrawn, and each item teaches once.

The site counts the requests. The moments come from a seed, which is printed; FLOODMARK_CHAOS_SEED repeats them.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chaos.fleet import Fleet, Probe, eventually, shown_at_the_end
from chaos.invariants import prepare
from chaos.process import Order
from floodmark.model.job import ScheduleType, When
from floodmark.model.spec import JobSpec
from floodmark.rules.freshness import decode_activity
from floodmark.testing.web import Site
from floodmark.testing.web.documents import Entry, rss
from web_desk import Desk, opened

FEEDS, KILLS, REQUESTS_PER_SECOND = 6, 3, 8
# Less than the time that requests of this budget are apart, plus half a second by which one may be late.
INTERVAL, LATE = 1.01 / REQUESTS_PER_SECOND, 0.5
SETTINGS: dict[str, Any] = {
    "execution_lease": "1",
    "scheduler_leader_ttl": "1",
    "execution_rescue_max": 1000,
    "execution_retry_base": "0.1",
    "web_domain_delay": "0",
    "web_domain_concurrency": FEEDS,
    "hostname": "chaos",
}


class Newsroom:
    """Feeds that get an entry every second or every few seconds."""

    def __init__(self, site: Site) -> None:
        self._site = site
        start = datetime.now(UTC).replace(microsecond=0)
        self.entries = [
            [self._entry(feed, n, start - timedelta(hours=3 - n)) for n in range(3)] for feed in range(FEEDS)
        ]
        for feed in range(FEEDS):
            self._show(feed)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        posting = asyncio.create_task(self._post())
        try:
            yield
        finally:
            posting.cancel()
            with suppress(asyncio.CancelledError):
                await posting

    async def _post(self) -> None:
        for second in range(1, 1000):
            await asyncio.sleep(1)
            for feed in range(FEEDS):
                if second % (feed + 1) == 0:
                    number = len(self.entries[feed])
                    self.entries[feed].append(self._entry(feed, number, datetime.now(UTC).replace(microsecond=0)))
                    self._show(feed)

    def _entry(self, feed: int, number: int, at: datetime) -> Entry:
        return Entry(id=f"{feed}/{number}", link=f"{self._site.url}/{feed}/{number}", at=at)

    def _show(self, feed: int) -> None:
        self._site.xml(f"/feed-{feed}", rss(self.entries[feed][::-1]))


@pytest.mark.spec("B2", "T14", "G1")
@pytest.mark.parametrize(
    "names",
    [
        ["up-1", "up-2"],
        pytest.param(["scheduler-1", "scheduler-2", "worker-1", "worker-2"], marks=pytest.mark.release),
    ],
    ids=len,
)
@pytest.mark.thorough
async def test_processes_that_are_killed_overdraw_no_budget_and_learn_each_item_once(
    fleet: Fleet, chance: random.Random, pg_url: str, redis_url: str, names: list[str]
) -> None:
    await survive(fleet, chance, names, pg_url, redis_url=redis_url)


@pytest.mark.spec("B2", "T14", "G1")
@pytest.mark.thorough
async def test_an_embedded_process_that_is_killed_overdraws_no_budget_and_learns_each_item_once(
    fleet: Fleet, chance: random.Random, sqlite_url: str
) -> None:
    await survive(fleet, chance, ["up"], sqlite_url)


async def survive(fleet: Fleet, chance: random.Random, names: list[str], url: str, **more: Any) -> None:
    await prepare(url)
    async with Site() as site, opened(site, **SETTINGS, database_url=url, **more) as desk:
        newsroom, settings = Newsroom(site), {**SETTINGS, **site.settings(), "database_url": url, **more}
        probe = Probe(url)
        await given_feeds(desk)
        for name in names:
            fleet.start(order(fleet, name, settings))
        await fleet.ready(*names)
        with shown_at_the_end(fleet, {"kills": KILLS}):
            async with newsroom.open():
                for _ in range(KILLS):
                    await more_requests(site, chance.randrange(8, 16))
                    name = chance.choice(names)
                    fleet.kill(name)
                    fleet.start_again(name)
            expected = {entry.id for entries in newsroom.entries for entry in entries}
            await eventually(lambda: stored(probe), lambda keys: keys >= expected, seconds=180, what="all is stored")
            fleet.stop_all()
        check_requests([seen.at for seen in site.seen])
        await check_lessons(probe)


async def given_feeds(desk: Desk) -> None:
    await desk.operations.set_budget("news", 60 * REQUESTS_PER_SECOND)
    for feed in range(FEEDS):
        when = When(schedule_type=ScheduleType.ADAPTIVE)
        target = f"{desk.site.url}/feed-{feed}"
        await desk.operations.add_job(JobSpec(source="feed", target=target, when=when, budget="news"))


async def stored(probe: Probe) -> set[str]:
    return {row[0] for row in await probe.rows("SELECT key FROM items")}


async def more_requests(site: Site, more: int) -> None:
    wanted = site.count + more

    async def count() -> int:
        return site.count

    await eventually(count, lambda seen: seen >= wanted, seconds=180, what=f"{more} more requests", every=0.01)


def check_requests(times: list[float]) -> None:
    """However long a time one takes: it has no more requests than the budget allows in it."""
    assert len(times) > 20, "there were too few requests to show anything"
    for first in range(len(times)):
        for last in range(first + 1, len(times)):
            allowed = (times[last] - times[first] + LATE) / INTERVAL + 1
            assert last - first + 1 <= allowed, f"{last - first + 1} requests in {times[last] - times[first]:.2f} s"


async def check_lessons(probe: Probe) -> None:
    """Each stored item was counted once, but for the oldest of a feed, which marks its beginning."""
    stored = await probe.rows(
        "SELECT a.learned, (SELECT count(DISTINCT i.occurred_at) FROM items i WHERE i.stream = 'feed:' || j.target)"
        "  FROM activity a JOIN jobs j ON j.job_id = a.job_id"
    )
    assert len(stored) == FEEDS
    for learned, items in stored:
        known = decode_activity(learned)
        assert known is not None
        counted = sum(known.minutes) * 0.5 ** ((known.until - known.since) / (28 * 86400))
        assert counted == pytest.approx(items - 1, abs=0.05)


def order(fleet: Fleet, name: str, settings: dict[str, Any]) -> Order:
    return Order(
        name=name,
        settings=settings,
        folder=str(fleet.folder),
        scheduler=not name.startswith("worker"),
        worker=not name.startswith("scheduler"),
    )
