"""The API reference in the browser: bundled, searchable with and without a script, open to those who read the API."""

import asyncio
import re
import subprocess

import pytest
from playwright.async_api import Browser, expect

from dashboard.conftest import Window
from dashboard.site import Site

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10", "V8"), pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.thorough
async def test_an_operation_is_found_and_its_command_works(site: Site, window: Window) -> None:
    await site.job()
    page = await window.open("/docs")
    await expect(page.locator("article.operation")).not_to_have_count(0)
    await page.get_by_label("Search operations").fill("list jobs")
    shown = page.locator("article.operation:visible")
    await expect(shown.filter(has_text="List jobs")).to_have_count(1)
    assert await shown.count() < 20
    line = await page.locator("#list_jobs pre").inner_text()
    assert "Authorization" not in line, "no token is needed yet"
    assert f"{site.url}/api/v2/jobs" in line
    typed = ["sh", "-c", line]
    told = await asyncio.to_thread(subprocess.run, typed, capture_output=True, text=True, timeout=120, check=True)
    assert '"name":"news"' in told.stdout
    await page.get_by_label("Search operations").fill("")
    assert await page.locator("article.operation:visible").count() > 50


@pytest.mark.release
async def test_it_reads_and_searches_without_a_script(site: Site, browser: Browser) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(f"{site.url}/docs")
    await page.get_by_label("Search operations").fill("add_webhook")
    await page.get_by_role("button", name="Search").click()
    await expect(page.locator("article.operation")).to_have_count(1)
    await expect(page.locator("#add_webhook")).to_contain_text("/api/v2/triggers/webhooks")
    await page.goto(f"{site.url}/docs?text=no+such+words")
    await expect(page.locator("main")).to_contain_text("No operation has these words")
    await context.close()


@pytest.mark.release
async def test_it_is_for_everyone(site: Site) -> None:
    token, prefix = await site.token("read"), {"X-Forwarded-Prefix": "/monitor"}
    async with site.client() as nobody, site.client(token) as reader, site.client(token, headers=prefix) as other:
        while (answer := await nobody.get("/docs")).status_code == 200:
            pass
        assert answer.headers["location"] == "/sign-in?to=/docs"
        shown = (await other.get("/docs")).text
        assert f"{site.url}/monitor/api/v2/jobs" in shown
        assert "Authorization: Bearer" in shown
        assert 'href="/docs"' in (await reader.get("/jobs")).text


@pytest.mark.thorough
async def test_an_address_that_a_caller_makes_up_stays_with_the_caller(site: Site) -> None:
    async with site.client() as client:
        for number in range(12):
            prefix = {"X-Forwarded-Prefix": f"/evil{number}"}
            assert f"/evil{number}/api" in (await client.get("/docs", headers=prefix)).text
        ids = re.findall(r' id="([^"]+)"', (await client.get("/docs")).text)
        assert len(ids) == len(set(ids)), "an anchor leads to one place"
        hostile = {"X-Forwarded-Host": "e.org/';reboot;'"}
        shown = (await client.get("/docs", headers=hostile)).text
        assert "reboot" not in shown
        assert "evil" not in (await client.get("/docs")).text
