"""How long a page takes in a real browser: until something is painted, and until it is live."""

import os
from statistics import median

from playwright.async_api import Browser, async_playwright

from floodmark.sources.cookies.browser import find_chromium

from ._measuring import Report

ASKED = 5
_OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
# The browser may report the paint a moment later.
_PAINTED = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_BYTES = """[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
  .reduce((sum, one) => sum + one.transferSize, 0)"""
# A page is live once the feed is connected and what it shows is current.
_LIVE = """() => document.getElementById("live").dataset.state === "on" && performance.now()"""


async def measure_painting(report: Report, where: str, url: str) -> None:
    """Open the overview several times, each time in a browser that has nothing of it."""
    async with async_playwright() as playwright:
        path = find_chromium(os.environ.get("FLOODMARK_CHROMIUM"), os.environ)
        browser = await playwright.chromium.launch(executable_path=path, args=_OPTIONS)
        # The first page of a browser takes longer.
        await _open(browser, url)
        found = [await _open(browser, url) for _ in range(ASKED)]
        await browser.close()
    painted, live, size = (sorted(column) for column in zip(*found, strict=True))
    report.add(f"overview: first contentful paint, {where}", f"{painted[0]:.0f} / {median(painted):.0f} ms")
    report.add(f"overview: live data, {where}", f"{live[0]:.0f} / {median(live):.0f} ms")
    report.add(f"overview: bytes of a first visit, {where}", f"{median(size) / 1000:.0f} KB")


async def _open(browser: Browser, url: str) -> tuple[float, float, float]:
    context = await browser.new_context(viewport={"width": 1400, "height": 900})
    page = await context.new_page()
    await page.goto(url)
    live = await (await page.wait_for_function(_LIVE, timeout=60_000)).json_value()
    painted = await (await page.wait_for_function(_PAINTED, timeout=60_000)).json_value()
    size = await page.evaluate(_BYTES)
    await context.close()
    return float(painted), float(live), float(size)
