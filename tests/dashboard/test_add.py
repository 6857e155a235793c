"""Add: paste, see what would be collected, choose when, save."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import expect

from dashboard.conftest import Window
from dashboard.given import HOSTILE
from dashboard.site import Site, post_form, serving_site
from floodmark.testing.factories import Opened
from floodmark.testing.web import Entry, rss
from floodmark.testing.web import Site as WebSite

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10"), pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(loop_scope="session")
async def site(sqlite: Opened) -> AsyncIterator[Site]:
    """The dashboard of an empty installation that may fetch from this machine."""
    async with serving_site(sqlite, http_allow_hosts="127.0.0.1") as site:
        yield site


@pytest_asyncio.fixture(loop_scope="session")
async def web() -> AsyncIterator[WebSite]:
    async with WebSite() as web:
        web.page("/", "Ships come and go.", title="Harbour", links=["/a"])
        at = datetime.now(UTC)
        entries = [Entry(id=str(n), link=f"/{n}", title=f"Ship {n}", at=at - timedelta(n)) for n in range(3)]
        web.xml("/feed.xml", rss(entries, title="Ships"))
        web.xml("/hostile.xml", rss([Entry(id="1", link="javascript:alert(1)", title=HOSTILE, at=at)], title=HOSTILE))
        yield web


async def test_a_feed_is_added_from_an_empty_installation(site: Site, web: WebSite, window: Window) -> None:
    """As a person does who has read nothing: the overview, the button, paste, save."""
    page = await window.open("/")
    await page.get_by_role("link", name="Add the first source").click()
    await page.get_by_label("What to collect").fill(f"{web.url}/feed.xml")
    await page.keyboard.press("Tab")
    rest = page.locator("#rest")
    await expect(rest).to_contain_text("The entries of a feed: 3 entries now", timeout=60_000)
    await expect(rest).to_contain_text("Ship 0")
    assert (await site.operations.jobs()).items == [], "nothing is stored yet"
    await expect(page.locator("#runs li").nth(1)).to_contain_text("in 14 min")
    await page.get_by_label("Every", exact=True).last.fill("2h")
    await expect(page.locator("#runs li").nth(1)).to_contain_text("in 1 h 59 min", timeout=60_000)
    await page.get_by_label("Tags").fill("harbour")
    await page.get_by_role("button", name="Save").click()
    await page.wait_for_url("**/jobs/*")
    [job] = (await site.operations.jobs()).items
    assert (job.source, job.target, job.tags) == ("feed", f"{web.url}/feed.xml", ("harbour",))
    assert (job.when.interval_seconds, job.when.timezone) == (7200, "Europe/Berlin")
    [added] = (await site.operations.audit(what=f"job:{job.name}")).items
    assert (added.action, added.via) == ("job.added", "dashboard")


@pytest.mark.release
async def test_a_list_is_added_and_only_wrong_lines_stay(site: Site, web: WebSite, window: Window) -> None:
    page = await window.open("/add")
    lines = [f"{web.url}/feed.xml", "@Example_News", "not a target", f"{web.url}/", "http://10.0.0.1/"]
    await page.get_by_label("What to collect").fill("\n".join(lines))
    await page.get_by_role("button", name="Show what would be collected").click()
    await expect(page.locator(".found")).to_have_count(5)
    await expect(page.locator(".found.wrong")).to_have_count(2)
    await expect(page.locator(".found").nth(1)).to_contain_text("No Telegram account is set up yet")
    await expect(page.locator(".found").nth(1)).to_contain_text("floodmark accounts add NAME --phone")
    await page.get_by_text("Daily", exact=True).click()
    await page.get_by_label("Time of day").first.fill("04:30")
    await page.get_by_role("button", name="Save 3 jobs").click()
    await expect(page.locator(".found .badge")).to_have_count(3)
    await expect(page.get_by_label("What to collect")).to_have_value("not a target\nhttp://10.0.0.1/")
    await expect(page.locator(".found.wrong").last).to_contain_text("10.0.0.1 is not a public address")
    found = {job.source: job for job in (await site.operations.jobs()).items}
    assert sorted(found) == ["feed", "telegram", "web"]
    assert all(job.when.time_config == {"hour": 4, "minute": 30} for job in found.values())


@pytest.mark.thorough
async def test_a_refused_form_keeps_what_was_typed(site: Site, window: Window) -> None:
    page = await window.open("/add?what=@example_news")
    await page.get_by_text("Cron", exact=True).click()
    await page.get_by_label("Cron expression").fill("never")
    await expect(page.locator("#runs")).to_contain_text("Correct the schedule", timeout=60_000)
    await page.get_by_text("Options of telegram").click()
    await page.get_by_label("History").fill("many")
    await page.get_by_label("Name", exact=True).fill("my-news")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".field.wrong")).to_have_count(1)
    await expect(page.get_by_label("Cron expression")).to_have_value("never")
    await page.get_by_label("Cron expression").fill("0 6 * * *")
    await page.get_by_role("button", name="Save").click()
    wrong = page.locator(".field.wrong")
    await expect(wrong).to_have_count(1)
    await expect(wrong).to_contain_text("history 'many' is not a number of posts")
    await expect(wrong.get_by_label("History")).to_have_value("many")
    await expect(page.get_by_label("Name", exact=True)).to_have_value("my-news")
    assert (await site.operations.jobs()).items == []
    await page.get_by_label("History").fill("500")
    await page.get_by_role("button", name="Save").click()
    await page.wait_for_url("**/jobs/*")
    job = await site.operations.job("my-news")
    assert (job.params, job.when.cron_expression) == ({"history": "500"}, "0 6 * * *")


@pytest.mark.release
async def test_another_source_can_be_chosen_and_has_its_own_options(site: Site, web: WebSite, window: Window) -> None:
    page = await window.open(f"/add?what={web.url}/")
    await expect(page.locator("select[name=kind]")).to_have_value(f"web {web.url}/")
    await page.locator("select[name=kind]").select_option(f"cookies {web.url}/")
    await expect(page.locator("#rest")).to_contain_text("A report of the cookies", timeout=60_000)
    await page.get_by_text("Options of cookies").click()
    await page.get_by_label("MaxPages").fill("5")
    await page.get_by_text("Weekly", exact=True).click()
    await page.get_by_label("Run once now as well").check()
    await page.get_by_role("button", name="Save").click()
    await page.wait_for_url("**/jobs/*")
    [job] = (await site.operations.jobs()).items
    assert (job.source, job.params, job.when.frequency) == ("cookies", {"maxPages": 5}, "weekly")
    assert len((await site.operations.executions(job=job.job_id)).items) == 1


async def test_without_a_script_the_same_form_works(site: Site, web: WebSite) -> None:
    async with site.client() as client:

        async def send(**fields: Any) -> Any:
            return await post_form(client, "/add", "/add", what=f"{web.url}/feed.xml", **fields)

        looked = await send(step="look", way="every", every="30m")
        assert "Ship 0" in looked.text
        assert 'value="30m"' in looked.text
        assert (await site.operations.jobs()).items == []
        saved = await send(step="save", way="every", every="30m", timezone="UTC")
        assert saved.status_code == 303
        again = await send(step="save", way="every", every="30m", timezone="UTC")
        assert "collects it already" in again.text
        assert len((await site.operations.jobs()).items) == 1
        # The name alone is not enough: two jobs would share a stream, which is allowed.
        second = await send(step="save", way="demand", name="second", timezone="UTC")
        assert second.status_code == 303
        many = await post_form(client, "/add", "/add", what="\n".join(f"@channel_{n}" for n in range(300)), step="save")
        assert "there are 300 lines" in many.text
        assert len((await site.operations.jobs()).items) == 2


@pytest.mark.thorough
async def test_adaptive_jobs_get_their_budget(site: Site, window: Window) -> None:
    await site.operations.set_budget("news", 30)
    page = await window.open("/add?what=@example_news")
    await expect(page.get_by_label("Budget")).to_be_hidden()
    await page.get_by_text("Adaptive", exact=True).click()
    await page.get_by_label("Budget").select_option("news")
    await page.get_by_label("Max delay").fill("30m")
    await page.get_by_role("button", name="Save").click()
    await page.wait_for_url("**/jobs/*")
    [job] = (await site.operations.jobs()).items
    assert (job.when.schedule_type, job.budget, job.max_delay) == ("adaptive", "news", timedelta(minutes=30))


@pytest.mark.thorough
async def test_titles_and_entries_of_a_foreign_feed_stay_text(site: Site, web: WebSite, window: Window) -> None:
    page = await window.open(f"/add?what={web.url}/hostile.xml")
    await expect(page.locator("#rest")).to_contain_text("{{ 7 * 7 }}")
    assert await page.evaluate("window.stolen") is None
    assert await page.locator("#rest a[href^='javascript']").count() == 0


@pytest.mark.parametrize("role", ["read", "operate"])
async def test_only_an_admin_adds_jobs(site: Site, role: Any) -> None:
    async with site.client(await site.token(role)) as client:
        assert 'href="/add"' not in (await client.get("/jobs")).text.replace('class="button" href="/add"', "")
        assert (await client.get("/add")).status_code == 403
        sent = await post_form(client, "/", "/add", what="@example_news", step="save")
        assert sent.status_code == 403
    assert (await site.operations.jobs()).items == []
