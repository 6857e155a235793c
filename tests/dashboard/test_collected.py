"""Collected items: the list, searches, streams, items with their revisions, downloads."""

import asyncio
import csv
import io
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import openpyxl
import pytest
from playwright.async_api import expect

from dashboard.conftest import Window
from dashboard.given import ENDLESS, HOSTILE, given_items, given_new_items
from dashboard.looks import look_at
from dashboard.site import Site, serving_site
from floodmark.model.batch import Batch, Item
from floodmark.model.outcome import Done
from floodmark.sources.cookies.findings import Contact, Cookie, PhaseFound, ScanRecord
from floodmark.sources.cookies.report import make_report
from floodmark.testing.factories import Opened, given_lease, settle

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10"), pytest.mark.asyncio(loop_scope="session")]

NOW = datetime.now(UTC).replace(microsecond=0)
HARBOUR, PORT, FEED = "telegram:1000001", "web:https://port.example/", "feed:https://news.example/feed"
ITEM_OF_PORT = "/item/web%3Ahttps%3A%2F%2Fport.example%2F/https%3A%2F%2Fport.example%2Ftimes"
PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)


def a_post(number: int, text: str, *, gone: bool = False, **fields: Any) -> Item:
    at = NOW - timedelta(hours=3) + timedelta(minutes=number)
    data = {"id": number, "channel_id": 1000001, "channel": "harbour", "date": at.isoformat(), "text": text}
    return Item(f"1000001:{number}", {**data, "kind": "message", **fields}, at, [text, fields], deleted=gone)


def a_page(text: str, **fields: Any) -> Item:
    url = "https://port.example/times"
    data = {"url": url, "title": "Timetable", "text": text, "links": [url], "hash": text, "fetched_at": str(NOW)}
    return Item(url, {**data, **fields}, NOW - timedelta(hours=4), text)


def an_entry(key: str, title: str, **fields: Any) -> Item:
    data = {"id": key, "title": title, "summary": f"About {title}", "feed": "News", "fetched_at": str(NOW)}
    return Item(key, {**data, "published": str(NOW), "updated": None, **fields}, NOW - timedelta(hours=5))


@pytest.mark.thorough
async def test_items_are_listed_newest_first_and_found(any_site: Site) -> None:
    await given_items(any_site, HARBOUR, a_post(1, "Fire in the harbour"), a_post(2, "Smoke"), tags=["news"])
    await given_items(any_site, FEED, an_entry("a", "Fire brigade"), an_entry("b", "Bridge"), source="feed")
    await given_items(
        any_site, HARBOUR, a_post(1, "Big fire in the harbour", edit_date="x"), a_post(2, "Smoke", gone=True)
    )
    async with any_site.client() as client:

        async def keys(path: str) -> list[str]:
            answer = await client.get(path)
            assert answer.status_code == 200, answer.text
            return re.findall(r'href="/item/[^/"]+/([^"]+)"', answer.text)

        assert await keys("/collected") == ["1000001%3A2", "1000001%3A1", "b", "a"]
        assert await keys("/collected?q=fire") == ["1000001%3A1", "a"]
        assert await keys("/collected?q=fire&order=rank&source=feed") == ["a"]
        assert await keys("/collected?source=feed") == ["b", "a"]
        assert await keys("/collected?tag=news&since=7d") == ["1000001%3A2", "1000001%3A1"]
        assert await keys("/collected?stream=telegram:*&q=fire") == ["1000001%3A1"]
        assert await keys(f"/collected?first={NOW - timedelta(days=9):%Y-%m-%d}&last={NOW:%Y-%m-%d}&q=bridge") == ["b"]
        assert await keys("/collected?since=1h") == []
        assert await keys("/collected/telegram%3A1000001") == ["1000001%3A2", "1000001%3A1"]
        assert await keys("/collected/telegram%3A1000001?q=smoke") == ["1000001%3A2"]
        assert await keys("/find?q=bridge") == ["b"]
        shown = (await client.get("/collected?q=fire")).text
        assert "Big <mark>fire</mark> in the harbour" in shown
        assert 'class="badge info">changed' in shown
        assert "deleted at its source" in (await client.get("/collected")).text
        for wrong, says in (
            ("q=%22fire", "has no end"),
            ("q=colour:red", "no item has a field"),
            ("stream=nowhere:*", "no stream matches"),
            ("tag=none", "no job has the tag"),
            ("since=noon", "neither a duration nor a date"),
            ("cursor=nonsense", "is not a cursor"),
        ):
            refused = await client.get(f"/collected?{wrong}")
            assert refused.status_code in (400, 404), wrong
            assert says in refused.text
        assert 'value="&#34;fire"' in (await client.get("/collected?q=%22fire")).text


