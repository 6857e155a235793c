"""Reports of cookie scans. A scan is named by its key; without a key it is the last one."""

from typing import Annotated

from floodmark.model.cookie_reports import CookieReport
from floodmark.sources.cookies.difference import ScanDifference

from .declaration import Path, Query, get
from .words import Text

_TAG = "Reports"

Domain = Annotated[Text, Path("A domain, or the job or stream of its scans.", examples=["example.com"])]
Scan = Annotated[str | None, Query("The key of a scan; the last one, if left out.", max_length=100)]


class ReportOperations:
    """Read the reports of cookie scans."""

    @get("/reports/cookies/{domain}", tag=_TAG, operation_id="show_cookie_report", is_content=True)
    async def cookie_report(self, domain: Domain, scan: Scan = None) -> CookieReport:
        """Show a cookie report. It is of the last scan of a domain, or of the given one."""

    @get(
        "/reports/cookies/{domain}/difference",
        tag=_TAG,
        operation_id="compare_cookie_scans",
        is_content=True,
        answers={409: "There is only one scan."},
    )
    async def cookie_difference(
        self,
        domain: Domain,
        scan: Scan = None,
        against: Annotated[
            str | None, Query("The key of the other scan; the previous one, if left out.", max_length=100)
        ] = None,
    ) -> ScanDifference:
        """Compare two cookie scans. The answer has what is new, gone or changed since the earlier scan."""

    @get("/reports/cookies/{domain}/html", tag=_TAG, operation_id="cookie_report_page", media=("text/html",))
    async def cookie_page(self, domain: Domain, scan: Scan = None) -> bytes:
        """Show a cookie report as a page. The page includes its pictures and loads nothing else."""

    @get(
        "/reports/cookies/{domain}/files/{file}",
        tag=_TAG,
        operation_id="cookie_report_file",
        media=("text/html", "application/json", "image/png"),
    )
    async def cookie_file(
        self,
        domain: Domain,
        name: Annotated[
            str, Path("A name in the manifest.", name="file", min_length=1, max_length=100, examples=["report.html"])
        ],
        scan: Scan = None,
    ) -> bytes:
        """Read a file of a cookie report. The manifest of the report has the names."""
