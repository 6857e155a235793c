"""The portfolio: the last cookie scans of all domains, and reports over them to download."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from starlette.responses import Response, StreamingResponse

from floodmark.dashboard.actions import first, read_form
from floodmark.dashboard.downloads import count_download
from floodmark.dashboard.page import page
from floodmark.dashboard.view import View
from floodmark.exports.portfolio.printer import ChromiumPrinter
from floodmark.exports.portfolio.request import PortfolioRequest, format_of
from floodmark.exports.portfolio.words import describe_earlier, link_to_server
from floodmark.exports.portfolio.writing import write_portfolio
from floodmark.sources.cookies.browser import BrowserMissing, require_browser
from floodmark.sources.cookies.severity import SEVERITIES, SEVERITY_MEANING, SEVERITY_WORDS

MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "pdf": "application/pdf",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "csv": "text/csv; charset=utf-8",
}
_PIECE = 256 * 1024


@page("/portfolio", "portfolio.html")
async def show_portfolio(view: View) -> Mapping[str, Any]:
    """List the scanned domains with their findings, and the formats of a report."""
    return {
        "rows": await view.operations.cookie_portfolio(cursor=view.query("cursor"), limit=25),
        "made": await view.operations.portfolio_reports(limit=5),
        "severities": SEVERITIES,
        "words": SEVERITY_WORDS,
        "meanings": SEVERITY_MEANING,
        "has_browser": _has_browser(view),
    }


@page("/portfolio/file", "portfolio.html", shared=False, methods=("GET", "POST"))
async def send_portfolio(view: View) -> Response:
    """Send a report as a file. One that is requested by a form is recorded, if the form says so."""
    is_form = view.request.method == "POST"
    form = await read_form(view.request) if is_form else {}
    chosen = format_of(first(form, "format") if is_form else view.query("format"), None)
    # The browser leaves out a box that is not checked.
    is_recorded = is_form and first(form, "record") != ""
    with count_download(view):
        folder = TemporaryDirectory(prefix="floodmark-portfolio-", ignore_cleanup_errors=True)
        try:
            out = Path(folder.name) / f"cookies.{chosen}"
            request = PortfolioRequest(
                format=chosen,
                out=out,
                earlier=await describe_earlier(view.operations, None),
                made_at=view.now,
                link=link_to_server(_address(view)),
            )
            written = await write_portfolio(view.operations, request, ChromiumPrinter(view.resources.settings))
            if is_recorded:
                findings = sum(written.totals.findings.values())
                await view.operations.record_portfolio_report(
                    written.scans, format=chosen, findings=findings, sha256=written.sha256
                )
        except BaseException:
            folder.cleanup()
            raise
    name = f"cookie-report-{view.now:%Y-%m-%d-%H%M}.{chosen}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(_pieces(folder, out), headers=headers, media_type=MEDIA_TYPES[chosen])


async def _pieces(folder: "TemporaryDirectory[str]", out: Path) -> AsyncIterator[bytes]:
    try:
        with out.open("rb") as file:
            while piece := await asyncio.to_thread(file.read, _PIECE):
                yield piece
    finally:
        folder.cleanup()


def _address(view: View) -> str:
    public, url = view.resources.settings.api_public_url, view.request.url
    return f"{url.scheme}://{url.netloc}{view.prefix}" if public is None else str(public)


def _has_browser(view: View) -> bool:
    try:
        require_browser(view.resources.settings.floodmark_chromium, os.environ)
    except BrowserMissing:
        return False
    return True


PAGES = (show_portfolio, send_portfolio)
