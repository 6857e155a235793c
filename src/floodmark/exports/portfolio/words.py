"""Words that the formats of a report share."""

from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import quote

from floodmark.model.cookie_portfolio import PortfolioDomain
from floodmark.operations.declared import AsyncOperations
from floodmark.sources.cookies.assessment import format_count
from floodmark.sources.cookies.severity import SEVERITIES, SEVERITY_WORDS

from .request import EvidenceLink, PortfolioTotals

STATE_WORDS = {"new": "new", "known": "as before", "first": "first report"}


def format_time(time: datetime | None) -> str:
    """Return a time for people."""
    return "" if time is None else f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


async def describe_earlier(operations: AsyncOperations, since: datetime | None) -> str:
    """Return what a report is compared with, in words; empty if with nothing."""
    if since is not None:
        return f"the scans until {format_time(since)}"
    made = await operations.portfolio_reports(limit=1)
    return f"report {made[0].report_id} of {format_time(made[0].made_at)}" if made else ""


def evidence_command(row: PortfolioDomain) -> str:
    """Return the command that shows the report of a scan."""
    return f"floodmark report cookies {row.domain} --scan {row.scan} --open"


def link_to_server(base: str) -> EvidenceLink:
    """Return the links to the reports of a server, such as `https://floodmark.example`."""
    root = base.rstrip("/")

    def link(row: PortfolioDomain) -> str:
        # By stream: the domain of another tenant may have the same name.
        return f"{root}/api/v2/reports/cookies/{quote(row.stream, safe='')}/html?scan={quote(row.scan, safe='')}"

    return link


def total_rows(totals: PortfolioTotals) -> Iterator[tuple[str, str]]:
    """Yield the numbers of a report with their names."""
    yield "Domains", str(totals.domains)
    yield "Scanned", f"{format_time(totals.first_scan)} to {format_time(totals.last_scan)}"
    for severity in SEVERITIES:
        count = totals.findings[severity]
        domains = format_count(totals.affected[severity], "domain")
        yield f"{SEVERITY_WORDS[severity]} findings", f"{count}; the most serious ones of {domains}"
    yield "New findings", str(totals.new)
    yield "Domains without findings", str(totals.clean)
    yield "Incomplete scans", str(totals.incomplete)
