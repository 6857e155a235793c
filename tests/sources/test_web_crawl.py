"""Sites are crawled by real workers over real sockets: which pages are collected, and what the next crawl costs."""

from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from floodmark.errors import InvalidInput
from floodmark.testing.eventually import eventually
from floodmark.testing.web import (
    Entry,
    Site,
    bomb,
    drip,
    endless,
    header_flood,
    raw,
    redirect,
    rss,
    sitemap,
    sitemap_index,
    slow,
    status,
)
from web_desk import LONG, working

pytest_plugins = ("backends",)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as site:
        yield site


@pytest.fixture(params=["sqlite_copy", "pg_clean"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.mark.spec("V12", "G3")
@pytest.mark.thorough
async def test_a_second_crawl_costs_only_what_has_changed(site: Site, url: str) -> None:
    """ETag, Last-Modified or neither: no page makes a second item. What is missing twice becomes a tombstone."""
    june = datetime(2026, 6, 1, tzinfo=UTC)
    site.page("/", "Welcome", links=["/etag", "/dated", "/neither", "/gone"], has_etag=True)
    site.page("/etag", "Has an ETag", has_etag=True, head='<meta name="author" content="Ann">')
    site.page("/dated", "Has a date", last_modified=june)
    site.page("/neither", "Has nothing")
    site.page("/gone", "Will be gone", has_etag=True)
    async with working(site, url) as desk:
        job = await desk.job()
        first = await desk.run(job)
        assert first.result["summary"] == "visited 5, new 5"
        assert await desk.collected(job) == {"/", "/etag", "/dated", "/neither", "/gone"}
        found = (await desk.items(job))["/etag"]["data"]
        assert found["text"] == "Page /etag\nHas an ETag"
        assert (found["author"], found["language"], found["title"]) == ("Ann", "en", "Page /etag")
        assert {"links", "hash", "fetched_at", "url"} <= set(found)

        site.forget()
        site.remove("/gone")
        second = await desk.run(job)
        assert second.result["summary"] == "visited 5, unchanged 4, missing 1"
        asked = {seen.path: seen.headers for seen in site.seen}
        assert "If-None-Match" in asked["/etag"]
        assert "If-Modified-Since" in asked["/dated"]
        assert len(site.paths()) == len(set(site.paths()))

        site.page("/etag", "Has another text", has_etag=True, links=["/new"])
        site.page("/new", "Is new")
        third = await desk.run(job)
        assert third.result["summary"] == "visited 6, unchanged 3, new 1, changed 1, gone 1"
        changed = (await desk.items(job))["/etag"]
        assert changed["revision"] == 2
        assert changed["data"]["difference"].splitlines()[-2:] == ["-Has an ETag", "+Has another text"]
        assert (await desk.earlier(job, "/etag"))[0]["text"].endswith("Has an ETag")
        gone = (await desk.items(job))["/gone"]
        assert gone["deleted"]
        assert gone["data"]["text"].endswith("Will be gone")

        site.page("/gone", "Is back", has_etag=True)
        fourth = await desk.run(job)
        assert fourth.result["summary"] == "visited 6, unchanged 5, new 1"
        assert "/gone" in await desk.collected(job)
        assert (await desk.watermark(job))["crawl"] == 4


@pytest.mark.spec("V12")
async def test_links_are_followed_however_they_are_written(site: Site, sqlite_copy: str) -> None:
    odd = ["/a/../b", "c/d", "?page=2", "//elsewhere.example/x", "mailto:x@example.com", "/caf%c3%a9", "/e#part"]
    site.page("/", "Welcome", links=[*odd, f"{site.url}/f?utm_source=x", "/f", "/picture.png", "/follow-not"])
    for path in ("/b", "/c/d", "/?page=2", "/caf%C3%A9", "/e", "/f"):
        site.page(path, f"This is {path}")
    site.put("/picture.png", b"png", content_type="image/png")
    site.put("/data", b"\x00\x01", content_type="application/octet-stream")
    site.page("/noindex", "Hidden", head='<meta name="robots" content="noindex">', links=["/behind"])
    site.page("/nofollow", "No further", head='<meta name="robots" content="nofollow">', links=["/never"])
    site.page("/copy", "The same", head='<link rel="canonical" href="/f">')
    site.page("/behind", "Behind a hidden page")
    site.page(
        "/", "Welcome", links=[*odd, f"{site.url}/f?utm_source=x", "/f", "/data", "/noindex", "/nofollow", "/copy"]
    )
    async with working(site, sqlite_copy) as desk:
        job = await desk.job()
        await desk.run(job)
        assert await desk.collected(job) == {
            *("/", "/b", "/c/d", "/?page=2", "/caf%C3%A9", "/e", "/f", "/nofollow", "/behind")
        }
        notes = await desk.notes(job)
        assert notes["/data"] == "not HTML: application/octet-stream"
        assert notes["/noindex"] == "not to be indexed (noindex)"
        assert notes["/copy"] == f"its canonical URL is {site.url}/f"
        assert set(Counter(site.paths()).values()) == {1}
        assert "/never" not in site.paths()
        assert "https://elsewhere.example/x".replace("https", "http") in (await desk.items(job))["/"]["data"]["links"]


@pytest.mark.spec("V12", "G3")
@pytest.mark.thorough
async def test_links_over_the_limit_of_a_visit_are_followed_by_further_visits(
    site: Site, sqlite_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index of 8 links and a sitemap of 5 URLs, in parts of 3 and 2: in one crawl, or in several if it is cut."""
    monkeypatch.setattr("floodmark.sources.web.responses.MOST_LINKS", 3)
    monkeypatch.setattr("floodmark.sources.web.sitemaps.MOST_ADDRESSES", 2)
    linked, listed = [f"/linked{n}" for n in range(8)], [f"/listed{n}" for n in range(5)]
    site.page("/", "Welcome", links=linked, has_etag=True)
    for path in (*linked, *listed):
        site.page(path, f"{path} {LONG}", has_etag=True)
    site.xml("/sitemap.xml", sitemap(f"{site.url}{path}" for path in listed))
    everything = {"/", *linked, *listed}
    async with working(site, sqlite_copy) as desk:
        job = await desk.job()
        first = await desk.run(job)
        assert await desk.collected(job) == everything
        assert Counter(site.paths())["/"] == 3
        assert Counter(site.paths())["/sitemap.xml"] == 3
        assert any("followed in parts of 3" in note for note in first.result["notes"])
        assert "rests" not in await desk.watermark(job)
        site.forget()
        await desk.run(job)
        assert Counter(site.paths())["/"] == 1, "an unchanged page is not read again for its links"

        site.page("/cut", "An index", links=linked, has_etag=True)
        cut = await desk.job(f"{site.url}/cut", max_pages=4, sitemaps=False)
        assert (await desk.run(cut)).state == "done"
        assert (await desk.watermark(cut))["rests"] == {f"{site.url}/cut": 3}
        for _ in range(8):
            await desk.run(cut)
        assert await desk.collected(cut) == {"/cut", *linked}


@pytest.mark.spec("B3")
@pytest.mark.thorough
async def test_a_sitemap_says_when_pages_were_changed_since_the_last_crawl(site: Site, url: str) -> None:
    old = datetime(2026, 1, 1, tzinfo=UTC)
    changed = {f"{site.url}/{name}": old for name in "abc"}
    site.xml("/sitemap.xml", sitemap(changed))
    for path in ("/", "/a", "/b", "/c"):
        site.page(path, f"This is {path}")
    async with working(site, url) as desk:
        job = await desk.job()
        await desk.run(job)
        assert {row["occurred_at"] for row in (await desk.items(job)).values()} == {None}, "old times teach nothing"

        now = datetime.now(UTC)
        changed |= {f"{site.url}/{name}": now for name in "acd"}
        changed[f"{site.url}/e"] = now + timedelta(days=1)
        site.xml("/sitemap.xml", sitemap(changed))
        for path in ("/a", "/b", "/d", "/e"):
            site.page(path, f"This is now {path}")
        second = await desk.run(job)

        assert second.result["summary"] == "visited 6, unchanged 2, new 2, changed 2"
        found = {path: (row["revision"], row["occurred_at"]) for path, row in (await desk.items(job)).items()}
        assert found == {
            "/": (1, None),
            "/a": (2, now),
            "/b": (2, None),
            "/c": (1, None),
            "/d": (1, now),
            "/e": (1, None),
        }


@pytest.mark.spec("B3")
@pytest.mark.thorough
async def test_pages_that_their_sitemap_reports_as_unchanged_are_not_requested(site: Site, url: str) -> None:
    old = datetime(2026, 1, 1, tzinfo=UTC)
    paths = [f"/{n}" for n in range(30)]
    changed = {f"{site.url}{path}": old for path in paths}
    site.xml("/sitemap.xml", sitemap_index([f"{site.url}/child.xml"]), has_etag=True)
    site.xml("/child.xml", sitemap(changed), has_etag=True)
    for path in ("/", "/unlisted", *paths):
        site.page(path, f"This is {path}", links=["/unlisted"] if path == "/" else [])
    async with working(site, url) as desk:
        job = await desk.job(trust_lastmod=True, concurrency=1)
        first = await desk.run(job)
        assert first.result["summary"] == "visited 32, new 32"

        site.forget()
        again = await desk.run(job)
        assert again.result["summary"] == "visited 2, unchanged 32"
        assert [path for path in site.paths() if path != "/robots.txt"] == [
            "/",
            "/sitemap.xml",
            "/child.xml",
            "/unlisted",
        ]

        site.page("/7", "This is another text")
        site.xml("/child.xml", sitemap({**changed, f"{site.url}/7": datetime.now(UTC)}), has_etag=True)
        site.forget()
        third = await desk.run(job)
        assert third.result["summary"] == "visited 3, unchanged 31, changed 1"
        assert {"/7", "/unlisted"} <= set(site.paths())
        assert "/8" not in site.paths()


@pytest.mark.spec("V12")
async def test_sitemaps_and_feeds_lead_to_pages(site: Site, sqlite_copy: str) -> None:
    site.robots(f"User-agent: *\nDisallow: /private\nSitemap: {site.url}/index.xml")
    site.xml("/index.xml", sitemap_index([f"{site.url}/one.xml", f"{site.url}/two.xml.gz"]))
    site.xml(
        "/one.xml", sitemap([f"{site.url}/a", f"{site.url}/private/b", "http://elsewhere.example/"]), has_etag=True
    )
    site.xml("/two.xml.gz", sitemap([f"{site.url}/c"]))
    site.xml("/feed", rss([Entry(id="1", link=f"{site.url}/d")]), content_type="application/rss+xml")
    site.page("/", "Welcome", head='<link rel="alternate" type="application/rss+xml" href="/feed">')
    for path in ("/a", "/private/b", "/c", "/d"):
        site.page(path, f"This is {path}", has_etag=True)
    async with working(site, sqlite_copy) as desk:
        job = await desk.job()
        assert (await desk.run(job)).result["summary"] == "visited 4, new 4"
        assert await desk.collected(job) == {"/", "/a", "/c", "/d"}
        assert not any(path.startswith("/private") for path in site.paths())
        site.forget()
        assert (await desk.run(job)).result["summary"] == "visited 4, unchanged 4"
        assert sorted(site.paths()) == sorted(["/index.xml", "/one.xml", "/two.xml.gz", "/feed", "/", "/a", "/c", "/d"])


@pytest.mark.spec("V12", "G6")
@pytest.mark.thorough
async def test_oddities_end_in_a_note_and_traps_have_an_end(site: Site, sqlite_copy: str) -> None:
    """Redirects and loops, soft 404, copies, bombs, bodies without end, wrong charsets, endless calendars."""
    paths = ["/moved", "/loop", "/soft", "/twin", "/bomb", "/endless", "/latin", "/none", "/outside", "/calendar/1"]
    site.page("/", LONG, links=[*paths, "/broken", "/forbidden"])
    site.always("/moved", redirect("/there"))
    site.page("/there", "Moved here")
    site.always("/loop", redirect("/pool"))
    site.always("/pool", redirect("/loop"))
    site.page("/soft", "Sorry", title="404 Not Found")
    site.put("/twin", site.page("/", LONG, links=[*paths, "/broken", "/forbidden"]).body)
    site.always("/bomb", bomb(megabytes=32))
    site.always("/endless", endless())
    site.put("/latin", "<title>Grüße</title><p>Grüße</p>".encode("latin-1"), content_type="text/html; charset=utf-8")
    nameless = "<!doctype html><title>Typ</title><p>Größe</p>".encode()
    site.always("/none", raw(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(nameless) + nameless))
    site.always("/outside", redirect("http://elsewhere.example/"))
    site.always("/broken", status(500))
    site.page("/forbidden", "Go away", status=403)
    for number in range(1, 30):
        site.page(f"/calendar/{number}", f"Month {number}", links=[f"/calendar/{number + 1}"])
    async with working(site, sqlite_copy, http_max_body_bytes=1024 * 1024, scheduler_cb_threshold=50) as desk:
        job = await desk.job(max_depth=3)
        ended = await desk.run(job)
        assert ended.state == "done"
        assert await desk.collected(job) == {
            *("/", "/there", "/latin", "/none", "/calendar/1", "/calendar/2", "/calendar/3")
        }
        found = await desk.items(job)
        assert found["/latin"]["data"]["text"] == "Grüße"
        assert found["/none"]["data"]["text"] == "Größe"
        notes = await desk.notes(job)
        assert notes["/moved"] == f"redirects to {site.url}/there"
        assert notes["/pool"] == f"redirects on to {site.url}/loop"
        assert notes["/twin"] == f"the same as {site.url}/"
        assert notes["/soft"].startswith("says that it was not found")
        assert notes["/outside"] == "redirects to http://elsewhere.example/"
        assert notes["/broken"] == "127.0.0.1 answers with status 500"
        assert notes["/forbidden"] == "answers with status 403"
        assert "larger than" in notes["/bomb"]
        assert "larger than" in notes["/endless"]
        assert set(ended.result["troubles"]) == {
            f"{site.url}{path}" for path in ("/bomb", "/endless", "/broken", "/soft")
        }


@pytest.mark.spec("V12", "G6")
@pytest.mark.thorough
async def test_answers_that_are_too_slow_or_too_much_cost_one_page(site: Site, sqlite_copy: str) -> None:
    site.page("/", "Welcome", links=["/drip", "/flood", "/line", "/good"])
    site.always("/drip", drip())
    site.always("/flood", header_flood(100, 1000))
    site.always("/line", header_flood(1, 100_000))
    site.page("/good", "Good")
    async with working(site, sqlite_copy, http_timeout="6s", retry_max_attempts=1) as desk:
        job = await desk.job()
        ended = await desk.run(job)
        assert ended.result["summary"] == "visited 5, new 2, failed 3"
        notes = await desk.notes(job)
        assert "too slowly" in notes["/drip"]
        assert "headers of 127.0.0.1 are larger than 32 KB" in notes["/flood"]
        assert "headers of 127.0.0.1 are too large" in notes["/line"]


@pytest.mark.spec("V12")
async def test_each_host_of_a_site_is_asked_for_its_own_rules(site: Site, sqlite_copy: str) -> None:
    """Where the start leads to another host of the site, that one's robots.txt and sitemap count."""
    site.always("/", redirect(site.at("www.a.test", "/")), host="a.test")
    site.robots(f"User-agent: *\nDisallow: /no\nSitemap: {site.at('www.a.test', '/map.xml')}", host="www.a.test")
    site.page("/", "Welcome", links=["/no", "/yes"], host="www.a.test")
    site.xml("/map.xml", sitemap([site.at("www.a.test", "/listed")]), host="www.a.test")
    for path in ("/no", "/yes", "/listed"):
        site.page(path, f"This is {path}", host="www.a.test")
    settings: dict[str, Any] = {**site.settings("a.test", "www.a.test"), "web_robots_ttl": timedelta()}
    async with working(site, sqlite_copy, **settings) as desk:
        job = await desk.job(site.at("a.test", "/"))
        await desk.run(job)
        kept = {path.removeprefix(site.at("www.a.test")) for path in await desk.collected(job)}
        assert kept == {"/", "/yes", "/listed"}
        assert "/no" not in site.paths()

        # One that cannot say is left alone, without a word to the pages of others.
        site.always("/robots.txt", status(500), host="www.a.test")
        again = await desk.run(job)
        assert again.result["visited"] == 1
        assert set(again.result["troubles"].values()) == {
            "robots.txt cannot be fetched: www.a.test answers with status 500"
        }


@pytest.mark.spec("V12", "G6")
@pytest.mark.thorough
async def test_redirects_that_lead_elsewhere_each_time_do_not_pile_up(site: Site, sqlite_copy: str) -> None:
    site.page("/", "Welcome", links=["/trap", "/old"], has_etag=True)
    site.always("/trap*", redirect("/trap?{n}"))
    site.always("/old", redirect("/newer"))
    site.always("/newer", redirect("/newest"))
    site.page("/newest", "News", has_etag=True)
    async with working(site, sqlite_copy) as desk:
        job = await desk.job(max_depth=4)
        await desk.run(job)
        # The two that are linked, three new steps of the trap, and what the other one leads to.
        assert [(await desk.run(job)).result["summary"] for _ in range(6)] == ["visited 8, unchanged 2, skipped 6"] * 6
        # A step that is led to still, and is a page now.
        site.page("/newer", "This is it")
        assert (await desk.run(job)).result["new"] == 1
        assert await desk.collected(job) == {"/", "/newer", "/newest"}


@pytest.mark.spec("V12", "G3")
async def test_what_a_crawl_left_out_is_collected_when_the_reason_is_gone(site: Site, sqlite_copy: str) -> None:
    """Although the pages in question have not changed: a copy of one that has, and what is wanted only now."""
    site.page("/", "Welcome", links=["/one", "/two"], has_etag=True)
    site.page("/one", LONG, title="Same", links=["/news/1"], has_etag=True)
    site.put("/two", site.page("/one", LONG, title="Same", links=["/news/1"], has_etag=True).body, has_etag=True)
    site.page("/news/1", "News", has_etag=True)
    async with working(site, sqlite_copy) as desk:
        job = await desk.job(exclude=["/news/**"], concurrency=1)
        await desk.run(job)
        assert await desk.collected(job) == {"/", "/one"}
        site.page("/one", f"Another text. {LONG}", title="Not the same", links=["/news/1"], has_etag=True)
        await desk.run(job)
        assert await desk.collected(job) == {"/", "/one", "/two"}

        await desk.operations.change_job(job.name, {"params": {"concurrency": 1}})
        wider = await desk.run(job)
        assert (wider.result["new"], wider.result["unchanged"]) == (1, 3)
        assert "/news/1" in await desk.collected(job)
        # From then on unchanged pages are asked for in short again.
        site.forget()
        assert (await desk.run(job)).result["summary"] == "visited 4, unchanged 4"
        assert all("If-None-Match" in seen.headers for seen in site.seen if seen.path in {"/", "/one", "/news/1"})
        await desk.operations.reset_watermark(job.stream)
        site.forget()
        assert (await desk.run(job)).result["summary"] == "visited 4, unchanged 4"
        assert not any("If-None-Match" in seen.headers for seen in site.seen)


@pytest.mark.spec("V12")
async def test_patterns_and_numbers_bound_a_crawl(site: Site, sqlite_copy: str) -> None:
    site.page("/", "Welcome", links=[f"/news/{n}" for n in range(20)] + ["/about", "/news/print"])
    for n in range(20):
        site.page(f"/news/{n}", f"News {n}")
    site.page("/news/print", "Print")
    site.page("/about", "About")
    async with working(site, sqlite_copy) as desk:
        job = await desk.job(include=["/news/*"], exclude=["**/print"], max_pages=6, sitemaps=False)
        first = await desk.run(job)
        assert first.result["stopped"] == "at max_pages=6"
        assert first.result["notes"] == ["stopped at max_pages=6: the next crawls continue with the rest"]
        assert len(await desk.collected(job)) == 5
        assert not {"/about", "/news/print"} & set(site.paths())
        assert (await desk.notes(job))["/"] == "matches no pattern; read only for its links"
        # Half of the pages are new, the others are looked at again: neither is forgotten.
        second = await desk.run(job)
        assert (second.result["visited"], second.result["new"]) == (6, 3)


@pytest.mark.spec("V12", "G5")
@pytest.mark.thorough
async def test_what_robots_txt_asks_for_is_done(site: Site, sqlite_copy: str) -> None:
    """Its delay holds between two requests; one that is long holds no slot."""
    site.robots("User-agent: floodmark\nCrawl-delay: 0.5\nDisallow: /no")
    site.page("/", "Welcome", links=["/a", "/b", "/no"])
    site.page("/a", "A")
    site.page("/b", "B")
    async with working(site, sqlite_copy, web_robots_ttl=timedelta()) as desk:
        job = await desk.job(sitemaps=False)
        await desk.run(job)
        times = [seen.at for seen in site.seen if seen.path in {"/", "/a", "/b"}]
        # Twice half a second by our clock; requests take a while to arrive.
        assert times[-1] - times[0] > 0.5
        assert "/no" not in site.paths()

        site.robots("User-agent: *\nCrawl-delay: 600")
        site.forget()
        execution = await desk.reaches(await desk.ask(job), "waiting")
        assert execution.reason == f"127.0.0.1:{site.port} asks for 10 min between two pages"
        assert site.paths() == ["/robots.txt", "/"]
        assert (await desk.watermark(job))["visited"] == 1


@pytest.mark.spec("V12", "G5", "V5")
@pytest.mark.thorough
async def test_a_site_that_asks_to_wait_is_left_alone_and_then_gone_on_with(site: Site, sqlite_copy: str) -> None:
    site.page("/", "Welcome", links=[f"/{n}" for n in range(12)])
    for n in range(12):
        site.page(f"/{n}", f"Page {n}")
    site.always("/3", status(500))
    site.trouble("/7", status(429, retry_after="5"))
    site.always("/9", status(429, retry_after="1"))
    async with working(site, sqlite_copy, retry_max_attempts=1) as desk:
        job = await desk.job(concurrency=1)
        execution = await desk.ask(job)
        waiting = await desk.reaches(execution, "waiting")
        assert "127.0.0.1 answers with status 429" in str(waiting.reason)
        assert "status 429" in (await desk.operations.explain(job.name)).sentence
        assert not (await desk.watermark(job))["complete"]
        ended = await desk.reaches(execution, "done")
        assert ended.attempt == 1
        assert ended.result["summary"] == "visited 12, new 11, failed 2"
        # Those of the first slice too.
        assert ended.result["troubles"] == {
            f"{site.url}/3": "127.0.0.1 answers with status 500",
            f"{site.url}/9": "rate-limited 3 times",
        }
        assert ended.result["notes"] == ["pages that could not be read: 2 (see troubles)"]
        assert ended.started_at is not None
        assert ended.completed_at is not None
        last = (ended.completed_at - ended.started_at).total_seconds()
        assert (ended.duration_seconds or 0) > last, "the time of all slices, not of the last"
        asked = Counter(site.paths())
        assert {path: count for path, count in asked.items() if count > 1} == {"/7": 2, "/9": 3}


@pytest.mark.spec("V5", "G5")
@pytest.mark.thorough
async def test_a_site_in_trouble_opens_its_breaker_and_is_crawled_to_the_end_later(
    site: Site, sqlite_copy: str
) -> None:
    site.page("/", "Welcome", links=[f"/{n}" for n in range(10)])
    for n in range(10):
        site.page(f"/{n}", f"Page {n}")
        site.trouble(f"/{n}", status(503), times=2)
    async with working(site, sqlite_copy, scheduler_cb_threshold=3, scheduler_cb_timeout="5s") as desk:
        job = await desk.job(concurrency=2)
        execution = await desk.ask(job)
        waiting = await desk.reaches(execution, "waiting")
        assert f"breaker web:127.0.0.1:{site.port} is open" in str(waiting.reason)
        site.calm()
        ended = await desk.reaches(execution, "done")
        assert ended.result["visited"] == 11
        assert ended.result["new"] + ended.result["failed"] == 11
        assert (await desk.run(job)).result["failed"] == 0
        assert len(await desk.collected(job)) == 11


@pytest.mark.spec("G9")
@pytest.mark.thorough
async def test_a_site_of_which_nothing_can_be_read_has_failed(site: Site, sqlite_copy: str) -> None:
    site.always("/away", redirect("https://elsewhere.example/"))
    async with working(site, sqlite_copy, scheduler_cb_threshold=50) as desk:
        ended = await desk.run(await desk.job())
        assert ended.state == "dead"
        assert str(ended.error_message).startswith(f"{site.url}/: not found (status 404). See the response with: ")
        ended = await desk.run(await desk.job(f"{site.url}/away"))
        assert f"{site.url}/away: redirects to https://elsewhere.example/" in str(ended.error_message)
    site.always("/robots.txt", status(500))
    site.forget()
    async with working(site, sqlite_copy, scheduler_cb_threshold=50) as desk:
        ended = await desk.run(await desk.job(f"{site.url}/unsaid"))
        assert "answers with status 500" in str(ended.error_message)
        assert set(site.paths()) == {"/robots.txt"}
        with pytest.raises(InvalidInput, match=r"10\.0\.0\.1 is not a public address"):
            await desk.job("http://10.0.0.1/")


@pytest.mark.spec("G5")
@pytest.mark.thorough
async def test_a_long_crawl_makes_room_for_others(
    site: Site, sqlite_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is put off at the cost of no attempt, so that neither its time-out nor other jobs suffer from its length."""
    monkeypatch.setattr("floodmark.sources.web.crawl.TURN_SECONDS", 0.0)
    # It waits for a second after each page: one of these waits is seen.
    site.page("/", "Welcome", links=["/0", "/1", "/2"])
    for n in range(3):
        site.page(f"/{n}", f"Page {n}")
    async with working(site, sqlite_copy) as desk:
        execution = await desk.ask(await desk.job(concurrency=1, sitemaps=False))
        waiting = await desk.reaches(execution, "waiting")
        assert waiting.reason == "a long crawl lets other jobs run and resumes soon"
        ended = await desk.reaches(execution, "done")
        assert (ended.attempt, ended.result["summary"]) == (1, "visited 4, new 4")


@pytest.mark.spec("G7")
@pytest.mark.thorough
async def test_a_worker_that_leaves_keeps_what_it_has_seen(site: Site, sqlite_copy: str) -> None:
    # Too many to visit all of them before it has left, even on a busy machine.
    pages = 200
    site.page("/", "Welcome", links=[f"/{n}" for n in range(pages)])
    for n in range(pages):
        body = site.page(f"/{n}", f"Page {n}").body.decode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n"
        site.trouble(f"/{n}", slow(0.1, raw((head + body).encode())))
    async with working(site, sqlite_copy, shutdown_grace=timedelta(seconds=2)) as desk:
        execution = await desk.ask(await desk.job(concurrency=2))
        await eventually(lambda: len(site.seen) > 8)
    before = len(site.seen)
    site.calm()
    async with working(site, sqlite_copy) as desk:
        ended = await desk.reaches(execution, "done")
        assert ended.result["summary"] == f"visited {pages + 1}, new {pages + 1}"
    twice = [path for path, count in Counter(site.paths()).items() if count > 1 and path != "/robots.txt"]
    assert before < pages
    # Those in flight when it left.
    assert len(twice) <= 2


@pytest.mark.spec("V12", "G9")
async def test_pages_and_lists_without_content_are_named_in_the_outcome(site: Site, sqlite_copy: str) -> None:
    """Text that comes only with JavaScript, frames, broken sitemaps: nothing of it passes for a page that was read."""
    app = (
        "<title>App</title><body><div id=root></div><script src=/app.js></script><noscript>Enable JavaScript</noscript>"
    )
    site.robots(f"Sitemap: {site.url}/broken.xml\nSitemap: {site.url}/bare.xml\nSitemap: {site.url}/none.xml")
    site.xml("/broken.xml", "<urlset><nothing>")
    site.xml("/bare.xml", f"<urlset><url><loc>{site.url}/?a=1&b=2</loc></url><url><loc>{site.url}/cut</loc></url><url>")
    site.put("/app", app, has_etag=True)
    site.put("/app/2", app)
    site.put("/frames", "<title>F</title><frameset><frame src=/framed><frame src=/framed#2></frameset>")
    site.page("/framed", "In a frame")
    site.page("/cut", "Listed before the cut")
    site.page("/?a=1&b=2", "Listed with a bare ampersand")
    site.page("/", "Welcome", links=["/app", "/app/2", "/frames"])
    async with working(site, sqlite_copy) as desk:
        job = await desk.job(concurrency=1)
        ended = await desk.run(job)
        assert await desk.collected(job) == {"/", "/framed", "/cut", "/?a=1&b=2"}
        script = "shows its text only after JavaScript has run: crawl it with --render"
        notes = ended.result["notes"]
        assert f"2 pages, such as {site.url}/app: {script}" in notes
        assert f"{site.url}/frames: is a frameset: its text is in the pages of its frames" in notes
        assert any(note.startswith(f"{site.url}/broken.xml: this sitemap cannot be read: ") for note in notes)
        assert any(note.startswith(f"{site.url}/bare.xml: this sitemap is not well-formed") for note in notes)
        assert f"{site.url}/none.xml: this sitemap not found (status 404)" in notes
        # Unchanged, and no more to read than before.
        assert f"2 pages, such as {site.url}/app: {script}" in (await desk.run(job)).result["notes"]
        alone = await desk.run(await desk.job(f"{site.url}/app/2", sitemaps=False))
        assert (alone.state, script in str(alone.error_message)) == ("dead", True)
