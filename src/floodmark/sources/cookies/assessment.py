"""The findings of a scan for a reviewer: sentences that name the cookie, its setter, the time and the phase.

They are derived from the data of a report, so that older reports get them as well.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

Entry = Mapping[str, Any]

# Purposes that need consent under the common reading of Article 5(3) of the ePrivacy Directive.
NEEDS_CONSENT = ("statistics", "marketing")
_STEPS = (
    (86_400 * 365, "year"),
    (86_400 * 30, "month"),
    (86_400, "day"),
    (3600, "hour"),
    (60, "minute"),
    (1, "second"),
)
_AREAS = {
    "local": "local storage",
    "session": "session storage",
    "indexeddb": "IndexedDB",
    "cache": "Cache Storage",
    "worker": "service worker",
}


class ConsentFinding(Struct, frozen=True, kw_only=True):
    """One finding. `evidence` has a sentence for each cookie, host or button."""

    code: str
    """`set_before_consent`, `set_after_rejecting`, `kept_after_rejecting`, `no_way_to_reject`, `no_banner`,
    `reject_on_second_layer`, `unknown_before_consent`."""
    phase: str
    text: str
    evidence: tuple[str, ...] = ()
    cookies: tuple[str, ...] = ()


def assess(phases: Sequence[Entry]) -> list[ConsentFinding]:
    """Return the findings, the most serious first; an empty list if there are none."""
    by_name = {phase["phase"]: phase for phase in phases}
    before, accept, reject = (by_name.get(name) for name in ("before", "accept", "reject"))
    if before is None:
        return []
    found = [_before_consent(before), *_after_rejecting(before, reject)]
    found += [_no_way_to_reject(accept, reject), _second_layer(accept, reject), _no_banner(before, accept)]
    found.append(_unknown(before))
    return [finding for finding in found if finding is not None]


def _before_consent(before: Entry) -> ConsentFinding | None:
    cookies = [cookie for cookie in before["cookies"] if cookie["purpose"] in NEEDS_CONSENT]
    text = f"{format_count(len(cookies), 'cookie')} for statistics or marketing {_was(cookies)} set before consent."
    return _finding("set_before_consent", before, text, cookies)


def _after_rejecting(before: Entry, reject: Entry | None) -> Iterable[ConsentFinding | None]:
    if reject is None or not _is_answered(reject):
        return
    known = {cookie_identity(cookie) for cookie in before["cookies"]}
    cookies = [cookie for cookie in reject["cookies"] if cookie["purpose"] in NEEDS_CONSENT]
    later = [cookie for cookie in cookies if _is_after(cookie, reject, known)]
    kept = [cookie for cookie in cookies if cookie not in later]
    for verb, cookies in (("set", later), ("kept", kept)):
        subject = f"{format_count(len(cookies), 'cookie')} for statistics or marketing {_was(cookies)}"
        yield _finding(f"{verb}_after_rejecting", reject, f"{subject} {verb} after consent was rejected.", cookies)


def _is_after(cookie: Entry, reject: Entry, known: set[tuple[str, ...]]) -> bool:
    """Return whether a cookie was set after the choice: by its time, or if it did not exist before consent."""
    set_at, answered_at = cookie.get("set_at"), _answered_at(reject)
    if set_at is not None and answered_at is not None:
        return bool(set_at > answered_at)
    return cookie_identity(cookie) not in known


def _no_way_to_reject(accept: Entry | None, reject: Entry | None) -> ConsentFinding | None:
    if accept is None or reject is None or reject["result"] != "no such button":
        return None
    text = "The consent banner offers no way to reject that the scan could find, on its first layer or in its settings."
    offer = _pressed(accept)
    evidence = [f"Accepting takes {format_count(len(offer), 'step')}: {_quoted(offer)}."] if offer else []
    tried = _pressed(reject)
    if tried:
        evidence.append(f"After pressing {_quoted(tried)}, no button to reject or to save a choice was found.")
    return ConsentFinding(code="no_way_to_reject", phase="reject", text=text, evidence=tuple(evidence))


def _second_layer(accept: Entry | None, reject: Entry | None) -> ConsentFinding | None:
    if accept is None or reject is None or (reject["banner"] or {}).get("layer") != 2:
        return None
    tried, offer = _pressed(reject), _pressed(accept)
    off = reject["banner"].get("switched_off") or 0
    switched = f"; {format_count(off, 'switch', 'switches')} had to be turned off" if off else ""
    text = "Rejecting takes more steps than accepting: the first layer of the consent banner has no button to reject."
    evidence = (
        f"Rejecting took {format_count(len(tried), 'step')}: {_quoted(tried)}{switched}.",
        f"Accepting took {format_count(len(offer), 'step')}: {_quoted(offer)}.",
    )
    return ConsentFinding(
        code="reject_on_second_layer", phase="reject", text=text, evidence=evidence[: 2 if offer else 1]
    )


def _no_banner(before: Entry, accept: Entry | None) -> ConsentFinding | None:
    if accept is None or accept["result"] != "banner not found" or "selector" in accept["note"]:
        return None
    stored = [cookie for cookie in before["cookies"] if cookie["purpose"] != "necessary"]
    if not stored and not before["storage"]:
        return None
    kept = [format_count(len(before["cookies"]), "cookie")] if before["cookies"] else []
    areas = Counter(area_name(entry["area"]) for entry in before["storage"])
    kept += [f"{format_count(count, 'entry', 'entries')} in {name}" for name, count in areas.items()]
    text, note = f"No consent banner was shown, and the site stored {_join(kept)}.", accept["note"]
    return ConsentFinding(code="no_banner", phase="before", text=text, evidence=(f"{note[:1].upper()}{note[1:]}.",))


def _unknown(before: Entry) -> ConsentFinding | None:
    cookies = [cookie for cookie in before["cookies"] if cookie["purpose"] == "unknown"]
    text = f"{format_count(len(cookies), 'cookie')} of unknown purpose {_was(cookies)} set before consent; assess each."
    return _finding("unknown_before_consent", before, text, cookies)


def _finding(code: str, phase: Entry, text: str, cookies: Sequence[Entry]) -> ConsentFinding | None:
    if not cookies:
        return None
    evidence = tuple(describe(cookie, phase) for cookie in cookies)
    return ConsentFinding(
        code=code,
        phase=phase["phase"],
        text=text,
        evidence=evidence,
        cookies=tuple(cookie["name"] for cookie in cookies),
    )


def describe(cookie: Entry, phase: Entry) -> str:
    """Return a sentence about a cookie: its vendor, setter, time and lifetime."""
    vendor = f"{cookie['vendor']}, " if cookie["vendor"] else ""
    domain = cookie["domain"].lstrip(".")
    who = f"{cookie['name']} ({vendor}{cookie['purpose']}; {cookie['party']} party, {domain})"
    return f"{who}: {_setter(cookie)}{_moment(cookie, phase)}; {_lifetime(cookie['lifetime_seconds'])}."


def _setter(cookie: Entry) -> str:
    url, host = cookie.get("set_by_url"), cookie.get("set_from")
    if cookie["set_by"] == "header":
        return f"set by the response of {url or host}"
    if url is None:
        return "set by a script"
    return f"set by an inline script of {url}" if cookie.get("set_inline") else f"set by the script {url}"


def _moment(cookie: Entry, phase: Entry) -> str:
    seen_on = cookie.get("first_seen_on")
    is_same = seen_on is not None and seen_on.rstrip("/") == (cookie.get("set_by_url") or "").rstrip("/")
    page = f" on {seen_on}" if seen_on and not is_same else ""
    at, began = cookie.get("set_at"), phase.get("began_at")
    if at is None:
        return page
    answered = _answered_at(phase)
    clock = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if answered is not None and at > answered:
        return f"{page} at {clock}, {at - answered:.1f} s after the choice"
    return f"{page} at {clock}" + (f", {max(0.0, at - began):.1f} s after the visit began" if began is not None else "")


def _lifetime(seconds: int | None) -> str:
    return "kept until the browser is closed" if seconds is None else f"kept for {format_lifetime(seconds)}"


def format_lifetime(seconds: int | None) -> str:
    """Return the lifetime of a cookie in words."""
    if seconds is None:
        return "session"
    if seconds <= 0:
        return "over"
    # A lifetime of a year is still a year some seconds later.
    size, name = next((step for step in _STEPS if seconds * 1.02 >= step[0]), _STEPS[-1])
    return format_count(max(1, round(seconds / size)), name)


def area_name(area: str) -> str:
    """Return the name that browsers give to an area of storage."""
    return _AREAS.get(area, area)


def _is_answered(phase: Entry) -> bool:
    banner = phase["banner"] or {}
    # Reports of the first schema have only the button.
    return banner["answered_at"] is not None if "answered_at" in banner else bool(banner.get("button"))


def _answered_at(phase: Entry) -> float | None:
    return (phase["banner"] or {}).get("answered_at")


def _pressed(phase: Entry) -> list[str]:
    banner = phase["banner"] or {}
    return list(banner.get("steps") or ([banner["button"]] if banner.get("button") else []))


def cookie_identity(cookie: Entry) -> tuple[str, ...]:
    """Return what identifies a cookie within a phase."""
    return cookie["name"], cookie["domain"], cookie["path"], cookie["partition"] or ""


def _was(entries: Sequence[object]) -> str:
    return "was" if len(entries) == 1 else "were"


def _quoted(steps: Iterable[str]) -> str:
    return ", then ".join(f'"{step}"' for step in steps)


def _join(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def format_count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun, such as `2 cookies`."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"