async def test_long_lists_have_pages(site: Site) -> None:
    await given_items(site, HARBOUR, *(a_post(number, f"fire {number}") for number in range(1, 71)))
    async with site.client() as client:
        for path in ("/collected", "/collected?q=fire", "/collected/telegram%3A1000001"):
            seen: list[str] = []
            following: str | None = path
            while following is not None:
                shown = (await client.get(following)).text
                seen += re.findall(r"1000001%3A(\d+)\"", shown)
                found = re.findall(r'rel="next" href="([^"]+)"', shown)
                following = found[0].replace("&amp;", "&") if found else None
            assert seen == [str(number) for number in range(70, 0, -1)], path


@pytest.mark.thorough
async def test_new_items_appear_by_themselves(site: Site, window: Window) -> None:
    page = await window.open("/collected")
    await expect(page.locator("main")).to_contain_text("Nothing was collected yet")
    await expect(page.locator("#live")).to_have_attribute("data-state", "on", timeout=60_000)
    await given_items(site, HARBOUR, a_post(1, "The ferry is back"))
    await expect(page.locator("#items")).to_contain_text("The ferry is back", timeout=60_000)
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/item/**")
    await page.keyboard.press("g")
    await page.keyboard.press("c")
    await page.wait_for_url("**/collected")
    await page.get_by_label("Words").fill("ferry")
    await page.get_by_role("button", name="Search", exact=True).click()
    await expect(page.locator("mark")).to_have_text("ferry")


@pytest.mark.thorough
async def test_a_stream_shows_its_days_and_its_job(site: Site, window: Window) -> None:
    execution = await given_items(site, HARBOUR, a_post(1, "Fire"), source="telegram", target="@harbour", name="posts")
    page = await window.open("/collected/telegram%3A1000001")
    await expect(page.get_by_role("heading", name="harbour")).to_be_visible()
    await expect(page.locator("#s-jobs")).to_contain_text("posts")
    await look_at(page, is_brief=True)
    await window.open(f"/executions/{execution}")
    await page.locator("#e-facts").get_by_role("link", name=re.compile("telegram:")).click()
    await page.wait_for_url("**/collected/**")
    await window.open("/jobs/posts")
    await page.get_by_role("link", name="Items", exact=True).click()
    await page.wait_for_url("**/collected/**")
    async with site.client() as client:
        assert (await client.get("/collected/nowhere%3Ax")).status_code == 404


@pytest.mark.release
async def test_a_post_is_shown_as_a_post(site: Site, window: Window) -> None:
    text = "🚨 Fire <b>now</b>, see the map and #harbour"
    entities = [
        {"type": "bold", "offset": 3, "length": 4},
        {"type": "text_url", "offset": 28, "length": 3, "url": "https://maps.example/"},
        {"type": "text_url", "offset": 0, "length": 2, "url": "javascript:alert(1)"},
        {"type": "hashtag", "offset": 36, "length": 8},
    ]
    poll = {"type": "poll", "question": "Which?", "answers": [{"text": "North", "voters": 3}], "total_voters": 3}
    origin = {"name": "Fire brigade", "id": 12}
    await given_items(
        site,
        HARBOUR,
        a_post(1, text, entities=entities, media=poll, views=12000, forwarded_from=origin,
               reactions=[{"emoji": "👍", "count": 7}], reply_to={"id": 9}),
    )  # fmt: skip
    await given_items(site, HARBOUR, a_post(1, text.replace("now", "over"), edit_date="2026-06-01T00:00:00Z"))
    page = await window.open("/item/telegram%3A1000001/1000001%3A1?revision=1")
    post = page.locator(".post")
    await expect(post.locator("b", has_text="Fire").first).to_be_visible()
    await expect(post).to_contain_text("<b>now</b>")
    await expect(post.get_by_role("link", name="map")).to_have_attribute("href", "https://maps.example/")
    assert await page.locator("a[href^='javascript']").count() == 0
    for words in ("Forwarded from Fire brigade", "Reply to post 9", "Poll", "North", "👍 7", "views"):
        await expect(post).to_contain_text(words)
    await expect(page.locator("main")).to_contain_text("revision 1 of 2")
    await look_at(page)
    await page.get_by_role("link", name="Revision 2").click()
    await page.get_by_role("link", name="Changes").click()
    await expect(page.locator(".diff .removed del")).to_have_text("now")
    await expect(page.locator(".diff .added ins")).to_have_text("over")


