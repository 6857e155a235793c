"""Handlers of the reports of cookie scans."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from msgspec.structs import replace

from floodmark.errors import Conflict, InvalidInput, NotFound
from floodmark.model.cookie_portfolio import PortfolioDomain, PortfolioReport
from floodmark.model.cookie_reports import CookieReport
from floodmark.model.page import Page, cursor_of, last_key
from floodmark.operations.reports import ReportOperations
from floodmark.sources.cookies.blobs import Blobs
from floodmark.sources.cookies.difference import ScanDifference, difference
from floodmark.sources.cookies.params import normalize_domain
from floodmark.sources.cookies.portfolio import summarize
from floodmark.sources.cookies.portfolio_store import READ_AT_ONCE, PortfolioScans
from floodmark.sources.cookies.report import upgrade_report
from floodmark.sources.cookies.stored_reports import KeptScan, Scans
from floodmark.store.dialects import chunks

from .base import Handlers

SCHEMA = "floodmark.cookies/"
_PORTFOLIO = "cookie-portfolio"
# The most domains of a page: their reports may be large.
_MOST_DOMAINS = 50


class ReportHandlers(ReportOperations, Handlers):
    """Reports in the store."""

    async def cookie_portfolio(
        self, *, since: datetime | None = None, cursor: str | None = None, limit: int = 20
    ) -> Page[PortfolioDomain]:
        portfolio, limit = PortfolioScans(self.resources.database), min(limit, _MOST_DOMAINS)
        streams = await portfolio.streams(last_key(_PORTFOLIO, cursor, str) or "", limit + 1)
        shown = streams[:limit]
        newest, earlier = await portfolio.newest(shown), await self._earlier(portfolio, shown, since)
        rows: list[PortfolioDomain] = []
        for some in chunks(shown, READ_AT_ONCE):
            now = await self._read(portfolio, newest, some)
            before = await self._read(portfolio, earlier, some)
            rows += [summarize(now[stream], before.get(stream)) for stream in some if stream in now]
        return Page(rows, cursor_of(_PORTFOLIO, shown[-1] if len(streams) > limit else None))

    async def _earlier(
        self, portfolio: PortfolioScans, streams: Sequence[str], since: datetime | None
    ) -> dict[str, str]:
        """Return the scans to compare with."""
        if since is not None:
            return await portfolio.newest(streams, since)
        made = await portfolio.reports(1)
        return await portfolio.reported(made[0].report_id, streams) if made else {}

    async def _read(
        self, portfolio: PortfolioScans, keys: Mapping[str, str], streams: Sequence[str]
    ) -> dict[str, KeptScan]:
        found = await portfolio.read({stream: keys[stream] for stream in streams if stream in keys})
        return {
            stream: replace(kept, report=upgrade_report(kept.report))
            for stream, kept in found.items()
            if _is_report(kept)
        }

    async def portfolio_reports(self, *, limit: int = 10) -> list[PortfolioReport]:
        return await PortfolioScans(self.resources.database).reports(limit)

    async def record_portfolio_report(
        self,
        scans: dict[str, str],
        *,
        format: str,  # noqa: A002 - the word that fits
        findings: int = 0,
        sha256: str | None = None,
    ) -> PortfolioReport:
        made = PortfolioReport(
            report_id=0,
            made_at=self.resources.clock.now(),
            made_by=self.actor.who,
            format=format,
            domains=len(scans),
            findings=findings,
            sha256=sha256,
        )
        async with self.transaction():
            report = await PortfolioScans(self.resources.database).record(made, scans)
            after = {"format": format, "domains": len(scans), "findings": findings, "sha256": sha256}
            await self.record("portfolio.recorded", f"portfolio:{report.report_id}", after=after)
        return report

    async def cookie_report(self, domain: str, scan: str | None = None) -> CookieReport:
        found = await self._newest(domain, scan, limit=2)
        earlier = found[1].scan if len(found) > 1 else None
        return CookieReport(scan=found[0].scan, stream=found[0].stream, earlier=earlier, report=found[0].report)

    async def cookie_page(self, domain: str, scan: str | None = None) -> bytes:
        return await self.cookie_file(domain, "report.html", scan)

    async def cookie_file(self, domain: str, name: str, scan: str | None = None) -> bytes:
        report = await self.cookie_report(domain, scan)
        if name not in report.files:
            raise NotFound(f"the report has no file {name[:60]!r}", hint=f"there are: {', '.join(report.files)}")
        digest = report.files[name]["sha256"]
        found = await Blobs(self.resources.database).read([digest])
        if digest not in found:
            raise NotFound(f"{name} of this scan is no longer stored", hint="the report itself is: leave out the file")
        return found[digest].content

    async def cookie_difference(
        self, domain: str, scan: str | None = None, against: str | None = None
    ) -> ScanDifference:
        found = await self._newest(domain, scan, limit=2)
        if against is not None:
            [other] = await self._newest(domain, against, limit=1)
        elif len(found) > 1:
            other = found[1]
        else:
            raise Conflict(
                f"there is only one scan of {domain[:100]}, so there is nothing to compare it with",
                hint="scan it again: floodmark run JOB --wait",
            )
        return difference(other.report, found[0].report)

    async def _newest(self, domain: str, scan: str | None, *, limit: int) -> list[KeptScan]:
        for stream in await self._streams(domain):
            found = [
                kept
                for kept in await Scans(self.resources.database).newest(stream, scan=scan, limit=limit)
                if _is_report(kept)
            ]
            if found:
                return [replace(kept, report=upgrade_report(kept.report)) for kept in found]
        if scan is not None:
            raise NotFound(
                f"there is no scan {scan[:60]!r} of {domain[:100]}",
                hint="leave it out for the last one; `earlier` of a report is the previous one",
            )
        raise NotFound(f"there is no scan of {domain[:100]} yet", hint=await self._what_to_do(domain))

    async def _what_to_do(self, domain: str) -> str:
        jobs = await self.store.jobs.find(source="cookies", text=domain, limit=1)
        if jobs:
            return f"its job has not finished one: floodmark run {jobs[0].name} --wait"
        return f"add a scan: floodmark add cookies {domain[:100]}"

    async def _streams(self, text: str) -> list[str]:
        """Return the streams that may have the scans: of the domain, and of a job or stream of that name."""
        try:
            found = [f"cookies:{normalize_domain(text)}"]
        except InvalidInput:
            found = []
        # There may be no job or stream of that name.
        with suppress(NotFound, InvalidInput, Conflict):
            found.append(await self.find_items_stream(text))
        return found


def _is_report(kept: KeptScan) -> bool:
    """Return whether it is a report: a stream of this name may contain something else."""
    report: object = kept.report
    return isinstance(report, dict) and str(report.get("schema", "")).startswith(SCHEMA)
