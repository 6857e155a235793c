"""Matches of cookie scans: what a scan found that the scan before did not. Table: `items`; nothing is written."""

from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.sources.cookies.assessment import NEEDS_CONSENT, cookie_identity, describe
from floodmark.sources.cookies.difference import difference
from floodmark.sources.cookies.report import upgrade_report
from floodmark.sources.cookies.stored_reports import Scans

from . import evaluation
from .compiled import CompiledWatch
from .documents import WatchedTexts
from .evaluation import FoundMatch, is_scan, shorten_lines
from .event_reader import WatchedEvent
from .places import StreamPlace

Report = Mapping[str, Any]


async def match_scan(
    scans: Scans, event: WatchedEvent, data: Report, watches: Sequence[CompiledWatch], place: StreamPlace
) -> list[FoundMatch]:
    """Return the matches of a scan: cookies that are new before consent, and any difference from the scan before."""
    report = upgrade_report(data)
    kept = await scans.newest(event.stream, scan=event.key, limit=2)
    earlier = next((upgrade_report(one.report) for one in kept if one.scan != event.key and is_scan(one.report)), None)
    texts = {
        "cookie_before_consent": _set_before_consent(report, earlier),
        "cookies_changed": _changes(report, earlier),
    }
    found = []
    for watch in watches:
        title, lines = texts[watch.kind]
        text = shorten_lines("\n".join(lines))
        if lines and watch.matches(WatchedTexts(data, [title, "\n".join(lines)])):
            found.append(evaluation.describe(watch, event, place, title=title, text=text, url=report["final"]))
    return found


def _set_before_consent(report: Report, earlier: Report | None) -> tuple[str, list[str]]:
    """Return cookies that need consent and were set before it, without those of the scan before."""
    known = set() if earlier is None else {cookie_identity(cookie) for _, cookie in _before_consent(earlier)}
    new = [(phase, cookie) for phase, cookie in _before_consent(report) if cookie_identity(cookie) not in known]
    count = f"{len(new)} cookie{'' if len(new) == 1 else 's'}"
    return f"{report['domain']} sets {count} before consent", [describe(cookie, phase) for phase, cookie in new]


def _before_consent(report: Report) -> list[tuple[Report, Report]]:
    phases = [phase for phase in report["phases"] if phase["phase"] == "before"]
    return [(phase, cookie) for phase in phases for cookie in phase["cookies"] if cookie["purpose"] in NEEDS_CONSENT]


def _changes(report: Report, earlier: Report | None) -> tuple[str, list[str]]:
    lines = [] if earlier is None else list(difference(earlier, report).summary)
    return f"cookies of {report['domain']} changed", lines
