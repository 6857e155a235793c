"""Reports of cookie scans. A scan is named by its key; without a key it is the last one."""

from typing import Annotated

from floodmark.model.cookie_portfolio import PortfolioDomain, PortfolioReport
from floodmark.model.cookie_reports import CookieReport
from floodmark.model.page import Page
from floodmark.sources.cookies.difference import ScanDifference

from .declaration import WHOLE_LIST, Body, Each, Path, Query, get, post
from .exports import Moment
from .words import Cursor, Label, Limit, Text

_TAG = "Reports"
# The most domains of a report over all of them.
MOST_SCANS = 50_000

Domain = Annotated[Text, Path("A domain, or the job or stream of its scans.", examples=["example.com"])]
Scan = Annotated[str | None, Query("The key of a scan; the last one, if left out.", max_length=100)]


class ReportOperations:
    """Read the reports of cookie scans."""

    @get("/reports/portfolio", tag=_TAG, operation_id="list_cookie_portfolio", is_content=True)
    async def cookie_portfolio(
        self,
        *,
        since: Annotated[
            Moment | None,
            Query("Compare with the last scan until this time; with the last report that was recorded, if left out."),
        ] = None,
        cursor: Cursor = None,
        limit: Limit = 20,
    ) -> Page[PortfolioDomain]:
        """List the last cookie scans of all domains. Each has its findings and its changes. A page may be short."""

    each_cookie_portfolio = Each(cookie_portfolio)

    @get("/reports/portfolio/made", tag=_TAG, operation_id="list_portfolio_reports", envelope=WHOLE_LIST)
    async def portfolio_reports(
        self, *, limit: Annotated[int, Query("The maximum number; there is no next page.", ge=1, le=50)] = 10
    ) -> list[PortfolioReport]:
        """List the reports over all domains that were recorded. The newest comes first."""

    @post("/reports/portfolio/made", tag=_TAG, status=201, body=("PortfolioReportIn", "A report that was made."))
    async def record_portfolio_report(
        self,
        scans: Annotated[
            dict[str, str],
            Body(
                "The scans in it: the key of a scan for each stream.",
                min_length=1,
                max_length=MOST_SCANS,
                examples=[{"cookies:example.com": "5c0f8f9e-0c2b-4a53-9f54-0f6a1c5f5a51"}],
            ),
        ],
        *,
        format: Annotated[Label, Body("The format of the file.", examples=["pdf"])],  # noqa: A002 - the word that fits
        findings: Annotated[int, Body("The number of findings.", ge=0, examples=[3])] = 0,
        sha256: Annotated[
            str | None, Body("The digest of the file.", pattern="^[0-9a-f]{64}$", examples=["0" * 64])
        ] = None,
    ) -> PortfolioReport:
        """Record a report over all domains. The next one shows what has changed since."""

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
