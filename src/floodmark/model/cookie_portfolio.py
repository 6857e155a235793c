"""The portfolio: the last cookie scans of all domains, and the reports that were made of them."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

FindingState = Literal["new", "known", "first"]


class PortfolioFinding(Struct, frozen=True, kw_only=True):
    """A finding of the last scan of a domain."""

    code: str
    severity: Annotated[str, Meta(description="`high`, `medium` or `low`.")]
    title: str
    text: str
    why: Annotated[str, Meta(description="The usual rule behind it; not legal advice.")]
    evidence: tuple[str, ...]
    more: Annotated[int, Meta(description="Sentences of evidence that are left out here; the report has them.")] = 0
    state: Annotated[
        FindingState, Meta(description="`new` or `known` compared with the earlier scan; `first` without one.")
    ]


class PortfolioCookie(Struct, frozen=True, kw_only=True):
    """A cookie, the phases in which it was present, and what set it."""

    name: str
    domain: str
    party: str
    purpose: str
    vendor: str | None
    lifetime_seconds: Annotated[int | None, Meta(description="Null: until the browser is closed.")]
    phases: Annotated[tuple[str, ...], Meta(description="`before` consent, after `accept`, after `reject`.")]
    set_by: Annotated[str, Meta(description="`header` or `script`.")]
    set_by_url: Annotated[str | None, Meta(description="The response or script that set it.")]


class PortfolioDomain(Struct, frozen=True, kw_only=True):
    """The last scan of a domain, compared with an earlier one."""

    domain: str
    stream: str
    scan: Annotated[str, Meta(description="The key of the scan: its report and its files are the evidence.")]
    scanned_at: datetime
    result: Annotated[str, Meta(description="How the scan went: `scan complete`, or why it is incomplete.")]
    severity: Annotated[str | None, Meta(description="Of its most serious finding; null without findings.")]
    findings: tuple[PortfolioFinding, ...]
    compared_with: Annotated[str | None, Meta(description="The key of the earlier scan.")] = None
    compared_at: Annotated[datetime | None, Meta(description="When the earlier scan was made.")] = None
    gone: Annotated[tuple[str, ...], Meta(description="Findings of the earlier scan that were not made again.")] = ()
    changes: Annotated[tuple[str, ...], Meta(description="Other changes since the earlier scan.")] = ()
    cookies: Annotated[dict[str, int], Meta(description="The number of cookies in each phase.")]
    third_parties: Annotated[int, Meta(description="Other sites that received requests.")]
    managers: tuple[str, ...] = ()
    choices: Annotated[dict[str, str], Meta(description="What the consent manager has recorded, by phase.")] = {}
    aliases: Annotated[tuple[str, ...], Meta(description="Hosts of the site that lead to another party.")] = ()
    visitor: Annotated[str, Meta(description="What the browser told the site about the visitor.")] = ""
    listed: Annotated[tuple[PortfolioCookie, ...], Meta(description="The cookies, those that need consent first.")] = ()
    unlisted: Annotated[int, Meta(description="Cookies that are left out here.")] = 0
    files: Annotated[dict[str, str], Meta(description="The files of the report, each with its SHA-256.")]

    def count(self, severity: str) -> int:
        """Return the number of findings of this severity."""
        return sum(finding.severity == severity for finding in self.findings)

    @property
    def has_changed(self) -> bool:
        """Whether anything differs from the earlier scan."""
        return bool(self.gone or self.changes) or any(finding.state == "new" for finding in self.findings)


class PortfolioReport(Struct, frozen=True, kw_only=True):
    """A report over all domains that was made."""

    report_id: int
    made_at: datetime
    made_by: Annotated[str, Meta(description="The name of a token, or a user of the machine.")]
    format: str
    domains: int
    findings: Annotated[int, Meta(description="The number of findings.")]
    sha256: Annotated[str | None, Meta(description="The digest of the file.")]
