"""Jobs for sites and feeds, as they are typed and as they are posted, and one look at an address beforehand."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from api.serving import served
from command_line import CommandLine
from floodmark import Floodmark
from floodmark.settings import Settings, keys
from floodmark.testing.web import Entry, Site, redirect, rss

pytest_plugins = ("backends",)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as site:
        site.robots("User-agent: *\nDisallow: /private\nCrawl-delay: 2")
        site.page("/", "Ships come and go.", title="Harbour", links=["/a", "https://elsewhere.example/"])
        site.always("/old", redirect("/", 301))
        yesterday = datetime.now(UTC) - timedelta(days=1)
        site.xml("/feed", rss([Entry(id="1", link="/a", title="A ship has come", at=yesterday)], title="Ships"))
        yield site


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    for key in keys():
        monkeypatch.delenv(key, raising=False)
    monkeypatch.chdir(tmp_path)
    return CommandLine(tmp_path, HTTP_ALLOW_HOSTS="127.0.0.1")


@pytest.mark.spec("V12", "G9")
async def test_an_address_is_tried_before_it_is_added(site: Site, cli: CommandLine) -> None:
    async def tried(path: str, *options: str) -> str:
        return (await asyncio.to_thread(cli.good, "try", f"{site.url}{path}", *options)).out

    page = await tried("/old")
    assert "Ships come and go." in page
    assert "2, 1 of them to pages of the same site" in page
    assert "with 2 s between requests" in page
    assert f"floodmark add web {site.url}/ --every 1h" in page
    feed = await tried("/feed")
    assert "A ship has come" in feed
    assert "1 d ago" in feed
    assert f"floodmark add feed {site.url}/feed --every 15m" in feed
    site.forget()
    assert "disallows it: nothing was fetched" in await tried("/private")
    assert site.paths() == ["/robots.txt"]
    assert "not found (status 404)" in await tried("/private", "--ignore-robots")
    told = await asyncio.to_thread(cli.good, "try", f"{site.url}/", "--json")
    assert told.json["items"][0]["text"] == "Harbour\nShips come and go."
    await asyncio.to_thread(cli.refused, "try", "http://10.0.0.1/", says="is not a public address", code=1)
    assert not (cli.folder / ".floodmark").exists(), "something was stored"


@pytest.mark.spec("B10")
@pytest.mark.thorough
async def test_targets_are_recognised_before_they_are_added(site: Site, cli: CommandLine) -> None:
    targets = [f"{site.url}/feed", "@example_news", "not a target"]
    shown = (await asyncio.to_thread(cli.good, "preview", *targets)).out
    assert f"feed {site.url}/feed" in shown
    assert "A ship has come" in shown
    assert "telegram @example_news" in shown
    assert "No Telegram account is set up yet" in shown
    assert "'not a target' is not a target of any source" in shown
    await asyncio.to_thread(cli.refused, "preview", "not a target", says="is not a target of any source")
    told = await asyncio.to_thread(cli.good, "preview", f"{site.url}/", "--source", "cookies", "--json")
    assert [found["source"] for found in told.json] == ["cookies"]
    assert not (cli.folder / ".floodmark").exists(), "something was stored"


@pytest.mark.spec("V12", "G9")
def test_sites_and_feeds_are_added_in_their_one_form(cli: CommandLine) -> None:
    words = ["--include", "/news/**", "--max-pages", "50", "--delay", "2s", "--no-feeds"]
    made = cli.good("add", "web", "Example.COM/news/?utm_source=x", "--every", "1h", *words, "--json").json
    assert (made["target"], made["name"]) == ("https://example.com/news/", "web-example-com-news")
    assert made["params"] == {"include": ["/news/**"], "max_pages": 50, "delay": "2s", "feeds": False}
    feed = cli.good("add", "feed", "https://example.com/feed.xml", "--json").json
    assert (feed["source"], feed["target"]) == ("feed", "https://example.com/feed.xml")

    cli.refused("add", "web", "https://example.com/news/", says="web-example-com-news already collects")
    cli.refused("add", "web", "javascript:alert(1)", says="is not the URL of a page")
    cli.refused("add", "web", "https://a.example", "--include", "news", says="matches no path")
    cli.refused("add", "web", "https://a.example", "--robots", "perhaps", says="is not known")
    cli.refused("add", "web", "https://a.example", "--max-depth", "1000", says="is not a number from 0 to 100")
    cli.refused("add", "web", "https://a.example", "--delay", "2d", says="is too long")


@pytest.mark.spec("V12", "G9")
@pytest.mark.parametrize("kind", ["web", "feed"])
def test_a_private_address_is_refused_at_once(cli: CommandLine, kind: str) -> None:
    refused = cli.refused("add", kind, "http://10.0.0.1/", says="10.0.0.1 is not a public address")
    assert "HTTP_ALLOW_HOSTS=10.0.0.1" in refused.err
    assert cli.good("ls", "--json").json == []

    cli.good("add", kind, "http://10.0.0.1/", "--set", "HTTP_ALLOW_HOSTS=10.0.0.1")


@pytest.mark.spec("V7", "V8", "V12")
async def test_sites_and_feeds_are_posted_like_any_job(sqlite_copy: str) -> None:
    app = Floodmark(Settings(database_url=sqlite_copy))
    async with app.open() as resources, served(resources, sources=app.sources()) as api:

        async def post(**columns: Any) -> httpx2.Response:
            return await api.post("jobs", json={"interval_seconds": 3600, **columns})

        made = await post(url="http://Example.com/a/../news", source_id="7", params={"max_pages": 10})
        assert made.status_code == 201, made.text
        assert (made.json()["source"], made.json()["target"]) == ("web", "http://example.com/news")
        assert (await post(source="feed", target="example.com/feed")).json()["target"] == "https://example.com/feed"
        refused = await post(source="web", target="https://example.com/", params={"max_pages": "many"})
        assert refused.status_code == 400
        assert "max_pages 'many' is not a number" in refused.text
        assert (await post(source="feed", target="file:///etc/passwd")).status_code == 400
