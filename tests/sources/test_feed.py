"""Feeds are read by the real source over real sockets: each entry once, and a short answer if nothing is new."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from floodmark.sources.feed.source import FeedSource
from floodmark.sources.port import Target
from floodmark.testing.contracts.source import SourceContract
from floodmark.testing.web import Entry, Site, atom, redirect, rss, status
from floodmark.wiring.resources import Resources
from floodmark.wiring.services import services_for
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
    async def resources(self, site: Site, sqlite_copy: str) -> AsyncIterator[Resources]:
        async with opened(site, database_url=sqlite_copy) as desk:
            yield desk.resources

    @pytest.fixture
    async def source(self, resources: Resources, target: Target) -> FeedSource:
        # The connection is open before the tasks are counted: the server has one of its own for it.
        await resources.polite.get(target.name)
        source = FeedSource(resources.settings)
        source.use_services(services_for(resources, "feed"))
        return source

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
        assert f"{site.url}/page is not a feed" in str(ended.error_message)
        gone = await desk.job(f"{site.url}/gone", source="feed")
        assert (await desk.run(gone)).state == "dead"
        assert (await desk.operations.job(gone.name)).paused
        waiting = await desk.reaches(await desk.ask(await desk.job(f"{site.url}/feed", source="feed")), "waiting")
        assert "status 429" in str(waiting.reason)


@pytest.mark.spec("V12", "G3")
@pytest.mark.thorough
async def test_no_entry_is_lost_however_the_feed_names_them(
    site: Site, sqlite_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One link for all, one guid for all, more entries than are read at once: all are collected, each once."""
    linked = [f"<item><link>/status</link><description>Update {n}</description></item>" for n in range(6)]
    named = [Entry(id="blog", link=f"/{n}", title=f"Post {n}", text="Words") for n in range(5)]
    monkeypatch.setattr("floodmark.sources.web.feeds.MOST_ENTRIES", 1000)
    many = [Entry(id=f"id-{n}", link=f"/{n}", title=f"News {n}") for n in range(2500)]
    site.xml("/many", rss(many), has_etag=True)
    async with working(site, sqlite_copy) as desk:
        for path, feed, rest in (
            (
                "/linked",
                f"<rss><channel>{''.join(linked)}</channel></rss>",
                f"<rss><channel>{linked[4]}</channel></rss>",
            ),
            ("/named", rss(named), rss(named[3:4])),
        ):
            site.xml(path, feed)
            job = await desk.job(f"{site.url}{path}", source="feed")
            first = await desk.run(job)
            assert first.items_new == first.result["entries"] == feed.count("<item>")
            assert "distinguished by" in first.result["notes"][0]
            # When only one of them is left it is still the same.
            site.xml(path, rest)
            second = await desk.run(job)
            assert (second.items_new, second.items_known) == (0, 1)

        job = await desk.job(f"{site.url}/many", source="feed")
        assert (await desk.run(job)).items_new == 2500
        assert (await desk.run(job)).result == {"summary": "nothing new"}


@pytest.mark.spec("V12", "G9")
async def test_what_is_wrong_with_a_feed_is_told_and_costs_one_entry(site: Site, sqlite_copy: str) -> None:
    site.xml("/feed", rss(ENTRIES[:5]).replace("Words", "Fish & <chips", 1).replace("</channel>", "<item/></channel>"))
    async with working(site, sqlite_copy) as desk:
        job = await desk.job(f"{site.url}/feed", source="feed")
        ended = await desk.run(job)
        assert ended.items_new == 5
        broken, empty = ended.result["notes"]
        assert broken.startswith("the feed is not well-formed (")
        assert empty == "entries left out because they are empty: 1"
        assert "note of the last run: the feed is not well-formed" in (await desk.operations.explain(job.name)).sentence


@pytest.mark.spec("V12")
@pytest.mark.thorough
async def test_a_feed_that_has_moved_for_good_is_asked_where_it_is(site: Site, sqlite_copy: str) -> None:
    site.always("/feed", redirect("/moved", 301))
    site.xml("/moved", rss(ENTRIES[:3]), has_etag=True)
    async with working(site, sqlite_copy) as desk:
        job = await desk.job(f"{site.url}/feed", source="feed")
        first = await desk.run(job)
        assert first.result["notes"][0].startswith(f"the feed has moved permanently to {site.url}/moved,")
        site.forget()
        assert (await desk.run(job)).result == {"summary": "nothing new"}
        assert site.paths() == ["/moved"]
        # The new address was a mistake, or is gone: the one that the job names counts again.
        site.remove("/moved")
        site.xml("/feed", rss(ENTRIES[:4]))
        site.forget()
        third = await desk.run(job)
        assert (third.state, third.items_new, site.paths()) == ("done", 1, ["/moved", "/feed"])
        site.forget()
        await desk.run(job)
        assert site.paths() == ["/feed"]
        # One that is lent is asked where it was.
        site.always("/lent", redirect("/feed", 302))
        lent = await desk.job(f"{site.url}/lent", source="feed")
        await desk.run(lent)
        site.forget()
        await desk.run(lent)
        assert site.paths() == ["/lent", "/feed"]
