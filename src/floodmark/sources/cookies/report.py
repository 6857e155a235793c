"""From what a scan found to its report: data for programs, a page for people, and a manifest that ties them up."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from floodmark.batch import Blob

from .findings import Cookie, Found, PhaseFound
from .page import page_of

SCHEMA = "floodmark.cookies/1"
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
    return {
        "schema": SCHEMA,
        "domain": found.domain,
        "start": found.start,
        "final": found.final,
        "scanned_at": began.astimezone(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "browser": found.browser,
        "third_party_cookies": "allowed",
        "result": result_of(found.phases),
        "summary": summary_of(found.phases),
        "notes": list(found.notes),
        "phases": [_phase(phase) for phase in found.phases],
    }


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
    """How the scan went as a whole: the first phase that has something to tell tells it."""
    return next((phase.result for phase in phases if phase.result not in ("ok", "no such button")), "ok")


def summary_of(phases: Sequence[PhaseFound]) -> str:
    """The scan in one sentence."""
    told = [_told(phase) for phase in phases]
    return "; ".join(told)


def _told(phase: PhaseFound) -> str:
    words = PHASE_WORDS[phase.phase]
    if phase.result != "ok" and not phase.visits:
        return f"{words}: {phase.result}"
    count, third = len(phase.cookies), sum(cookie.party == "third" for cookie in phase.cookies)
    cookies = f"{count} cookie{'' if count == 1 else 's'}" if count else "no cookies"
    parties = f", {third} of them of third parties" if third else ""
    result = "" if phase.result == "ok" else f" ({phase.result})"
    return f"{words}{result}: {cookies}{parties}"
