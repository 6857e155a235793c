"""Handlers of the reports of cookie scans."""

from contextlib import suppress

from msgspec.structs import replace

from floodmark.errors import Conflict, InvalidInput, NotFound
from floodmark.model.cookie_reports import CookieReport
from floodmark.operations.reports import ReportOperations
from floodmark.sources.cookies.blobs import Blobs
from floodmark.sources.cookies.difference import ScanDifference, difference
from floodmark.sources.cookies.params import normalize_domain
from floodmark.sources.cookies.report import upgrade_report
from floodmark.sources.cookies.stored_reports import KeptScan, Scans

from .base import Handlers

SCHEMA = "floodmark.cookies/"


class ReportHandlers(ReportOperations, Handlers):
    """Reports in the store."""

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
