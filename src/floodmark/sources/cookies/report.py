"""From what a scan found to its report: data for programs, a page for people, and a manifest that ties them up."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from floodmark.model.batch import Blob

from .assessment import assess, counted
from .findings import COMPLETE, Cookie, Found, PhaseFound
from .page import page_of

SCHEMA = "floodmark.cookies/2"
SCAN_COMPLETE = "scan complete"
JSON, HTML = "report.json", "report.html"
PHASE_WORDS = {"before": "before consent", "accept": "after accepting", "reject": "after rejecting"}


def made(found: Found, *, began: datetime, seconds: float) -> tuple[dict[str, Any], list[Blob]]:
    """The data of the report, manifest included, and the files that the manifest names."""
    report = _data(found, began, seconds)
    pictures = {f"{phase.phase}.png": phase.picture for phase in found.phases if phase.picture}
    files = {name: _blob("image/png", content) for name, content in pictures.items()}
    files[JSON] = _blob("application/json", msgspec.json.format(msgspec.json.encode(report), indent=2))
    files[HTML] = _blob("text/html; charset=utf-8", page_of(report, pictures, _listed(files)).encode())
    return {**report, "manifest": _listed(files)}, list(files.values())


def _blob(media_type: str, content: bytes) -> Blob:
    return Blob(hashlib.sha256(content).hexdigest(), media_type, content)


def _listed(files: Mapping[str, Blob]) -> dict[str, dict[str, Any]]:
    return {
        name: {"sha256": blob.sha256, "media_type": blob.media_type, "size": len(blob.content)}
        for name, blob in files.items()
    }


def _data(found: Found, began: datetime, seconds: float) -> dict[str, Any]:
    phases = [_phase(phase) for phase in found.phases]
    return {
        "schema": SCHEMA,
        "domain": found.domain,
        "result": result_of(found.phases),
        "findings": msgspec.to_builtins(assess(phases)),
        "start": found.start,
        "final": found.final,
        "scanned_at": began.astimezone(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "browser": found.browser,
        "user_agent": found.user_agent,
        "is_recognisable": found.is_recognisable,
        "managers": list(found.managers),
        "third_party_cookies": "allowed",
        "summary": summary_of(found.phases),
        "notes": list(found.notes),
        "phases": phases,
    }


def upgraded(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored report in the form of the present schema. The files of the report stay as they were made."""
    if report["schema"] == SCHEMA:
        return dict(report)
    phases = [_upgraded_phase(phase) for phase in report["phases"]]
    result = SCAN_COMPLETE if report["result"] == "ok" else report["result"]
    return {**report, "result": result, "findings": msgspec.to_builtins(assess(phases)), "phases": phases}


def _upgraded_phase(phase: Mapping[str, Any]) -> dict[str, Any]:
    visits = [{**visit, "result": _upgraded_result(visit["result"])} for visit in phase["visits"]]
    return {**phase, "result": _upgraded_result(phase["result"]), "visits": visits}


def _upgraded_result(result: str) -> str:
    return COMPLETE if result == "ok" else result


def _phase(phase: PhaseFound) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(phase, picture=None))
    told["picture"] = f"{phase.phase}.png" if phase.picture else None
    return {**told, "counts": counts_of(phase.cookies)}


def counts_of(cookies: Sequence[Cookie]) -> dict[str, Any]:
    """How many cookies, by party and purpose, and in how far a browser that blocks third parties would differ."""
    parties = Counter(cookie.party for cookie in cookies)
    return {
        "cookies": len(cookies),
        "first": parties["first"],
        "third": parties["third"],
        "blocked_by_default": sum(cookie.blocked_by_default for cookie in cookies),
        "purposes": dict(sorted(Counter(cookie.purpose for cookie in cookies).items())),
    }


def result_of(phases: Iterable[PhaseFound]) -> str:
    """How the scan went as a whole; not what it found. The first phase that is not complete decides."""
    return next((phase.result for phase in phases if phase.result not in (COMPLETE, "no such button")), SCAN_COMPLETE)


def summary_of(phases: Sequence[PhaseFound]) -> str:
    """The scan in one sentence."""
    told = [_told(phase) for phase in phases]
    return "; ".join(told)


def _told(phase: PhaseFound) -> str:
    words = PHASE_WORDS[phase.phase]
    if phase.result != COMPLETE and not phase.visits:
        return f"{words}: {phase.result}"
    count, third = len(phase.cookies), sum(cookie.party == "third" for cookie in phase.cookies)
    cookies = counted(count, "cookie") if count else "no cookies"
    parties = f", {third} of them of third parties" if third else ""
    result = "" if phase.result == COMPLETE else f" ({phase.result})"
    return f"{words}{result}: {cookies}{parties}"
