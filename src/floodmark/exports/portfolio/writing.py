"""Writes a report over all domains, page by page, so that the memory does not grow with their number.

The file gets its name when it is complete. Only the names of the scans and a short row for each domain are kept.
"""

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Protocol

from floodmark.errors import InvalidInput, NotFound
from floodmark.model.cookie_portfolio import PortfolioDomain
from floodmark.operations.declared import AsyncOperations

from .page import PortfolioPage
from .request import PortfolioRequest, PortfolioTotals, PortfolioWritten
from .sheets import PortfolioBook, PortfolioCsv

_DOMAINS_AT_ONCE = 20
_PIECE = 1024 * 1024


class PortfolioFile(Protocol):
    """A file that is being written."""

    def add(self, row: PortfolioDomain) -> None:
        """Add a domain."""
        ...

    def close(self, totals: PortfolioTotals) -> None:
        """Write the rest. The stream stays open."""
        ...

    def release(self) -> None:
        """Close temporary files, once: after `close`, or after an error."""
        ...


class Printer(Protocol):
    """Makes a PDF of a page."""

    async def print(self, page: Path, out: Path) -> None:
        """Write the PDF of the HTML file `page` to `out`."""
        ...


def open_file(request: PortfolioRequest, stream: IO[bytes], folder: Path) -> PortfolioFile:
    """Return a file of the format; `folder` is for temporary files."""
    if request.format == "csv":
        return PortfolioCsv(stream, request)
    if request.format == "xlsx":
        return PortfolioBook(stream, request, folder)
    return PortfolioPage(stream, request, folder)


async def write_portfolio(
    operations: AsyncOperations,
    request: PortfolioRequest,
    printer: Printer,
    progress: Callable[[PortfolioDomain], None] = lambda row: None,
) -> PortfolioWritten:
    """Write the report; `NotFound` if there are no scans."""
    totals, scans = PortfolioTotals(), dict[str, str]()
    with TemporaryDirectory(prefix="floodmark-portfolio-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        draft = folder / "draft"
        with draft.open("wb") as stream:
            file = open_file(request, stream, folder)
            try:
                async for row in operations.each_cookie_portfolio(since=request.since, limit=_DOMAINS_AT_ONCE):
                    totals.add(row)
                    scans[row.stream] = row.scan
                    await asyncio.to_thread(file.add, row)
                    progress(row)
                if not scans:
                    raise NotFound("no domain was scanned yet", hint="add a scan: floodmark add cookies DOMAIN")
                await asyncio.to_thread(file.close, totals)
            finally:
                await asyncio.to_thread(file.release)
        if request.format == "pdf":
            page, draft = draft.rename(folder / "page.html"), folder / "page.pdf"
            await printer.print(page, draft)
        digest = await asyncio.to_thread(_move, draft, request.out)
    return PortfolioWritten(totals=totals, sha256=digest, scans=scans)


def _move(draft: Path, out: Path) -> str:
    """Copy the file to its place in one step, and return its digest."""
    digest, beside = hashlib.sha256(), out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        with draft.open("rb") as source, beside.open("wb") as target:
            while piece := source.read(_PIECE):
                digest.update(piece)
                target.write(piece)
            target.flush()
            os.fsync(target.fileno())
        beside.replace(out)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InvalidInput(f"cannot write {out}: {error.strerror}", hint="name another file: --out FILE") from None
    return digest.hexdigest()