@pytest.mark.thorough
async def test_the_revisions_of_a_page_are_compared(site: Site, window: Window) -> None:
    lines = "\n".join(f"Stop {number}" for number in range(20))
    for text in (f"First at 6\n{lines}\nDogs free", f"First at 7\n{lines}\nDogs free\nCats free"):
        await given_items(site, PORT, a_page(text))
    await given_items(site, PORT, a_page(f"First at 7\n{lines}\nDogs free\nCats free", language="en", hash="other"))
    page = await window.open(f"{ITEM_OF_PORT}?look=side&revision=2")
    table = page.locator(".aside")
    await expect(table.locator("td.removed")).to_have_text("First at 6")
    await expect(table.locator("td.added")).to_have_text(["First at 7", "Cats free"])
    await expect(table).to_contain_text("unchanged lines")
    await look_at(page)
    await page.get_by_role("link", name="Changes").click()
    await expect(page.locator(".diff .added")).to_have_count(2)
    await look_at(page, is_brief=True)
    await page.get_by_role("link", name="Page", exact=True).click()
    await expect(page.locator(".text")).to_contain_text("Cats free")
    async with site.client() as client:
        assert (await client.get(f"{ITEM_OF_PORT}?revision=9")).status_code == 404
        assert (await client.get(f"{ITEM_OF_PORT}?revision=%C2%B2")).status_code == 404
        assert (await client.get(f"{ITEM_OF_PORT}?look=odd")).status_code == 400
        assert (await client.get("/item/feed%3Anone/1")).status_code == 404
        first = (await client.get(f"{ITEM_OF_PORT}?revision=1&look=changes")).text
        assert "There is no earlier revision" in first


@pytest.mark.release
async def test_a_feed_entry_and_other_items_are_readable(site: Site, window: Window) -> None:
    await given_items(site, FEED, an_entry("a", "Fire", tags=["x"], enclosures=[{"url": "https://news.example/a.mp3"}]))
    await given_items(site, "python:prices", Item("wheat", {"price": 212.5, "nested": {"a": [1]}}, NOW))
    await given_items(site, "python:words", Item("1", "only a text", NOW))
    page = await window.open("/item/feed%3Ahttps%3A%2F%2Fnews.example%2Ffeed/a")
    await expect(page.locator("article")).to_contain_text("About Fire")
    await expect(page.get_by_role("link", name="https://news.example/a.mp3")).to_be_visible()
    await window.open("/item/python%3Aprices/wheat")
    await expect(page.locator(".fields-table")).to_contain_text("212.5")
    await look_at(page, is_brief=True)
    await page.get_by_role("link", name="JSON").click()
    await expect(page.locator("pre")).to_contain_text('"nested"')
    await window.open("/item/python%3Awords/1")
    await expect(page.locator(".fields-table")).to_contain_text("only a text")


async def given_report(site: Site) -> None:
    cookie = Cookie(
        name="_ga", domain=".shop.example", path="/", party="third", expires=None, lifetime_seconds=86400,
        http_only=False, secure=True, same_site="None", partition=None, size=4, value_sha256="0" * 64,
        set_by="script", purpose="statistics", vendor="Google",
    )  # fmt: skip
    contact = Contact(host="cdn.example", site="example", requests=2, types={"script": 2})
    phase = PhaseFound(phase="before", result="complete", cookies=(cookie,), contacts=(contact,), picture=PICTURE)
    found = ScanRecord(
        domain="shop.example", start="https://shop.example/", final="x", browser="Chromium", phases=(phase,)
    )
    report, blobs = make_report(found, began=NOW, seconds=3)
    lease = await given_lease(site.resources, source="cookies", target="shop.example", name="scan")
    batch = Batch([Item("scan-1", report, NOW)], {"n": 1}, stream="cookies:shop.example", blobs=tuple(blobs))
    await site.resources.keeping.keep(lease, batch)
    await settle(site.resources, lease, Done())


