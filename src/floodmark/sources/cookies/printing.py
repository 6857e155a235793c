"""Prints a page of ours as PDF in a running browser. Runs in the browser's process.

The page is a file; it may run no script and load nothing else, whatever it contains.
"""

from pathlib import Path

from playwright.async_api import Browser, Error, Route

from .messages import PrintOrder
from .phase import first_line, is_gone
from .scan import Crashed, PageUnreachable

_FOOTER = """<div style="width:100%;font:7.5pt sans-serif;color:#5b6472;padding:0 15mm;display:flex;
justify-content:space-between"><span class="title"></span>
<span>page <span class="pageNumber"></span> of <span class="totalPages"></span></span></div>"""
_MARGINS = {"top": "18mm", "bottom": "20mm", "left": "15mm", "right": "15mm"}


async def print_page(browser: Browser, order: PrintOrder) -> None:
    """Write the PDF of a page; raise `PageUnreachable` if that fails, `Crashed` if the browser has ended."""
    source = Path(order.page).as_uri()

    async def refuse_others(route: Route) -> None:
        await (route.continue_() if route.request.url == source else route.abort())

    try:
        context = await browser.new_context(java_script_enabled=False, offline=True, service_workers="block")
        try:
            await context.route("**/*", refuse_others)
            page = await context.new_page()
            page.set_default_timeout(order.seconds * 1000)
            await page.goto(source, wait_until="load")
            await page.pdf(
                path=order.out,
                format="A4",
                print_background=True,
                display_header_footer=True,
                header_template="<span></span>",
                footer_template=_FOOTER,
                margin=_MARGINS,  # type: ignore[arg-type] # a typed dict of Playwright
                outline=True,
                tagged=True,
            )
        finally:
            await context.close()
    except Error as error:
        if is_gone(browser, error):
            raise Crashed(first_line(error)) from error
        raise PageUnreachable(f"the page cannot be printed: {first_line(error)}") from error
