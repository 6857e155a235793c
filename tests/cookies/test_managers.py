"""Consent managers as their makers publish them, in a real browser: seen as visitors see them, and answered."""

import asyncio
import mimetypes
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Route, async_playwright

from cookies.packages import CASES, Case, installed
from floodmark.sources.cookies.banners import BannerView, Kind, answer_banner, find_banner
from floodmark.sources.cookies.browser import FLAGS, ordinary_agent, visitor_flags
from floodmark.sources.cookies.findings import Banner
from floodmark.sources.cookies.phase import observer_script
from floodmark.testing.eventually import eventually

pytestmark = [pytest.mark.spec("E8"), pytest.mark.asyncio(loop_scope="module")]

START = "http://managers.test/"
TOKEN = "_observer"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def context(shell: Path) -> AsyncIterator[BrowserContext]:
    """A browser with the flags of scans, for which the packages are a site."""
    packages = installed()
    async with async_playwright() as driver:
        flags = [*FLAGS, *visitor_flags(str(shell), "")]
        browser = await driver.chromium.launch(executable_path=shell, args=flags)
        session = await browser.new_browser_cdp_session()
        agent = ordinary_agent((await session.send("Browser.getVersion"))["userAgent"])
        context = await browser.new_context(user_agent=agent)
        await context.add_init_script(script=observer_script(TOKEN))

        async def serve(route: Route) -> None:
            path = packages / route.request.url.removeprefix(START).partition("?")[0]
            if not route.request.url.startswith(START) or not path.is_file():
                await route.fulfill(status=404, body="")
                return
            kind = mimetypes.guess_type(path.name)[0] or "text/plain"
            await route.fulfill(body=path.read_bytes(), content_type=kind)

        await context.route("**/*", serve)
        yield context
        await browser.close()


async def choose(context: BrowserContext, case: Case, kind: Kind) -> Banner:
    """Open the page, make the choice, and wait until the manager has stored it."""
    await context.clear_cookies()
    page = await context.new_page()
    html = f"<!doctype html><meta charset=utf-8><title>Page</title><body><h1>A page</h1>{case.html}"
    expected = case.accepted if kind == "accept" else case.rejected

    async def start(route: Route) -> None:
        await route.fulfill(body=html, content_type="text/html")

    async def seen() -> BannerView | None:
        look = await find_banner(page, TOKEN)
        return look if look.way(kind) else None

    async def is_stored() -> bool:
        return bool(await page.evaluate(f"(() => {case.state})()") == expected)

    # Some managers send their form to the page itself.
    await page.route(re.compile(rf"{re.escape(START)}(\?.*)?$"), start)
    try:
        await page.goto(START)
        await eventually(seen)
        # A scan looks again as well: what has just appeared may not be complete.
        await asyncio.sleep(0.3)
        banner = await answer_banner(page, await find_banner(page, TOKEN), kind, TOKEN)
        assert banner.answered_at is not None, banner
        await eventually(is_stored)
        return banner
    finally:
        await page.close()


def _is_like_another(case: Case) -> bool:
    """Whether the same manager comes again later, where it is accepted in the same way and rejected on layer two.

    Others are rejected on their first layer.
    """
    return any(other.package == case.package and other.layer == 2 for other in CASES[CASES.index(case) + 1 :])


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.release] if _is_like_another(case) else []) for case in CASES],
    ids=[f"{case.package}-{case.layer}" for case in CASES],
)
@pytest.mark.thorough
async def test_real_managers_are_accepted_and_rejected(context: BrowserContext, case: Case) -> None:
    banner = await choose(context, case, "accept")
    assert (banner.name, banner.layer) == (case.maker, 1)
    banner = await choose(context, case, "reject")
    # A button is pressed once more if it did not work yet.
    steps = [*dict.fromkeys(banner.steps)]
    assert (banner.name, banner.layer, len(steps)) == (case.maker, case.layer, case.layer)
