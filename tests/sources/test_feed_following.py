"""Feeds that pages name, the text of the pages of entries, and the files of entries."""

import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from floodmark.model.notes import notes_of
from floodmark.testing.web import Site, status
from web_desk import LONG, working

pytest_plugins = ("backends",)

JUNE = datetime(2026, 6, 1, 8, tzinfo=UTC)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as site:
        yield site


def put_feed(site: Site, titles: dict[int, str], path: str = "/feed.xml") -> None:
    """A feed of short entries with links, each with a file."""
    items = "".join(
        f"<item><guid>{number}</guid><link>/news/{number}</link><title>{title}</title>"
        f"<description>Short</description><enclosure url='/files/{number}.mp3' type='audio/mpeg' length='9'/>"
        f"<pubDate>{(JUNE + timedelta(days=number)):%a, %d %b %Y %H:%M:%S} GMT</pubDate></item>"
        for number, title in sorted(titles.items(), reverse=True)
    )
    site.xml(path, f"<rss version='2.0'><channel><title>News</title>{items}</channel></rss>")


@pytest.mark.spec("B15")
async def test_the_feed_that_a_page_names_is_collected(site: Site, sqlite_copy: str) -> None:
    put_feed(site, {1: "One"})
    comments = "<link rel=alternate type=application/rss+xml href=/comments/feed>"
    head = f"{comments}<link rel=alternate type=application/rss+xml href=/feed.xml>"
    site.page("/", LONG, head=head)
    site.page("/plain", LONG)
    async with working(site, sqlite_copy) as desk:
        job = await desk.job(source="feed")
        first = await desk.run(job)
        assert set(await desk.items(job)) == {"1"}
        found = f"the page {site.url}/ names the feed {site.url}/feed.xml, which is used from now on"
        assert notes_of(first.result) == [found]
        site.forget()
        put_feed(site, {1: "One", 2: "Two"})
        second = await desk.run(job)
        assert site.paths() == ["/feed.xml"]
        assert notes_of(second.result) == []
        assert set(await desk.items(job)) == {"1", "2"}

        site.remove("/feed.xml")
        put_feed(site, {3: "Three"}, "/new.xml")
        site.page("/", LONG, head=head.replace("/feed.xml", "/new.xml"))
        await desk.run(job)
        assert set(await desk.items(job)) == {"1", "2", "3"}, "the page is asked again when its feed is gone"
        none = await desk.run(await desk.job(f"{site.url}/plain", source="feed"))
        assert "is not a feed, but a page that names none" in str(none.error_message)


@pytest.mark.spec("B15")
async def test_full_texts_and_files_of_new_entries_are_read_once(site: Site, sqlite_copy: str, tmp_path: Path) -> None:
    site.robots("User-agent: *\nDisallow: /news/3")
    for number in (1, 2, 3):
        canonical = f'<link rel=canonical href="/other/{number}">'
        site.page(f"/news/{number}", f"Full text {number}. {LONG}", head=canonical)
        site.put(f"/files/{number}.mp3", f"sound {number}", content_type="audio/mpeg")
    site.always("/news/2", status(404))
    put_feed(site, {1: "One", 2: "Two", 3: "Three"})
    async with working(site, sqlite_copy, artifacts_dir=tmp_path) as desk:
        job = await desk.job(f"{site.url}/feed.xml", source="feed", full_text=True, enclosures=True)
        first = await desk.run(job)
        found = {key: row["data"] for key, row in (await desk.items(job)).items()}
        assert f"Full text 1. {LONG.strip()}" in found["1"]["text"]
        assert "text" not in found["2"]
        assert "text" not in found["3"]
        assert f"{site.url}/news/2: answers with status 404" in notes_of(first.result)
        [file] = found["1"]["enclosures"]
        digest = hashlib.sha256(b"sound 1").hexdigest()
        assert (file["sha256"], file["bytes"]) == (digest, 7)
        assert read(tmp_path / "enclosures" / digest[:2] / f"{digest}.mp3") == b"sound 1"

        site.forget()
        site.page("/news/1", "Another text, which is not read again.")
        site.page("/news/2", f"Full text 2. {LONG}")
        put_feed(site, {1: "One", 2: "Two", 3: "Three", 4: "Four"})
        await desk.run(job)
        rows = await desk.items(job)
        assert "/news/1" not in site.paths()
        assert rows["1"]["revision"] == 1
        assert "Full text 2." in rows["2"]["data"]["text"], "what could not be read before is read later"
        assert rows["2"]["revision"] == 2
        assert set(rows) == {"1", "2", "3", "4"}

        put_feed(site, {1: "One, corrected", 2: "Two", 3: "Three", 4: "Four"})
        await desk.run(job)
        assert "Another text" in (await desk.items(job))["1"]["data"]["text"]


@pytest.mark.spec("B15")
@pytest.mark.thorough
async def test_only_the_newest_entries_of_a_long_feed_are_followed(site: Site, sqlite_copy: str) -> None:
    put_feed(site, {number: f"Entry {number}" for number in range(105)})
    for number in range(105):
        site.page(f"/news/{number}", f"Full text {number}.")
    async with working(site, sqlite_copy) as desk:
        job = await desk.job(f"{site.url}/feed.xml", source="feed", full_text=True)
        run = await desk.run(job)
        rows = await desk.items(job)
        assert {key for key, row in rows.items() if "text" not in row["data"]} == {str(number) for number in range(5)}
        assert "entries whose links are not followed, because 100 others are newer: 5" in notes_of(run.result)


def read(path: Path) -> bytes:
    return path.read_bytes()
