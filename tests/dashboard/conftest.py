"""A dashboard on each kind of database, and one browser for all tests of a process, in one event loop."""

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from dashboard import looks
from dashboard.site import Site, serving_site
from floodmark.sources.cookies.browser import BrowserMissing, find_chromium
from floodmark.testing.factories import Opened
from skipping import not_tested

_OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


@pytest_asyncio.fixture(loop_scope="session")
async def site(sqlite: Opened) -> AsyncIterator[Site]:
    """The dashboard over an empty SQLite database, where the kind does not matter."""
    async with serving_site(sqlite) as site:
        yield site


@pytest.fixture(params=["sqlite", "postgres_only"])
def any_opened(request: pytest.FixtureRequest) -> Opened:
    """How to open a process on a database of either kind."""
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest_asyncio.fixture(loop_scope="session")
async def any_site(any_opened: Opened) -> AsyncIterator[Site]:
    """The dashboard over an empty database of either kind."""
    async with serving_site(any_opened) as site:
        yield site


@pytest.fixture(autouse=True, scope="session")
def how_to_look(is_release: bool) -> None:
    """Look at every page in all ways only if there is time."""
    looks.IN_ALL_WAYS = is_release


@pytest.fixture(scope="session")
def chromium() -> Path:
    """The browser of this machine. Where there is none that is a loud skip, and in CI a failure.

    Chromium's headless shell renders the same pages for less than two thirds of the CPU time.
    """
    shell = shutil.which("chromium-headless-shell")
    try:
        return Path(shell) if shell else find_chromium(os.environ.get("FLOODMARK_CHROMIUM"), os.environ)
    except BrowserMissing as missing:
        not_tested(f"{missing} ({missing.hint}).")


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def browser(chromium: Path) -> AsyncIterator[Browser]:
    """One browser for all tests of this process."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=_OPTIONS)
        yield browser
        await browser.close()


class Window:
    """A window of the browser that records whatever a page must not do."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self._url, self.faults = page, url, list[str]()
        page.set_default_timeout(60_000)
        page.on("console", self._note_console)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("request", self._note_request)

    async def open(self, path: str) -> Page:
        """Open a page of the dashboard."""
        await self.page.goto(f"{self._url}{path}")
        return self.page

    def _note_console(self, message: Any) -> None:
        # A refused form is shown by the page; the browser also lists its status.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.faults.append(f"console: {message.text}")

    def _note_request(self, request: Any) -> None:
        if not request.url.startswith((self._url, "data:")):
            self.faults.append(f"request to {request.url}")


@pytest_asyncio.fixture(loop_scope="session")
async def window(site: Site, browser: Browser) -> AsyncIterator[Window]:
    """A window on the dashboard: no console error, no violation of the policy, no request elsewhere."""
    context: BrowserContext = await browser.new_context(
        viewport={"width": 1400, "height": 900}, locale="en-GB", timezone_id="Europe/Berlin", reduced_motion="reduce"
    )
    window = Window(await context.new_page(), site.url)
    yield window
    await context.close()
    assert window.faults == []