@pytest.mark.thorough
async def test_a_cookie_report_has_its_evidence(site: Site, window: Window) -> None:
    await given_report(site)
    page = await window.open("/item/cookies%3Ashop.example/scan-1")
    await expect(page.locator("main")).to_contain_text("set before consent")
    await expect(page.locator("table.cookies")).to_contain_text("_ga")
    picture = page.get_by_role("img", name="The page before consent")
    await picture.scroll_into_view_if_needed()
    await expect(picture).to_have_js_property("naturalWidth", 1, timeout=60_000)
    await look_at(page)


@pytest.mark.release
async def test_what_is_shown_is_downloaded(site: Site, window: Window) -> None:
    await given_items(site, HARBOUR, a_post(1, "fire"), a_post(2, "ferry"), a_post(3, "big fire", gone=True))
    await given_items(site, FEED, an_entry("a", "Fire"), source="feed")
    page = await window.open("/collected?q=fire&source=telegram")
    await page.get_by_role("link", name="Export these").click()
    await expect(page.locator("main")).to_contain_text("floodmark export items --query 'fire' --source 'telegram'")
    await look_at(page, is_brief=True)
    async with page.expect_download() as waiting:
        await page.locator("li", has_text="CSV").get_by_role("button", name="Download").click()
    download = await waiting.value
    rows = list(csv.DictReader(io.StringIO(await asyncio.to_thread(_read, await download.path()))))
    assert [(row["key"], row["deleted"]) for row in rows] == [("1000001:3", "true"), ("1000001:1", "false")]
    await expect(page.get_by_role("button", name="Download").first).to_be_enabled()
    async with site.client() as client:
        every = await client.get("/export/file?format=jsonl")
        assert every.headers["content-type"].startswith("application/x-ndjson")
        assert len([json.loads(line) for line in every.text.splitlines()]) == 4
        sheets = await client.get("/export/file?format=xlsx&q=fire")
        assert openpyxl.load_workbook(io.BytesIO(sheets.content)).sheetnames == ["telegram", "feed"]
        parquet = await client.get("/export/file?format=parquet&stream=telegram:1000001&since=7d")
        assert parquet.content[:4] == b"PAR1"
        for wrong, says in (
            ("format=csv&q=fire", "choose a source or a stream"),
            ("format=odd", "is not a format"),
            ("format=jsonl&q=%22fire", "has no end"),
            ("format=jsonl&stream=nowhere", "nowhere"),
        ):
            refused = await client.get(f"/export/file?{wrong}")
            assert refused.status_code in (400, 404), wrong
            assert says in refused.text


def _read(path: Any) -> str:
    return str(path.read_text("utf-8-sig"))


@pytest.mark.release
async def test_a_download_that_is_given_up_ends(site: Site) -> None:
    """Its rows are larger than what waits for a slow browser."""
    await given_items(site, HARBOUR, *(a_post(number, "fire " * 40_000) for number in range(1, 41)))
    async with site.client() as client:
        for _ in range(4):
            async with client.stream("GET", "/export/file?format=jsonl") as answer:
                assert answer.status_code == 200
                await anext(answer.aiter_bytes(1000))
        for _ in range(200):
            last = await client.get("/export/file?format=csv&stream=telegram:1000001")
            if last.status_code == 200:
                break
            assert "downloads are running" in last.text
            await asyncio.sleep(0.1)
        assert len(last.text) > 40 * 200_000


async def test_a_reader_may_read_and_export_only(site: Site) -> None:
    await given_items(site, HARBOUR, a_post(1, "Fire in the harbour"))
    reader, admin = await site.token("read"), await site.token("admin")
    async with site.client(reader) as client:
        shown = (await client.get("/collected")).text
        assert "Fire in the harbour" in shown
        assert "Export these" in shown
        assert "/watches/new" not in shown
        assert "/watches/new" not in (await client.get("/item/telegram%3A1000001/1000001%3A1")).text
        assert (await client.get("/export/file?format=jsonl")).status_code == 200
    async with site.client(admin) as client:
        assert (
            'href="/watches/new?query=fire&amp;stream=telegram%3A%2A"'
            in (await client.get("/collected?q=fire&stream=telegram:*")).text
        )
    async with site.client() as client:
        assert (await client.get("/export/file?format=jsonl")).status_code == 303


