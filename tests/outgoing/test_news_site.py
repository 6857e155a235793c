"""The site that people try a crawl with: everything it promises is there, and it changes."""

import gzip
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from command_line import CommandLine
from floodmark.errors import Permanent, Unavailable
from floodmark.outbound.client import Http, HttpAnswer
from floodmark.outbound.guard import Guard
from floodmark.testing.web import Site
from floodmark.testing.web.news_site import NewsSite, SitePlan

pytestmark = pytest.mark.spec("V12")


@pytest.fixture
async def town() -> AsyncIterator[NewsSite]:
    async with Site() as site:
        town = NewsSite(site, SitePlan(pages=45))
        town.build()
        yield town


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    async with Http(Guard(["127.0.0.1"]), user_agent="test") as http:
        yield http


async def test_every_page_is_where_the_lists_say(town: NewsSite, http: Http) -> None:
    async def get(path: str) -> HttpAnswer:
        answer = await http.get(town.site.url + path)
        assert answer.status == 200, path
        return answer

    index = (await get("/sitemap.xml")).body
    listed = [await get(path) for path in ("/sitemap-1.xml", "/sitemap-2.xml.gz")]
    assert all(path.encode() in index for path in ("/sitemap-1.xml", "/sitemap-2.xml.gz"))
    maps = [listed[0].body, gzip.decompress(listed[1].body)]
    articles = [path for each in maps for path in re.findall(r"/articles/\d+", each.decode())]
    assert articles == [f"/articles/{number}" for number in range(1, 46)]
    for path in (*articles, "/", "/sections/0", "/sections/2", "/robots.txt", "/feed.xml", "/atom.xml"):
        await get(path)
    kinds = [("ETag" in (await get(f"/articles/{n}")).headers, n % 3 == 0) for n in (3, 4, 5)]
    assert all(has == wanted for has, wanted in kinds)


async def test_its_oddities_are_as_odd_as_they_say(town: NewsSite, http: Http) -> None:
    at = f"{town.site.url}/oddities"
    page = (await http.get(f"{at}/")).body.decode()
    links = re.findall(r'href="([^"]+)"', page)
    assert len(links) >= 25
    statuses: dict[int, int] = {}
    for link in links:
        if link.startswith(("mailto:", "#")):
            continue
        try:
            status = (await http.get(f"{at}/{link}" if link[0] not in "/." else f"{at}/../{link.lstrip('/.')}")).status
        except Permanent:
            status = 0
        statuses[status] = statuses.get(status, 0) + 1
    # A circle, a way that never ends and one to a private address; what is gone, broken, forbidden and never was.
    assert {code: statuses[code] for code in (0, 403, 404, 410, 500)} == {0: 3, 403: 1, 404: 1, 410: 1, 500: 1}


async def test_its_articles_change_and_go(town: NewsSite, http: Http) -> None:
    before = {page: town.site.pages[page].body for page in town.site.pages}
    for _ in range(60):
        town.change()
    after = town.site.pages
    assert any(page in after and after[page].body != before[page] for page in before if "/articles/" in page[1])
    assert any(page not in after for page in before)
    assert town.changes == 60
    town.respond_busy()
    assert (await http.get(f"{town.site.url}/articles/1")).status == 429
    assert (await http.get(f"{town.site.url}/articles/1")).status in (200, 404)


def test_the_command_says_what_to_type_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = CommandLine(tmp_path).good("testing", "web", "--pages", "3", "--seconds", "0").out
    assert "with 3 articles" in said
    assert re.search(r"floodmark add web http://127\.0\.0\.1:\d+/ --every 30s", said)
    assert "0 requests, 0 changes" in said


async def test_a_port_that_is_taken_is_told(town: NewsSite) -> None:
    with pytest.raises(Unavailable, match=f"port {town.site.port} is not available: Address already in use"):
        await Site(port=town.site.port).__aenter__()
