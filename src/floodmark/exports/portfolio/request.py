"""A report over all domains: what is asked for, and what was written."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct, field

from floodmark.errors import InvalidInput
from floodmark.model.cookie_portfolio import PortfolioDomain
from floodmark.sources.cookies.severity import SEVERITIES

PortfolioFormat = Literal["html", "pdf", "xlsx", "csv"]
FORMATS: tuple[PortfolioFormat, ...] = get_args(PortfolioFormat)

EvidenceLink = Callable[[PortfolioDomain], str | None]
"""Returns where the report of a scan can be opened; None if that is not known."""


def no_link(row: PortfolioDomain) -> str | None:
    """Return None: the address of the installation is not known."""
    return None


class PortfolioRequest(Struct, frozen=True, kw_only=True):
    """A report to write. `earlier` says in words what it is compared with; empty if with nothing."""

    format: PortfolioFormat
    out: Path
    since: datetime | None = None
    earlier: str = ""
    made_at: datetime
    link: EvidenceLink = no_link


class PortfolioTotals(Struct):
    """The numbers of a report, counted while it is written."""

    domains: int = 0
    clean: int = 0
    """Domains without findings."""
    incomplete: int = 0
    changed: int = 0
    affected: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SEVERITIES, 0))
    """Domains by the severity of their most serious finding."""
    findings: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SEVERITIES, 0))
    new: int = 0
    first_scan: datetime | None = None
    last_scan: datetime | None = None

    def add(self, row: PortfolioDomain) -> None:
        """Count a domain."""
        self.domains += 1
        self.clean += not row.findings
        self.incomplete += row.result != "scan complete"
        self.changed += row.has_changed
        if row.severity is not None:
            self.affected[row.severity] += 1
        for finding in row.findings:
            self.findings[finding.severity] += 1
            self.new += finding.state == "new"
        times = [time for time in (self.first_scan, self.last_scan, row.scanned_at) if time is not None]
        self.first_scan, self.last_scan = min(times), max(times)


class PortfolioWritten(Struct, frozen=True, kw_only=True):
    """What was written: the numbers, the digest of the file, and the scans in it by stream."""

    totals: PortfolioTotals
    sha256: str
    scans: dict[str, str]


def format_of(name: str | None, out: Path | None) -> PortfolioFormat:
    """Return the format of this name, or of the suffix of the file."""
    wanted = name or ("" if out is None else out.suffix.removeprefix(".")) or "html"
    found = next((one for one in FORMATS if one == wanted.lower()), None)
    if found is None:
        raise InvalidInput(f"{wanted[:40]!r} is not a format", hint=f"use one of: --format {', '.join(FORMATS)}")
    return found
