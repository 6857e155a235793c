"""Pages rendered in the browsers of a worker, compared with Playwright alone.

python run.py bench render [pages] [rounds]

Each page loads its content by a request of a script, 100 ms after it was loaded. Both wait for the same element in the
same Chromium. Playwright opens a new page in one context for each URL, as its documentation shows, and has no guard;
Floodmark sends every request of the browser through its guarded proxy. CPU time is that of all processes that have
ended, including their start.
"""

import os
import resource
import sys
import time
from statistics import median

from msgspec import Struct
from playwright.async_api import async_playwright

from floodmark.sources.cookies.browser import find_chromium
from floodmark.sources.cookies.messages import BrowserRules, RenderOrder
from floodmark.sources.cookies.pool import Pool
from floodmark.testing.web import Site

from ._measuring import Report, interleaved, ratio, run

_PAGE = """<!doctype html><title>Shop</title><div id=app></div><script>
setTimeout(() => fetch('/data').then(r => r.text()).then(t => {
    document.querySelector('#app').innerHTML = '<p class=loaded>' + t + '</p>';
}), 100);
</script>"""


class Rendered(Struct, frozen=True):
    """A pass: seconds per page after the first one, and CPU seconds per page in all."""

    wall: float
    cpu: float


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


async def bare(urls: list[str], chromium: str) -> Rendered:
    """Render by Playwright alone."""
    began = _cpu()
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium, chromium_sandbox=False)
        context = await browser.new_context()
        started = 0.0
        for number, url in enumerate(urls):
            if number == 1:
                started = time.perf_counter()
            page = await context.new_page()
            await page.goto(url, wait_until="commit")
            await page.wait_for_selector(".loaded", state="attached")
            assert "Words" in await page.content()
            await page.close()
        wall = time.perf_counter() - started
        await browser.close()
    return Rendered(wall / (len(urls) - 1), (_cpu() - began) / len(urls))


async def ours(urls: list[str], chromium: str) -> Rendered:
    """Render by the browsers of a worker."""
    began = _cpu()
    pool = Pool(BrowserRules(chromium=chromium, sandbox=False, allow_hosts="127.0.0.1"))
    started = 0.0
    for number, url in enumerate(urls):
        if number == 1:
            started = time.perf_counter()
        order = RenderOrder(
            url=url, site="bench", wait_for=".loaded", page_seconds=60, wait_seconds=60, most_characters=10**7
        )
        assert "Words" in (await pool.render(order)).html
    wall = time.perf_counter() - started
    await pool.close()
    return Rendered(wall / (len(urls) - 1), (_cpu() - began) / len(urls))


async def main(pages: int, rounds: int) -> None:
    chromium = str(find_chromium(os.environ.get("FLOODMARK_CHROMIUM"), os.environ))
    async with Site() as site:
        for number in range(pages):
            site.put(f"/{number}", _PAGE, content_type="text/html")
        site.put("/data", "Words. " * 200, content_type="text/plain")
        urls = [f"{site.url}/{number}" for number in range(pages)]
        reference, measured = await interleaved(rounds, lambda: bare(urls, chromium), lambda: ours(urls, chromium))
    report = Report(f"{pages:,} pages with a script, medians of {rounds} rounds")
    for name, field in (("seconds per page", "wall"), ("CPU seconds per page", "cpu")):
        found, other = ([getattr(one, field) for one in passes] for passes in (measured, reference))
        report.add(name, f"{median(found):.3f} s", f"{median(other):.3f} s by Playwright", ratio(found, other))
    report.print()


if __name__ == "__main__":
    asked = [int(argument) for argument in sys.argv[1:]]
    run(lambda: main(*(asked + [40, 3][len(asked) :])))
