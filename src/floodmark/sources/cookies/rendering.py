"""Renders pages of crawls in a running browser. Runs in the browser's process.

Pages of one site share a context and a tab, as in a visitor's browser, which costs a third of a new one for each page.
Another site gets a new context. Pictures, fonts and media are not loaded.
"""

import asyncio
import time
from typing import Any

from playwright.async_api import Browser, BrowserContext, Error, Page
from playwright.async_api import TimeoutError as PlaywrightTimeout

from .messages import RenderedPage, RenderOrder
from .phase import first_line, is_gone
from .scan import Crashed, PageUnreachable

NETWORK = "network"
"""The name of a wait until the network is quiet."""
# Without a wait that the job names: the text must not change for this long, for at most this long in all.
_STILL_SECONDS, _MOST_STILL_SECONDS, _POLL_SECONDS = 0.3, 5.0, 0.1
# In addition to the time-outs of Playwright, which a page with an endless script can delay.
_EXTRA_SECONDS = 15.0
_CLOSE_SECONDS = 10.0
# Pages after which a context is replaced: scripts leave more and more behind.
_PAGES_EACH = 50
_BLOCKED = [
    f"*.{ending}{rest}"
    for ending in (
        "png",
        "jpg",
        "jpeg",
        "gif",
        "webp",
        "avif",
        "ico",
        "woff",
        "woff2",
        "ttf",
        "otf",
        "mp4",
        "webm",
        "mp3",
    )
    for rest in ("", "?*")
]
_CONTENT = """most => {
    const root = document.documentElement;
    const type = document.doctype ? "<!DOCTYPE html>" : "";
    return [document.contentType, root ? (type + root.outerHTML).slice(0, most + 1) : ""];
}"""
_LENGTH = "() => document.body ? document.body.innerText.length : 0"


class Renderer:
    """Renders one page at a time."""

    def __init__(self, browser: Browser, user_agent: str) -> None:
        self._browser, self._user_agent = browser, user_agent
        self._site = ""
        self._context: BrowserContext | None = None
        self._page: Page | None = None
        self._pages = 0

    async def render(self, order: RenderOrder) -> RenderedPage:
        """Load a page and return its content after its scripts have run; raise `PageUnreachable` if it cannot."""
        try:
            async with asyncio.timeout(order.page_seconds + order.wait_seconds + _EXTRA_SECONDS):
                return await self._render(order)
        except TimeoutError:
            if not await self.close():
                raise Crashed("the browser does not respond") from None
            raise PageUnreachable("its scripts do not end") from None
        except Error as error:
            if is_gone(self._browser, error):
                raise Crashed(first_line(error)) from error
            await self.close()
            raise PageUnreachable(first_line(error)) from error

    async def close(self) -> bool:
        """Close the context; return False if that is not possible."""
        context, self._context, self._page = self._context, None, None
        if context is None:
            return True
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await context.close()
        except (Error, TimeoutError):
            return False
        return True

    async def _render(self, order: RenderOrder) -> RenderedPage:
        page = await self._open_page(order)
        self._pages += 1
        response = await page.goto(order.url, wait_until="commit", timeout=order.page_seconds * 1000)
        is_complete = await self._wait(page, order)
        media_type, html = await page.evaluate(_CONTENT, order.most_characters)
        found = RenderedPage(
            url=page.url,
            status=0 if response is None else response.status,
            media_type=str(media_type),
            html=str(html)[: order.most_characters],
            is_cut=len(html) > order.most_characters,
            is_complete=is_complete,
        )
        # Its scripts and timers end here.
        await page.goto("about:blank")
        return found

    async def _open_page(self, order: RenderOrder) -> Page:
        if self._page is None or order.site != self._site or self._pages >= _PAGES_EACH:
            await self.close()
            agent = f"{self._user_agent} {order.agent}".strip()
            self._context = await self._browser.new_context(
                user_agent=agent, accept_downloads=False, service_workers="block"
            )
            self._page, self._site, self._pages = await self._context.new_page(), order.site, 0
            session = await self._context.new_cdp_session(self._page)
            await session.send("Network.enable")
            await session.send("Network.setBlockedURLs", {"urls": _BLOCKED})
        return self._page

    async def _wait(self, page: Page, order: RenderOrder) -> bool:
        """Wait until the page is complete; return False if it was not in time."""
        try:
            if order.wait_for == NETWORK:
                await page.wait_for_load_state("networkidle", timeout=order.wait_seconds * 1000)
            elif order.wait_for:
                await page.wait_for_selector(order.wait_for, state="attached", timeout=order.wait_seconds * 1000)
            else:
                await page.wait_for_load_state("load", timeout=order.wait_seconds * 1000)
                await _wait_until_still(page)
        except PlaywrightTimeout:
            return False
        return True


async def _wait_until_still(page: Page) -> None:
    until, length = time.monotonic() + _MOST_STILL_SECONDS, -1
    since = time.monotonic()
    while time.monotonic() < until:
        found: Any = await page.evaluate(_LENGTH)
        if found != length:
            length, since = found, time.monotonic()
        elif time.monotonic() - since >= _STILL_SECONDS:
            return
        await asyncio.sleep(_POLL_SECONDS)
