"""The report of a scan: data for programs, a page for people, and a manifest of the files."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from floodmark.model.batch import Blob

from .assessment import ScanFacts, assess, format_count
from .findings import COMPLETE, PHASE_WORDS, Cookie, PhaseFound, ScanRecord
from .policy import LifetimeRule, parse_policy
from .report_html import render_page

SCHEMA = "floodmark.cookies/2"
SCAN_COMPLETE = "scan complete"
JSON, HTML = "report.json", "report.html"


def make_report(
    found: ScanRecord, *, began: datetime, seconds: float, policy: str | None = None
) -> tuple[dict[str, Any], list[Blob]]:
    """Return the data of the report with its manifest, and the files of the manifest."""
    report = _make_data(found, began, seconds, () if policy is None else parse_policy(policy))
    pictures = {f"{phase.phase}.png": phase.picture for phase in found.phases if phase.picture}
    files = {name: _make_blob("image/png", content) for name, content in pictures.items()}
    files[JSON] = _make_blob("application/json", msgspec.json.format(msgspec.json.encode(report), indent=2))
    files[HTML] = _make_blob("text/html; charset=utf-8", render_page(report, pictures, _make_manifest(files)).encode())
    return {**report, "manifest": _make_manifest(files)}, list(files.values())


def _make_blob(media_type: str, content: bytes) -> Blob:
    return Blob(hashlib.sha256(content).hexdigest(), media_type, content)


def _make_manifest(files: Mapping[str, Blob]) -> dict[str, dict[str, Any]]:
    return {
        name: {"sha256": blob.sha256, "media_type": blob.media_type, "size": len(blob.content)}
        for name, blob in files.items()
    }


def _make_data(found: ScanRecord, began: datetime, seconds: float, policy: Sequence[LifetimeRule]) -> dict[str, Any]:
    phases = [_make_phase(phase) for phase in found.phases]
    aliases = [msgspec.to_builtins(alias) for alias in found.aliases]
    facts = ScanFacts("gpc" in found.options, policy, aliases)
    return {
        "schema": SCHEMA,
        "domain": found.domain,
        "result": scan_result(found.phases),
        "findings": msgspec.to_builtins(assess(phases, facts)),
        "start": found.start,
        "final": found.final,
        "scanned_at": began.astimezone(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "browser": found.browser,
        "user_agent": found.user_agent,
        "is_recognisable": found.is_recognisable,
        "managers": list(found.managers),
        "third_party_cookies": "allowed",
        "options": dict(found.options),
        "policy": msgspec.to_builtins(policy),
        "aliases": aliases,
        "summary": "; ".join(_summarize_phase(phase) for phase in found.phases),
        "notes": list(found.notes),
        "phases": phases,
    }


def upgrade_report(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored report in the form of the current schema. Its files stay as they are."""
    if report["schema"] == SCHEMA:
        return dict(report)
    phases = [_upgrade_phase(phase) for phase in report["phases"]]
    result = SCAN_COMPLETE if report["result"] == "ok" else report["result"]
    return {**report, "result": result, "findings": msgspec.to_builtins(assess(phases)), "phases": phases}


def _upgrade_phase(phase: Mapping[str, Any]) -> dict[str, Any]:
    visits = [{**visit, "result": _upgrade_result(visit["result"])} for visit in phase["visits"]]
    return {**phase, "result": _upgrade_result(phase["result"]), "visits": visits}


def _upgrade_result(result: str) -> str:
    return COMPLETE if result == "ok" else result


def _make_phase(phase: PhaseFound) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(phase, picture=None))
    data["picture"] = f"{phase.phase}.png" if phase.picture else None
    return {**data, "counts": _count_cookies(phase.cookies)}


def _count_cookies(cookies: Sequence[Cookie]) -> dict[str, Any]:
    parties = Counter(cookie.party for cookie in cookies)
    return {
        "cookies": len(cookies),
        "first": parties["first"],
        "third": parties["third"],
        "blocked_by_default": sum(cookie.blocked_by_default for cookie in cookies),
        "purposes": dict(sorted(Counter(cookie.purpose for cookie in cookies).items())),
    }


def scan_result(phases: Iterable[PhaseFound]) -> str:
    """Return how the scan went as a whole: the result of the first incomplete phase."""
    return next((phase.result for phase in phases if phase.result not in (COMPLETE, "no such button")), SCAN_COMPLETE)


def _summarize_phase(phase: PhaseFound) -> str:
    words = PHASE_WORDS[phase.phase]
    if phase.result != COMPLETE and not phase.visits:
        return f"{words}: {phase.result}"
    count, third = len(phase.cookies), sum(cookie.party == "third" for cookie in phase.cookies)
    cookies = format_count(count, "cookie") if count else "no cookies"
    parties = f", {third} of them of third parties" if third else ""
    result = "" if phase.result == COMPLETE else f" ({phase.result})"
    return f"{words}{result}: {cookies}{parties}"
