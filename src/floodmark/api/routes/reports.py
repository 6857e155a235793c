"""The reports of cookie scans."""

from typing import Annotated, Any

from fastapi import Path as InPath
from fastapi import Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from floodmark.api.deps import Reading
from floodmark.api.routing import answer, router
from floodmark.model.batch import Blob
from floodmark.operations.reports import ReportOffice

reports = router("/reports/cookies", tag="Reports")

# What was found on pages of others is shown, never run, even on our own address.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline'; sandbox",
    "X-Content-Type-Options": "nosniff",
}

Domain = Annotated[
    str,
    InPath(
        description="A domain, or the job or stream of its scans.",
        min_length=1,
        max_length=2000,
        examples=["example.com"],
    ),
]
FileName = Annotated[
    str,
    InPath(description="As the manifest names it.", min_length=1, max_length=100, examples=["report.html"]),
]
Scan = Annotated[str | None, Query(description="The key of a scan; the last one, if left out.", max_length=100)]


class CookieReportOut(BaseModel):
    """The report of one scan."""

    scan: str = Field(description="The key of the scan.")
    stream: str = Field(description="The stream of the scans.")
    earlier: str | None = Field(description="The key of the scan before it.")
    report: dict[str, Any] = Field(
        description="Phases with cookies, storage and requests to third parties; `manifest` names the files."
    )


class CookieOut(BaseModel):
    """A cookie, in short."""

    name: str
    domain: str
    path: str
    party: str = Field(description="`first` or `third`.")
    purpose: str = Field(description="`unknown` if it is not a cookie that is well known.")
    vendor: str | None
    lifetime_seconds: int | None = Field(description="Null: until the browser is closed.")


class ChangedCookieOut(BaseModel):
    """A cookie whose attributes are not as they were."""

    name: str
    domain: str
    fields: dict[str, list[Any]] = Field(description="What each attribute was, and what it is.")


class CookiePhaseOut(BaseModel):
    """What differs in one phase."""

    phase: str = Field(description="`before` consent, after `accept` or after `reject`.")
    results: list[str] | None = Field(description="How the phase went before and now, if that is not the same.")
    new_cookies: list[CookieOut]
    gone_cookies: list[CookieOut]
    changed_cookies: list[ChangedCookieOut]
    new_hosts: list[str] = Field(description="Hosts of third parties.")
    gone_hosts: list[str]
    new_keys: list[str] = Field(description="In local or session storage: origin, area, key.")
    gone_keys: list[str]


class CookieDifferenceOut(BaseModel):
    """What differs between two scans of a domain."""

    domain: str
    earlier: str = Field(description="When the earlier scan was made.")
    later: str = Field(description="When the later scan was made.")
    summary: list[str] = Field(description="In sentences; empty if nothing differs.")
    phases: list[CookiePhaseOut]


def _content(*kinds: str) -> dict[int | str, dict[str, Any]]:
    schema = {"schema": {"type": "string", "format": "binary"}}
    return {200: {"content": dict.fromkeys(kinds, schema), "description": "The file."}}


@reports.get("/{domain}", response_model=CookieReportOut, summary="Show a cookie report")
async def show_cookie_report(office: Reading, domain: Domain, scan: Scan = None) -> Response:
    """What the last scan of a domain found, or the one that is named."""
    return answer(await ReportOffice(office).cookies(domain, scan), is_content=True)


@reports.get(
    "/{domain}/difference",
    response_model=CookieDifferenceOut,
    responses={409: {"description": "There is only one scan."}},
    summary="Compare two cookie scans",
)
async def compare_cookie_scans(
    office: Reading,
    domain: Domain,
    scan: Scan = None,
    against: Annotated[
        str | None, Query(description="The key of the other scan; the one before it, if left out.", max_length=100)
    ] = None,
) -> Response:
    """What is new, gone or changed since the scan before."""
    return answer(await ReportOffice(office).difference(domain, scan, against), is_content=True)


@reports.get(
    "/{domain}/html",
    response_class=Response,
    responses=_content("text/html"),
    summary="Show a cookie report as a page",
)
async def cookie_report_page(office: Reading, domain: Domain, scan: Scan = None) -> Response:
    """The report with its pictures, as one page that needs nothing else."""
    return _file(await ReportOffice(office).blob(domain, "report.html", scan))


@reports.get(
    "/{domain}/files/{file}",
    response_class=Response,
    responses=_content("text/html", "application/json", "image/png"),
    summary="Read a file of a cookie report",
)
async def cookie_report_file(office: Reading, domain: Domain, file: FileName, scan: Scan = None) -> Response:
    """A file that the manifest of the report names."""
    return _file(await ReportOffice(office).blob(domain, file, scan))


def _file(blob: Blob) -> Response:
    return Response(blob.content, media_type=blob.media_type, headers={**_HEADERS, "ETag": f'"{blob.sha256}"'})
