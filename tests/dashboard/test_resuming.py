"""A live page through trouble: the server is killed and started again, refuses, hangs; the page is hidden."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Route, expect

from backends import opening
from command_line import CommandLine
from dashboard.conftest import Window
from dashboard.site import Site
from floodmark.model.audit import Actor
from floodmark.operations.local import LocalOperations
from floodmark.testing.eventually import eventually
from servers import free_port
from system.stores import a_spec

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10"), pytest.mark.asyncio(loop_scope="session")]

_HIDE = """hidden => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


async def is_live(page: Page) -> None:
    await expect(page.locator("#live")).to_have_attribute("data-state", "on", timeout=120_000)


async def is_late(page: Page) -> None:
    await expect(page.locator("#live")).to_have_attribute("data-state", "late", timeout=120_000)
    await expect(page.locator("#live")).to_contain_text("old")


@asynccontextmanager
async def a_page(browser: Browser, url: str) -> AsyncIterator[Page]:
    """A page whose errors about a server that is gone are no faults."""
    context = await browser.new_context(viewport={"width": 1400, "height": 900})
    page = await context.new_page()
    page.set_default_timeout(120_000)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    await page.goto(url)
    yield page
    await context.close()
    assert errors == []


async def test_a_page_follows_a_server_that_was_killed_and_started_again(
    sqlite_copy: str, tmp_path: Path, browser: Browser
) -> None:
    cli, api = CommandLine(tmp_path, DATABASE_URL=sqlite_copy), ("api", "--port", str(free_port()))
    async with a_page(browser, "about:blank") as page:
        with cli.running(*api) as server:
            await _reach(page, f"http://127.0.0.1:{api[-1]}/jobs")
            await is_live(page)
            await expect(page.locator("main")).to_contain_text("No jobs")
            server.kill()
            await is_late(page)
        await _add_job(sqlite_copy, "meanwhile")
        await expect(page.locator("main")).to_contain_text("No jobs")
        with cli.running(*api):
            await is_live(page)
            await expect(page.locator("main")).to_contain_text("meanwhile")
            # And it follows again, in the same page.
            await _add_job(sqlite_copy, "afterwards")
            await expect(page.locator("main")).to_contain_text("afterwards")
            await is_live(page)


async def _add_job(database_url: str, name: str) -> None:
    """Add a job as another process would."""
    async with opening(database_url)() as resources:
        await LocalOperations(resources, Actor(who="tests")).add_job(a_spec("feeds:news", name=name))


async def _reach(page: Page, url: str) -> None:
    async def opened() -> bool:
        try:
            await page.goto(url)
        except Exception as error:
            raise AssertionError(error) from error
        return True

    await eventually(opened)


@pytest.mark.thorough
async def test_a_hidden_page_rests_and_is_current_when_it_is_seen_again(site: Site, window: Window) -> None:
    page = await window.open("/jobs")
    await is_live(page)
    requests: list[str] = []
    await page.evaluate(_HIDE, True)
    await eventually(lambda: not site.live.is_polling)
    page.on("request", lambda request: requests.append(request.url))
    await site.job("meanwhile")
    # Longer than the shortest time between two refreshes, in the time of the browser.
    await page.evaluate("new Promise((done) => setTimeout(done, 1500))")
    assert requests == []
    await expect(page.locator("main")).to_contain_text("No jobs")

    await page.evaluate(_HIDE, False)
    await expect(page.locator("main")).to_contain_text("meanwhile")
    await is_live(page)
    assert any("/api/v2/live" in url for url in requests)


@pytest.mark.thorough
async def test_a_page_whose_refresh_is_refused_says_so_and_tries_again(site: Site, window: Window) -> None:
    page = await window.open("/jobs")
    await is_live(page)
    refused = asyncio.Event()

    async def refuse(route: Route) -> None:
        refused.set()
        await route.fulfill(status=503, body="busy")

    await page.route("**/jobs", refuse)
    await site.job()
    await refused.wait()
    # Beats still arrive, but what is shown is old.
    await is_late(page)
    await page.unroute("**/jobs")
    await expect(page.locator("main")).to_contain_text("news")
    await is_live(page)


@pytest.mark.thorough
async def test_a_region_in_use_is_left_alone_and_the_page_says_so(site: Site, window: Window) -> None:
    await site.job("before")
    page = await window.open("/jobs")
    await is_live(page)
    await page.evaluate("getSelection().selectAllChildren(document.getElementById('jobs'))")
    await site.job("meanwhile")
    await expect(page.locator("#live")).to_have_attribute("data-state", "held", timeout=120_000)
    await expect(page.locator("#jobs")).not_to_contain_text("meanwhile")
    await page.evaluate("getSelection().removeAllRanges()")
    await expect(page.locator("#jobs")).to_contain_text("meanwhile")
    await is_live(page)


@pytest.mark.thorough
async def test_a_question_is_answered_although_the_page_has_changed_meanwhile(site: Site, window: Window) -> None:
    await site.operations.add_webhook("/one", jobs=())
    page = await window.open("/triggers")
    await is_live(page)
    await page.get_by_role("button", name="Remove").click()
    await site.operations.add_webhook("/two", jobs=())
    await expect(page.locator("#live")).to_have_attribute("data-state", "held", timeout=120_000)
    await page.get_by_role("button", name="Yes, do it").click()
    await expect(page.locator(".flash.done")).to_contain_text("/one was removed", timeout=60_000)
    await expect(page.locator("main")).to_contain_text("/two")


@pytest.mark.thorough
async def test_a_page_without_access_any_more_leads_to_the_sign_in(site: Site, window: Window) -> None:
    token = await site.token("read")
    page = await window.open("/jobs")
    await page.get_by_label("Token", exact=True).fill(token)
    await page.get_by_role("button", name="Sign in").click()
    await is_live(page)
    await site.operations.revoke_token("a-read")
    await expect(page.get_by_label("Token", exact=True)).to_be_visible(timeout=120_000)
