"""Prints a page as PDF in a Chromium of this machine, started for it and ended after it."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floodmark.settings import Settings

_SECONDS = 600.0


class ChromiumPrinter:
    """Prints pages; `BrowserMissing`, which names an install command, if this machine has no Chromium."""

    def __init__(self, settings: "Settings") -> None:
        self._settings = settings

    async def print(self, page: Path, out: Path) -> None:
        """Write the PDF of the HTML file `page` to `out`."""
        # Every command imports this module, and few print.
        from floodmark.sources.cookies.messages import PrintOrder  # noqa: PLC0415
        from floodmark.sources.cookies.pool import Pool  # noqa: PLC0415
        from floodmark.sources.cookies.source import browser_rules  # noqa: PLC0415

        pool = Pool(browser_rules(self._settings))
        try:
            await pool.print(PrintOrder(page=str(page), out=str(out), seconds=_SECONDS))
        finally:
            await pool.close()