async def test_without_an_index_items_are_still_listed(sqlite: Opened) -> None:
    async with serving_site(sqlite, search_enabled=False) as site, site.client() as client:
        await given_new_items(site, HARBOUR, a_post(1, "Fire in the harbour"))
        for path in ("/collected", "/collected/telegram%3A1000001"):
            assert "Fire in the harbour" in (await client.get(path)).text
        refused = await client.get("/collected?q=fire")
        assert refused.status_code == 503
        assert "search is off" in refused.text
        assert "search is off" in (await client.get("/find?q=fire")).text


@pytest.mark.release
async def test_hostile_items_are_inert(site: Site, window: Window) -> None:
    entities = [{"type": "bold", "offset": -5, "length": 10**9}, {"type": "url", "offset": 0, "length": 10}, "x", None]
    await given_items(
        site,
        HARBOUR,
        a_post(1, ENDLESS, entities=entities, channel=HOSTILE, author=HOSTILE, media={"type": HOSTILE, "url": HOSTILE},
               forwarded_from={"name": HOSTILE}, reactions=[{"emoji": HOSTILE, "count": HOSTILE}], reply_to=HOSTILE),
        a_post(2, HOSTILE, entities="x", media=[HOSTILE], forwarded_from=[1], reactions={}, views="x"),
    )  # fmt: skip
    await given_items(site, PORT, a_page(ENDLESS, title=HOSTILE, links=[HOSTILE, "javascript:alert(1)"], tags={"a": 1}))
    await given_items(site, PORT, a_page("x\n" * 500_000, title=ENDLESS, links=HOSTILE))
    await given_items(
        site, FEED, an_entry("a", HOSTILE, link="javascript:alert(1)", tags=[HOSTILE], enclosures=[HOSTILE])
    )
    report = {
        "schema": "floodmark.cookies/9",
        "phases": [{"cookies": [{"name": ENDLESS}, 1], "visits": 3, "picture": []}, 4],
    }
    await given_items(
        site, "cookies:x", Item("scan", {**report, "manifest": [1], "findings": [{"text": ENDLESS}]}, NOW)
    )
    await given_items(site, f"python:{HOSTILE}", Item(HOSTILE, {HOSTILE: ENDLESS, "title": [HOSTILE]}, NOW))
    async with site.client() as client:
        listed = re.findall(r'href="(/item/[^"]+)"', (await client.get("/collected")).text)
    assert len(listed) == 6
    paths = [*listed, f"{ITEM_OF_PORT}?look=changes", f"{ITEM_OF_PORT}?look=side", f"{ITEM_OF_PORT}?look=json"]
    script = "%3Cscript%3Ealert(1)%3C/script%3E"
    paths += ["/collected", f"/collected?q={script}", f"/collected?stream={script}", f"/export?q={script}&tag={script}"]
    for path in [*paths, "/find?q=script"]:
        page = await window.open(path)
        assert await page.evaluate("window.stolen") is None, path
        assert await page.locator("main script, main img, main [onload], main [onmouseover]").count() == 0, path
        assert await page.locator("a[href^='javascript']").count() == 0, path
        assert await page.evaluate("document.documentElement.outerHTML.length") < 400_000, path
        overflow = await page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert overflow <= 0, f"{path} is {overflow} px too wide"


@pytest.mark.release
async def test_the_list_can_be_read_by_everyone(site: Site, window: Window) -> None:
    await given_items(site, HARBOUR, a_post(1, "Fire in the harbour"), a_post(2, "حريق في الميناء", gone=True))
    await given_items(site, FEED, an_entry("a", "Fire"), source="feed")
    await look_at(await window.open("/collected?q=fire"))
    await look_at(await window.open("/collected"), is_brief=True)
    await look_at(await window.open("/collected?q=%22fire"), is_brief=True)
    await look_at(await window.open("/find?q=fire"), is_brief=True)
