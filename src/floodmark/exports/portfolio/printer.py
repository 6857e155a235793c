"""Prints a page as PDF in a Chromium of this machine, started for it and ended after it."""

from pathlib import Path

from floodmark.settings import Settings
from floodmark.sources.cookies.messages import PrintOrder
from floodmark.sources.cookies.pool import Pool
from floodmark.sources.cookies.source import browser_rules

_SECONDS = 600.0


class ChromiumPrinter:
    """Prints pages; `BrowserMissing`, which names an install command, if this machine has no Chromium."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def print(self, page: Path, out: Path) -> None:
        """Write the PDF of the HTML file `page` to `out`."""
        pool = Pool(browser_rules(self._settings))
        try:
            await pool.print(PrintOrder(page=str(page), out=str(out), seconds=_SECONDS))
        finally:
            await pool.close()
