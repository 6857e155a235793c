"""Gaps of channels, feeds and sites are found, listed with their reason, and filled by ordinary runs."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from floodmark.model.audit import Actor
from floodmark.model.completeness import TargetCompleteness
from floodmark.operations.local import LocalOperations
from floodmark.testing.telegram import LoopbackTelegram, TelegramBackend
from floodmark.testing.web import Entry, Site, rss, status
from telegram_desk import asked, stream_of
from telegram_desk import working as at_telegram
from web_desk import working as at_sites

pytest_plugins = ("backends", "telegram_fixtures")
pytestmark = pytest.mark.spec("B13")

JUNE = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as site:
        yield site


async def shown(operations: LocalOperations, job: str) -> TargetCompleteness:
    """Return what is known about the target of a job."""
    [found] = (await operations.completeness(job=job)).items
    return found


@pytest.mark.thorough
async def test_a_channel_tells_unseen_ids_from_deleted_ones_and_fills_what_was_never_read(
    server: LoopbackTelegram, backend: TelegramBackend, sqlite_copy: str
) -> None:
    """Holes in the history are asked for by id; a part that a moved watermark has skipped is read from the history."""
    pier = backend.channel("pier")
    pier.fill(40, start=JUNE, every=timedelta(minutes=1))
    pier.delete(7, 8, 30)
    async with at_telegram(server, sqlite_copy) as desk:
        operations = LocalOperations(desk.resources, Actor(who="tester", via="test"))
        await desk.account()
        job = await desk.job("@pier", params={"history": "all"})
        assert (await desk.run(job)).state == "done"
        found = await shown(operations, job.name)
        assert [(one.first, one.last) for one in found.complete] == [(1, 40)]
        assert [(gap.kind, gap.first, gap.last, gap.count) for gap in found.gaps] == [("unseen", 7, 30, 3)]
        assert found.summary.startswith("complete from 2026-06-01 to ")

        for number in range(41, 61):
            pier.post(f"post {number}", date=JUNE + timedelta(hours=number))
        await operations.move_watermark(job.name, {"id": 55, "channel": pier.channel_id})
        await desk.run(job)
        found = await shown(operations, job.name)
        assert [(gap.kind, gap.first, gap.last) for gap in found.gaps] == [("unseen", 7, 30), ("unread", 41, 55)]
        assert 50 not in await desk.posts(stream_of(pier))

        server.forget()
        asked_for = await operations.fill_gaps(job.name)
        assert (asked_for.gaps, asked_for.left) == (2, 0)
        assert asked_for.run is not None
        done = await desk.reaches(asked_for.run.execution_id, "done")
        assert done.trigger == "fill"
        assert done.result["filled"] == {"found": 15, "deleted": 3}
        assert asked(server).count("channels.getMessages") == 1
        found = await shown(operations, job.name)
        assert ([(one.first, one.last) for one in found.complete], found.gaps) == ([(1, 60)], ())
        assert found.deleted == 3
        assert sorted(await desk.posts(stream_of(pier))) == pier.ids()
        assert (await desk.watermark(job))["value"]["id"] == 60

        assert (await operations.fill_gaps(job.name)).run is None


async def test_a_feed_that_was_cut_has_a_gap_and_says_that_it_is_lost(site: Site, sqlite_copy: str) -> None:
    """Entries that the feed has dropped before a poll cannot be obtained; those that it still has are read again."""
    entries = [Entry(id=f"id-{n}", link=f"/{n}", title=f"News {n}", at=JUNE + timedelta(hours=n)) for n in range(9)]
    site.xml("/feed", rss(entries[2::-1]), has_etag=True)
    async with at_sites(site, sqlite_copy) as desk:
        job = await desk.job(f"{site.url}/feed", source="feed")
        await desk.run(job)
        site.xml("/feed", rss(entries[3:1:-1]), has_etag=True)
        await desk.run(job)
        assert (await shown(desk.operations, job.name)).gaps == ()
        site.xml("/feed", rss(entries[:5:-1]), has_etag=True)
        await desk.run(job)
        [gap] = (await shown(desk.operations, job.name)).gaps
        assert (gap.kind, gap.first) == ("cut", int((JUNE + timedelta(hours=3)).timestamp()) + 1)

        site.xml("/feed", rss([entries[8], entries[5], entries[4]]), has_etag=True)
        asked_for = await desk.operations.fill_gaps(job.name)
        assert asked_for.run is not None
        done = await desk.reaches(asked_for.run.execution_id, "done")
        assert any("cannot be obtained" in note for note in done.result["notes"])
        found = await shown(desk.operations, job.name)
        assert [gap.kind for gap in found.gaps] == ["lost"]
        assert found.gaps[0].last == int((JUNE + timedelta(hours=4)).timestamp()) - 1
        assert len(await desk.items(job)) == 9


async def test_refused_pages_and_limits_of_a_site_are_gaps_until_they_are_read(site: Site, sqlite_copy: str) -> None:
    """Refused pages come first in a run that fills gaps; a gap closes when the page is read."""
    site.page("/", "Welcome", links=["/good", "/private"])
    site.page("/good", "A good page")
    site.always("/private", status(403))
    async with at_sites(site, sqlite_copy) as desk:
        job = await desk.job(max_pages=3)
        await desk.run(job)
        found = await shown(desk.operations, job.name)
        assert sorted(gap.kind for gap in found.gaps) == ["bound", "refused"]
        assert "403" in next(gap.reason for gap in found.gaps if gap.kind == "refused")

        site.page("/private", "Now it is public")
        site.forget()
        asked_for = await desk.operations.fill_gaps(job.name)
        assert (asked_for.gaps, asked_for.left) == (1, 1)
        assert asked_for.run is not None
        await desk.reaches(asked_for.run.execution_id, "done")
        assert "/private" in await desk.collected(job)
        assert site.paths().index("/private") <= site.paths().index("/good")
        assert [gap.kind for gap in (await shown(desk.operations, job.name)).gaps] == ["bound"]
