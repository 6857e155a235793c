"""The verbs for the reports of cookie scans. They only read."""

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from floodmark.errors import Conflict, InvalidInput, NotFound
from floodmark.model.batch import Blob
from floodmark.sources.cookies.blobs import Blobs
from floodmark.sources.cookies.difference import Difference, difference
from floodmark.sources.cookies.params import canonical
from floodmark.sources.cookies.report import upgraded
from floodmark.sources.cookies.stored_reports import CookieReport, KeptScan, Scans

from .local import LocalOffice
from .port import JobFilter, Office

if TYPE_CHECKING:
    from floodmark.client import Client

SCHEMA = "floodmark.cookies/"


class ReportVerbs(Protocol):
    """What can be asked of scans, here or of a server. A scan is named by its key; without one it is the last."""

    async def cookies(self, domain: str, scan: str | None = None) -> CookieReport:
        """The report of a domain, or of the job or stream of that name."""
        ...

    async def file(self, domain: str, name: str, scan: str | None = None) -> bytes:
        """A file of the report: report.html, report.json, before.png, ..."""
        ...

    async def difference(self, domain: str, scan: str | None = None, against: str | None = None) -> Difference:
        """What is not as it was in the scan before it, or in the one named by `against`."""
        ...


def reports_of(office: Office) -> ReportVerbs:
    """The reports of the installation that an office is for."""
    if isinstance(office, LocalOffice):
        return ReportOffice(office)
    from .remote import RemoteOffice  # noqa: PLC0415 - needs an HTTP client, which a server does not

    assert isinstance(office, RemoteOffice)
    return RemoteReports(office.client)


class ReportOffice:
    """Reads reports from the store."""

    def __init__(self, office: LocalOffice) -> None:
        self._office, self._scans = office, Scans(office.parts.database)

    async def cookies(self, domain: str, scan: str | None = None) -> CookieReport:
        """The report of a domain, or of the job or stream of that name."""
        found = await self._newest(domain, scan, limit=2)
        earlier = found[1].scan if len(found) > 1 else None
        return CookieReport(scan=found[0].scan, stream=found[0].stream, earlier=earlier, report=found[0].report)

    async def file(self, domain: str, name: str, scan: str | None = None) -> bytes:
        """A file of the report: report.html, report.json, before.png, ..."""
        return (await self.blob(domain, name, scan)).content

    async def blob(self, domain: str, name: str, scan: str | None = None) -> Blob:
        """The same with what kind of file it is."""
        report = await self.cookies(domain, scan)
        if name not in report.files:
            raise NotFound(f"the report has no file {name[:60]!r}", hint=f"there are: {', '.join(report.files)}")
        digest = report.files[name]["sha256"]
        found = await Blobs(self._office.parts.database).read([digest])
        if digest not in found:
            raise NotFound(f"{name} of this scan is no longer stored", hint="the report itself is: leave out the file")
        return found[digest]

    async def difference(self, domain: str, scan: str | None = None, against: str | None = None) -> Difference:
        """What is not as it was in the scan before it, or in the one named by `against`."""
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
            found = [kept for kept in await self._scans.newest(stream, scan=scan, limit=limit) if _is_report(kept)]
            if found:
                return [replace(kept, report=upgraded(kept.report)) for kept in found]
        if scan is not None:
            raise NotFound(
                f"there is no scan {scan[:60]!r} of {domain[:100]}",
                hint="leave it out for the last one; `earlier` of a report names the one before it",
            )
        raise NotFound(f"there is no scan of {domain[:100]} yet", hint=await self._what_to_do(domain))

    async def _what_to_do(self, domain: str) -> str:
        jobs = await self._office.jobs(JobFilter(source="cookies", text=domain), limit=1)
        if jobs:
            return f"its job has not finished one: floodmark run {jobs[0].name} --wait"
        return f"let it be scanned: floodmark add cookies {domain[:100]}"

    async def _streams(self, text: str) -> list[str]:
        """Where the scans may be: of the domain itself, and of a job or stream of that name."""
        try:
            found = [f"cookies:{canonical(text)}"]
        except InvalidInput:
            found = []
        # A domain need not be the name of anything else.
        with suppress(NotFound, InvalidInput, Conflict):
            found.append(await self._office.items_stream(text))
        return found


class RemoteReports:
    """The same over HTTP."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    async def cookies(self, domain: str, scan: str | None = None) -> CookieReport:
        """The report of a domain, or of the job or stream of that name."""
        return await self._client.cookie_report(domain, scan)

    async def file(self, domain: str, name: str, scan: str | None = None) -> bytes:
        """A file of the report: report.html, report.json, before.png, ..."""
        return await self._client.cookie_file(domain, name, scan)

    async def difference(self, domain: str, scan: str | None = None, against: str | None = None) -> Difference:
        """What is not as it was in the scan before it, or in the one named by `against`."""
        return await self._client.cookie_difference(domain, scan, against)


def _is_report(kept: KeptScan) -> bool:
    """A stream may have been named by a job of anything."""
    told: object = kept.report
    return isinstance(told, dict) and str(told.get("schema", "")).startswith(SCHEMA)
