"""What is taken from pages: matches of selectors, main text, PDF text; and which pages are visited."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from command_line import CommandLine
from floodmark.model.execution import Execution
from floodmark.model.notes import notes_of
from floodmark.settings import keys
from floodmark.testing.web import Site, sitemap
from pdf_files import make_pdf
from web_desk import LONG, working

pytest_plugins = ("backends",)

PRICES = ["name=td:nth-child(1)", "price:number=td:nth-child(2)", "link:url=a"]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as site:
        yield site


@pytest.fixture(params=["sqlite_copy", "pg_clean"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def put_prices(site: Site, prices: dict[str, str], path: str = "/") -> None:
    rows = "".join(
        f"<tr><td><a href='/p/{name}'>{name}</a></td><td>{price}</td></tr>" for name, price in prices.items()
    )
    site.page(path, body=f"<table class=prices><tr><th>Name</th><th>Price</th></tr>{rows}</table>", has_etag=True)


@pytest.mark.spec("B15")
@pytest.mark.thorough
async def test_each_row_of_a_table_is_an_item_with_a_stable_key(site: Site, url: str) -> None:
    put_prices(site, {"Apple": "1,299.50 $", "Pear": "3 $", "Plum": "on request"})
    async with working(site, url) as desk:
        job = await desk.job(select="table.prices tr", fields=PRICES, max_pages=1)
        first = await desk.run(job)
        found = await desk.items(job)
        assert set(found) == {"/#Apple", "/#Pear", "/#Plum"}
        apple = found["/#Apple"]["data"]
        assert (apple["name"], apple["price"]) == ("Apple", 1299.5)
        assert (apple["link"], apple["url"]) == (f"{site.url}/p/Apple", f"{site.url}/")
        assert found["/#Plum"]["data"]["price"] is None
        assert any("values of price that are not of the type number, such as 'on request'" in n for n in notes(first))

        again = await desk.run(job)
        assert again.result["summary"] == "visited 1, unchanged 1"

        put_prices(site, {"Pear": "4 $", "Apple": "1,299.50 $", "Cherry": "9 $"})
        await desk.run(job)
        found = await desk.items(job)
        assert (found["/#Pear"]["revision"], found["/#Pear"]["data"]["price"]) == (2, 4.0)
        assert found["/#Apple"]["revision"] == 1, "its place on the page does not matter"
        assert found["/#Plum"]["deleted"]
        assert found["/#Plum"]["data"]["name"] == "Plum"
        assert await desk.collected(job) == {"/#Apple", "/#Pear", "/#Cherry"}


@pytest.mark.spec("B15")
@pytest.mark.thorough
async def test_matches_are_gone_when_their_page_has_none_twice(site: Site, url: str) -> None:
    """A page without matches may have been redesigned, and a page that is missing once may come back."""
    put_prices(site, {"Apple": "1"}, "/redesigned")
    put_prices(site, {"Pear": "2"}, "/removed")
    site.page("/", "Prices", links=["/redesigned", "/removed"])
    async with working(site, url) as desk:
        job = await desk.job(select="//table//tr", fields=["name=td[1]", "price:int=td[2]"], exclude=["/p/**"])
        first = await desk.run(job)
        assert await desk.collected(job) == {"/redesigned#Apple", "/removed#Pear"}
        assert f"{site.url}/: no part of it matches the selector" in notes(first)
        site.page("/redesigned", "Everything is new.")
        site.remove("/removed")
        second = await desk.run(job)
        assert second.result["missing"] == 2
        assert await desk.collected(job) == {"/redesigned#Apple", "/removed#Pear"}
        third = await desk.run(job)
        assert third.result["gone"] == 2
        assert await desk.collected(job) == set()
        put_prices(site, {"Apple": "3"}, "/redesigned")
        await desk.run(job)
        assert await desk.collected(job) == {"/redesigned#Apple"}


@pytest.mark.spec("B15")
@pytest.mark.thorough
async def test_objects_of_json_are_items_by_jsonpath(site: Site, sqlite_copy: str) -> None:
    objects = '{"id": 7, "price": "2.50", "tags": ["a", "b"]}, {"id": 8, "price": 3}, {"price": 1}'
    site.put("/", f'{{"items": [{objects}]}}', content_type="application/json")
    site.put("/all.json", '{"items": [{"id": 9, "nested": {"deep": [1]}}]}', content_type="application/json")
    async with working(site, sqlite_copy) as desk:
        job = await desk.job(select="$.items[*]", fields=["id:int=id", "price:number=$.price", "tags:texts=tags"])
        run = await desk.run(job)
        found = {path: row["data"] for path, row in (await desk.items(job)).items()}
        assert {path: (row["price"], row["tags"]) for path, row in found.items()} == {
            "/#7": (2.5, ["a", "b"]),
            "/#8": (3.0, None),
        }
        assert f"{site.url}/: has matches without a value of the key (id), which are left out" in notes(run)
        whole = await desk.job(f"{site.url}/all.json", select="$.items[*]", key_fields="id")
        await desk.run(whole)
        assert (await desk.items(whole))["/all.json#9"]["data"]["nested"] == {"deep": [1]}
        site.put("/", "{broken", content_type="application/json")
        await desk.run(job)
        assert (await desk.notes(job))["/"].startswith("is not valid JSON")


@pytest.mark.spec("B15")
@pytest.mark.thorough
async def test_ignored_parts_make_no_revision_and_their_links_are_followed(site: Site, sqlite_copy: str) -> None:
    def put(clock: str, text: str) -> None:
        site.page("/", text, body=f"<div class=clock>It is {clock}. <i class=clock>now</i> <a href=/a>a</a></div>")

    put("12:00", LONG)
    site.page("/a", "Another page")
    async with working(site, sqlite_copy) as desk:
        job = await desk.job(ignore=[".clock", "title"])
        await desk.run(job)
        data = (await desk.items(job))["/"]["data"]
        assert "It is" not in data["text"]
        assert data["title"] == "Page /", "the heading, as the title is ignored"
        put("12:01", LONG)
        assert (await desk.run(job)).result["summary"] == "visited 2, unchanged 2"
        put("12:02", f"New. {LONG}")
        assert (await desk.run(job)).result["summary"] == "visited 2, unchanged 1, changed 1"


@pytest.mark.spec("B15")
@pytest.mark.thorough
async def test_articles_are_extracted_and_pdf_documents_are_read(site: Site, sqlite_copy: str) -> None:
    body = f"<p>{LONG}</p><p>{LONG}</p><div class=related-links><ul><li><a href=/b>Read on</a></li></ul></div>"
    site.page("/", body=f"<article>{body}</article>", links=["/doc.pdf", "/scan.pdf", "/broken.pdf", "/book"])
    pdf = {"content_type": "application/pdf"}
    site.put("/doc.pdf", make_pdf("Ships come\nand go.", "Second page", title="Harbour", author="Ann"), **pdf)
    site.put("/scan.pdf", make_pdf("", ""), **pdf)
    site.put("/broken.pdf", b"%PDF-1.4\nbroken", **pdf)
    site.put("/book", make_pdf("Without an extension"), content_type="application/octet-stream")
    async with working(site, sqlite_copy) as desk:
        job = await desk.job(extractor="trafilatura", pdf=True)
        await desk.run(job)
        found = {path: row["data"] for path, row in (await desk.items(job)).items()}
        assert set(found) == {"/", "/doc.pdf", "/book"}
        assert LONG.strip() in found["/"]["text"]
        assert "Read on" not in found["/"]["text"]
        doc = found["/doc.pdf"]
        assert (doc["title"], doc["author"], doc["pages"]) == ("Harbour", "Ann", 2)
        assert doc["text"] == "Ships come\nand go.\nSecond page"
        assert doc["published"] == "2026-06-01T08:00:00+00:00"
        assert found["/book"]["title"] == "book"
        notes = await desk.notes(job)
        assert notes["/scan.pdf"] == "is a PDF document without text, probably scanned"
        assert notes["/broken.pdf"].startswith("is a broken PDF document")


@pytest.mark.spec("B15")
async def test_only_pages_of_sitemaps_are_visited(site: Site, sqlite_copy: str) -> None:
    site.xml("/sitemap.xml", sitemap([f"{site.url}/a", f"{site.url}/old"]))
    site.page("/", "Welcome", links=["/linked"])
    site.page("/a", "Listed", links=["/linked"])
    site.page("/linked", "Linked only")
    async with working(site, sqlite_copy) as desk:
        job = await desk.job(sitemap_only=True)
        await desk.run(job)
        assert await desk.collected(job) == {"/a"}
        assert "/" not in site.paths()
        site.xml("/other.xml", sitemap([f"{site.url}/linked"]))
        other = await desk.job(f"{site.url}/other.xml", sitemap_only=True)
        await desk.run(other)
        assert await desk.collected(other) == {"/linked"}
        site.remove("/other.xml")
        none = await desk.job(f"{site.url}/none.xml", sitemap_only=True)
        failed = await desk.run(none)
        assert failed.state == "dead"
        assert "its sitemaps list no pages" in str(failed.error_message)


@pytest.mark.spec("B15")
@pytest.mark.thorough
async def test_subdomains_belong_to_the_site_if_wanted(site: Site, sqlite_copy: str) -> None:
    hosts = ("news.example", "sport.news.example", "badnews.example")
    for host in hosts:
        others = [site.at(other, "/") for other in hosts if other != host]
        site.page("/", f"This is {host}", links=others, host=host)
    settings: dict[str, Any] = {**site.settings(*hosts)}
    async with working(site, sqlite_copy, **settings) as desk:
        alone = await desk.job(site.at("sport.news.example", "/"))
        await desk.run(alone)
        assert await desk.collected(alone) == {site.at("sport.news.example", "/")}
        everything = await desk.job(site.at("news.example", "/"), subdomains=True)
        await desk.run(everything)
        assert await desk.collected(everything) == {site.at(host, "/") for host in hosts[:2]}


@pytest.mark.spec("B15")
@pytest.mark.thorough
async def test_selectors_are_tried_and_typed_as_options(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in keys():
        monkeypatch.delenv(key, raising=False)
    monkeypatch.chdir(tmp_path)
    cli = CommandLine(tmp_path, HTTP_ALLOW_HOSTS="127.0.0.1")
    put_prices(site, {"Apple": "1,299.50 $", "Pear": "on request"})
    options = ["--select", "table.prices tr", *(word for field in PRICES for word in ("--field", field))]
    tried = (await asyncio.to_thread(cli.good, "try", f"{site.url}/", *options)).out
    assert "1299.5" in tried
    assert "values of price that are not of the type number, such as 'on request'" in tried
    options += ["--key", "name", "--ignore", ".clock", "--max-pages", "1"]
    await asyncio.to_thread(cli.good, "add", "web", f"{site.url}/", *options)
    shown = (await asyncio.to_thread(cli.good, "ls", "--json")).json[0]["params"]
    assert shown["fields"] == PRICES
    assert shown["key_fields"] == "name"
    for words, says in (
        (["--select", "table["], "is not valid CSS"),
        (["--select", "//table["], "is not valid XPath"),
        (["--select", "$.items["], "is not valid JSONPath"),
        (["--field", "a=b"], "fields need a selector"),
        (["--select", "tr", "--field", "a"], "is not NAME[:TYPE]=SELECTOR"),
        (["--select", "tr", "--field", "a:money=b"], "unknown type 'money'"),
        (["--select", "tr", "--field", "url=b"], "cannot be called 'url'"),
        (["--select", "tr", "--field", "a=b", "--key", "c"], "which is not a field"),
        (["--select", "tr", "--extractor", "trafilatura"], "leave one of them out"),
        (["--extractor", "magic"], "'magic' is not known"),
        (["--header", "Authorization: Bearer abc"], "would be stored for everyone to read"),
        (["--header", "Host: x"], "set by the crawl itself"),
        (["--header", "nonsense"], "not written as NAME: VALUE"),
        (["--basic-auth", "ann:password"], "not the name of a secret"),
        (["--basic-auth", "shop", "--render"], "send the secrets to other sites"),
        (["--login", "shop"], "needs the URL of its form"),
        (["--wait-for", "p"], "wait_for is for rendered pages"),
        (["--sitemap-only", "--no-sitemaps"], "sitemap_only needs sitemaps"),
    ):
        await asyncio.to_thread(cli.refused, "add", "web", "https://example.com/x", *words, says=says)


@pytest.mark.spec("B15")
async def test_headers_with_secrets_are_sent_to_the_site_only(site: Site, sqlite_copy: str) -> None:
    hosts = ("shop.example", "other.example")
    site.robots(f"Sitemap: {site.at('other.example', '/map.xml')}", host="shop.example")
    site.xml("/map.xml", sitemap([site.at("shop.example", "/a")]), host="other.example")
    for path in ("/", "/a"):
        site.page(path, f"This is {path}", host="shop.example")
    settings: dict[str, Any] = {**site.settings(*hosts)}
    secrets = {"WEB_SECRET_SHOP": "ann:pass word", "WEB_SECRET_TOKEN": "t0ken-of-the-shop"}
    async with working(site, sqlite_copy, foreign=secrets, **settings) as desk:
        target = site.at("shop.example", "/")
        job = await desk.job(
            target, headers=["X-Api-Key: {secret:token}", "Accept-Language: de"], basic_auth="shop", max_pages=5
        )
        assert (await desk.run(job)).result["new"] == 2
        sent = {(seen.host.partition(":")[0], seen.path): seen.headers for seen in site.seen}
        for path in ("/", "/a"):
            headers = sent["shop.example", path]
            assert headers["X-Api-Key"] == "t0ken-of-the-shop"
            assert headers["Accept-Language"] == "de"
            assert headers["Authorization"] == "Basic YW5uOnBhc3Mgd29yZA=="
        assert "X-Api-Key" not in sent["other.example", "/map.xml"]
        assert "t0ken" not in str(await desk.watermark(job))
        unknown = await desk.job(site.at("other.example", "/"), basic_auth="nobody")
        failed = await desk.run(unknown)
        assert "there is no secret NOBODY" in str(failed.error_message)


@pytest.mark.spec("B15")
async def test_a_crawl_logs_in_by_the_form_of_the_site(site: Site, sqlite_copy: str) -> None:
    """The token of the form and the cookies of its page are sent with it. A refused login fails the run at once."""
    form = (
        "<form action='/session' method=post><input type=hidden name=token value='t&amp;1'><input name=user>"
        "<input type=password name=pass><input type=checkbox name=stay></form>"
    )

    async def login_page(_: web.Request) -> web.Response:
        return web.Response(text=form, content_type="text/html", headers={"Set-Cookie": "before=1; Path=/"})

    async def session(request: web.Request) -> web.Response:
        sent = dict(await request.post())
        is_right = sent == {"token": "t&1", "user": "ann", "pass": "pass:word"} and request.cookies == {"before": "1"}
        if not is_right:
            return web.Response(text=form, content_type="text/html")
        return web.Response(status=303, headers={"Location": "/", "Set-Cookie": "session=s3cret; HttpOnly"})

    async def member(request: web.Request) -> web.Response:
        if request.cookies.get("session") != "s3cret":
            return web.Response(status=302, headers={"Location": "/login"})
        body = f"<p>For members. {LONG}</p><a href='/logout'>x</a><a href='/?do=sign-out'>y</a>"
        return web.Response(text=body, content_type="text/html")

    site.always("/login", login_page)
    site.always("/session", session)
    site.always("/", member)
    secrets = {"WEB_SECRET_SHOP": "ann:pass:word", "WEB_SECRET_OTHER": "bob:wrong"}
    async with working(site, sqlite_copy, foreign=secrets) as desk:
        job = await desk.job(login_url=f"{site.url}/login", login="shop", sitemaps=False)
        await desk.run(job)
        assert "For members." in (await desk.items(job))["/"]["data"]["text"]
        assert "s3cret" not in str(await desk.watermark(job))
        assert not {"/logout", "/?do=sign-out"} & set(site.paths())
        refused = await desk.run(await desk.job(f"{site.url}/x", login_url=f"{site.url}/login", login="other"))
        assert "the login at" in str(refused.error_message)
        assert "wrong" not in str(refused.error_message)
        elsewhere = await desk.job(f"{site.url}/y", login_url="https://other.example/login", login="other")
        assert "is not a page of" in str((await desk.run(elsewhere)).error_message)


def notes(run: Execution) -> list[str]:
    return notes_of(run.result)
