"""Summarizes the last scan of a domain for the portfolio. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from floodmark.model.cookie_portfolio import PortfolioCookie, PortfolioDomain, PortfolioFinding

from .assessment import NEEDS_CONSENT, cookie_identity, describe_options
from .difference import difference
from .findings import PHASE_WORDS
from .severity import SEVERITIES, kind_of
from .stored_reports import KeptScan
from .tcf import describe_choice

MOST_EVIDENCE, _MOST_COOKIES, _MOST_CHANGES, _MOST_ALIASES = 20, 200, 40, 50
_PURPOSES = (*reversed(NEEDS_CONSENT), "unknown", "preferences", "necessary")


def summarize(kept: KeptScan, earlier: KeptScan | None) -> PortfolioDomain:
    """Return the summary of a scan. Both reports must be of the current schema."""
    report, base = kept.report, None if earlier is None else earlier.report
    findings = sorted(_findings(report, base), key=lambda finding: SEVERITIES.index(finding.severity))
    cookies = sorted(_cookies(report), key=_rank)
    phases = report["phases"]
    return PortfolioDomain(
        domain=report["domain"],
        stream=kept.stream,
        scan=kept.scan,
        scanned_at=kept.scanned_at,
        result=report["result"],
        severity=findings[0].severity if findings else None,
        findings=tuple(findings),
        compared_with=None if earlier is None else earlier.scan,
        compared_at=None if earlier is None else earlier.scanned_at,
        gone=tuple(_gone(report, base)),
        changes=() if base is None or earlier == kept else tuple(_changes(base, report)),
        cookies={phase["phase"]: len(phase["cookies"]) for phase in phases if phase["visits"]},
        third_parties=len({contact["site"] for phase in phases for contact in phase["contacts"]}),
        managers=tuple(report.get("managers", ())),
        choices={phase["phase"]: describe_choice(phase["tcf"]) for phase in phases if phase.get("tcf") is not None},
        aliases=tuple(map(_alias, report.get("aliases", ())[:_MOST_ALIASES])),
        visitor=describe_options(report),
        listed=tuple(cookies[:_MOST_COOKIES]),
        unlisted=max(0, len(cookies) - _MOST_COOKIES),
        files={name: entry["sha256"] for name, entry in report["manifest"].items()},
    )


def _findings(report: Mapping[str, Any], base: Mapping[str, Any] | None) -> Iterator[PortfolioFinding]:
    known = None if base is None else {finding["code"]: set(finding["cookies"]) for finding in base["findings"]}
    for finding in report["findings"]:
        kind, code, evidence = kind_of(finding["code"]), finding["code"], finding["evidence"]
        if known is None:
            state: Any = "first"
        else:
            # A finding about a cookie that it was not about before is a new one.
            state = "known" if code in known and set(finding["cookies"]) <= known[code] else "new"
        yield PortfolioFinding(
            code=code,
            severity=kind.severity,
            title=kind.title,
            text=finding["text"],
            why=kind.why,
            evidence=tuple(evidence[:MOST_EVIDENCE]),
            more=max(0, len(evidence) - MOST_EVIDENCE),
            state=state,
        )


def _gone(report: Mapping[str, Any], base: Mapping[str, Any] | None) -> Iterator[str]:
    codes = {finding["code"] for finding in report["findings"]}
    for finding in () if base is None else base["findings"]:
        if finding["code"] not in codes:
            yield f"{kind_of(finding['code']).title}: {finding['text']}"


def _changes(base: Mapping[str, Any], report: Mapping[str, Any]) -> Iterator[str]:
    found = difference(base, report).summary
    if base["result"] != report["result"]:
        yield f'The scan ended with "{report["result"]}", earlier with "{base["result"]}".'
    for sentence in found[:_MOST_CHANGES]:
        yield f"{sentence[:1].upper()}{sentence[1:]}."
    if len(found) > _MOST_CHANGES:
        yield f"{len(found) - _MOST_CHANGES} more changes; compare the two scans to see them."


def _cookies(report: Mapping[str, Any]) -> Iterator[PortfolioCookie]:
    phases: dict[tuple[str, ...], list[str]] = {}
    first: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for phase in report["phases"]:
        for cookie in phase["cookies"]:
            key = cookie_identity(cookie)
            phases.setdefault(key, []).append(phase["phase"])
            first.setdefault(key, cookie)
    for key, cookie in first.items():
        yield PortfolioCookie(
            name=cookie["name"],
            domain=cookie["domain"].lstrip("."),
            party=cookie["party"],
            purpose=cookie["purpose"],
            vendor=cookie["vendor"],
            lifetime_seconds=cookie["lifetime_seconds"],
            phases=tuple(phases[key]),
            set_by=cookie["set_by"],
            set_by_url=cookie.get("set_by_url") or cookie.get("set_from"),
        )


def _rank(cookie: PortfolioCookie) -> tuple[int, str, str]:
    place = _PURPOSES.index(cookie.purpose) if cookie.purpose in _PURPOSES else len(_PURPOSES)
    return place, cookie.name, cookie.domain


def _alias(alias: Mapping[str, Any]) -> str:
    vendor = f" ({alias['vendor']})" if alias["vendor"] else ""
    return f"{alias['host']} -> {' -> '.join(alias['chain'])}{vendor}"


def phase_words(phases: tuple[str, ...]) -> str:
    """Return phases in words."""
    return "always" if len(phases) == len(PHASE_WORDS) else ", ".join(PHASE_WORDS[phase] for phase in phases)
