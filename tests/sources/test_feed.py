"""Feeds are read by the real source over real sockets: each entry once, and a short answer if nothing is new."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from floodmark.parts import Parts
from floodmark.sources.feed.source import FeedSource, Ports
from floodmark.sources.port import Target
from floodmark.testing.contracts.source import SourceContract
from floodmark.testing.web import Entry, Site, atom, rss, status
from web_desk import opened, working

pytest_plugins = ("backends",)

JUNE = datetime(2026, 6, 1, tzinfo=UTC)
ENTRIES = [
    Entry(id=f"id-{n}", link=f"/news/{n}", title=f"News {n}", text="Words", at=JUNE + timedelta(days=n))
    for n in range(250)
]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as site:
        site.xml("/feed", rss(ENTRIES[::-1]), has_etag=True)
        yield site


@pytest.mark.spec("V12")
class TestFeedSource(SourceContract):
    """What every source promises, kept by feeds."""

    @pytest.fixture
    async def parts(self, site: Site, sqlite_copy: str) -> AsyncIterator[Parts]:
        async with opened(site, database_url=sqlite_copy) as desk:
            yield desk.parts

    @pytest.fixture
    async def source(self, parts: Parts, target: Target) -> FeedSource:
        # The connection is open before the tasks are counted: the server has one of its own for it.
        await parts.polite.get(target.name)
        return FeedSource(Ports(http=parts.polite, clock=parts.clock))

    @pytest.fixture
    def target(self, site: Site) -> Target:
        return Target(name=f"{site.url}/feed", stream="feed:test", params={})

    @pytest.fixture
    def nonsense(self) -> str:
        return "not an address"


@pytest.mark.spec("V12", "G3")
async def test_entries_are_collected_once_and_again_when_they_change(site: Site, sqlite_copy: str) -> None:
    entries = ENTRIES[:3]
    site.xml("/feed", atom(entries), has_etag=True)
    async with working(site, sqlite_copy) as desk:
        job = await desk.job(f"{site.url}/feed", source="feed")
        first = await desk.run(job)
        assert (first.result["summary"], first.result["title"]) == ("entries 3", "News")
        found = await desk.items(job)
        assert list(found) == ["id-0", "id-1", "id-2"]
        assert found["id-1"]["data"]["link"] == f"{site.url}/news/1"
        assert found["id-1"]["occurred_at"] == JUNE + timedelta(days=1)

        site.forget()
        assert (await desk.run(job)).result == {"summary": "nothing new"}
        assert "If-None-Match" in site.seen[-1].headers

        changed = Entry(id="id-1", link="/news/1", title="News 1", text="Other words", at=entries[1].at)
        site.xml("/feed", atom([changed, ENTRIES[3]]), has_etag=True)
        third = await desk.run(job)
        assert (third.items_new, third.items_changed) == (1, 1)
        assert (await desk.items(job))["id-1"]["revision"] == 2
        assert len(await desk.items(job)) == 4


@pytest.mark.spec("G9", "G5")
async def test_what_is_no_feed_is_told(site: Site, sqlite_copy: str) -> None:
    site.page("/page", "Not a feed")
    site.always("/gone", status(410))
    site.trouble("/feed", status(429, retry_after="600"))
    async with working(site, sqlite_copy) as desk:
        ended = await desk.run(await desk.job(f"{site.url}/page", source="feed"))
        assert f"{site.url}/page is no feed" in str(ended.error_message)
        gone = await desk.job(f"{site.url}/gone", source="feed")
        assert (await desk.run(gone)).state == "dead"
        assert (await desk.office.job(gone.name)).paused
        waiting = await desk.reaches(await desk.ask(await desk.job(f"{site.url}/feed", source="feed")), "waiting")
        assert "status 429" in str(waiting.reason)
