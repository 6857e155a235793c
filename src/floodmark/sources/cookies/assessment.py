"""The findings of a scan for a reviewer: sentences that name the cookie, its setter, the time and the phase.

They are derived from the data of a report, so that older reports get them as well.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from .policy import LifetimeRule, is_too_long, rule_for
from .tcf import PURPOSE_WORDS

Entry = Mapping[str, Any]

# Purposes that need consent under the common reading of Article 5(3) of the ePrivacy Directive.
NEEDS_CONSENT = ("statistics", "marketing")
_DAY = 86_400
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
    """A name in `severity`."""
    phase: str
    text: str
    evidence: tuple[str, ...] = ()
    cookies: tuple[str, ...] = ()


class ScanFacts(Struct, frozen=True):
    """What a scan knows besides its phases: whether GPC was sent, the policy, and aliases of hosts."""

    is_gpc_sent: bool = False
    policy: Sequence[LifetimeRule] = ()
    aliases: Sequence[Entry] = ()


def assess(phases: Sequence[Entry], facts: ScanFacts | None = None) -> list[ConsentFinding]:
    """Return the findings, the most serious first; an empty list if there are none."""
    facts = facts or ScanFacts()
    by_name = {phase["phase"]: phase for phase in phases}
    before, accept, reject = (by_name.get(name) for name in ("before", "accept", "reject"))
    if before is None:
        return []
    found = [_before_consent(before), *_after_rejecting(before, reject)]
    found += [_despite_gpc(before) if facts.is_gpc_sent else None]
    found += [_recorded_consent(before, reject), _no_way_to_reject(accept, reject)]
    found += [_second_layer(accept, reject), _no_banner(before, accept)]
    found += [_cloaked(facts.aliases, phases), _too_long(phases, facts.policy), _unknown(before)]
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


def _despite_gpc(before: Entry) -> ConsentFinding | None:
    cookies = [cookie for cookie in before["cookies"] if cookie["purpose"] in NEEDS_CONSENT]
    subject = f"{format_count(len(cookies), 'cookie')} for statistics or marketing {_was(cookies)}"
    text = f"The browser sent Global Privacy Control, but {subject} set all the same."
    return _finding("set_despite_gpc", before, text, cookies)


def _recorded_consent(before: Entry, reject: Entry | None) -> ConsentFinding | None:
    """Return a finding if the consent manager recorded consent that nobody gave."""
    early = _purposes_of(before)
    if early:
        text = "The consent manager recorded consent before any choice was made."
        return _consent_record("consent_recorded_before_choice", before, text, early)
    if reject is None or not _is_answered(reject) or not (kept := _purposes_of(reject)):
        return None
    text = "The consent manager recorded consent although consent was rejected."
    return _consent_record("consent_recorded_after_rejecting", reject, text, kept)


def _purposes_of(phase: Entry) -> Sequence[int]:
    # Reports from before this field have none.
    return (phase.get("tcf") or {}).get("purposes_consent") or ()


def _consent_record(code: str, phase: Entry, text: str, purposes: Sequence[int]) -> ConsentFinding:
    recorded = phase["tcf"]
    evidence = [f"Purpose {number}: {PURPOSE_WORDS.get(number, 'not defined')}." for number in purposes]
    evidence.append(
        f"The TC string has consent for {format_count(recorded['vendors_consent'], 'vendor')}; "
        f"it is of consent manager {recorded['cmp_id']}."
    )
    return ConsentFinding(code=code, phase=phase["phase"], text=text, evidence=tuple(evidence))


def _cloaked(aliases: Sequence[Entry], phases: Sequence[Entry]) -> ConsentFinding | None:
    known = [alias for alias in aliases if alias["vendor"]]
    if not known:
        return None
    cookies = {cookie["name"]: cookie.get("set_from") for phase in phases for cookie in phase["cookies"]}
    evidence = []
    for alias in known:
        names = sorted(name for name, host in cookies.items() if host == alias["host"])
        stored = f"; it set {_join(names)}" if names else ""
        leads = " -> ".join(alias["chain"])
        evidence.append(f"{alias['host']} is an alias of {leads} ({alias['vendor']}, {alias['purpose']}){stored}.")
    hosts = format_count(len(known), "host")
    verb = "belongs" if len(known) == 1 else "belong"
    text = f"{hosts} of the site {verb} to a third party for statistics or marketing."
    return ConsentFinding(
        code="cloaked_third_party",
        phase="before",
        text=text,
        evidence=tuple(evidence),
        cookies=tuple(sorted(name for name, host in cookies.items() if host in {alias["host"] for alias in known})),
    )


def _too_long(phases: Sequence[Entry], policy: Sequence[LifetimeRule]) -> ConsentFinding | None:
    found: dict[tuple[str, ...], tuple[Entry, LifetimeRule, Entry]] = {}
    for phase in phases if policy else ():
        for cookie in phase["cookies"]:
            rule = rule_for(cookie, policy)
            if rule is not None and is_too_long(cookie, rule):
                found.setdefault(cookie_identity(cookie), (cookie, rule, phase))
    if not found:
        return None
    evidence = tuple(
        f"{cookie['name']} ({cookie['domain'].lstrip('.')}, {cookie['purpose']}) is kept for "
        f"{_days(cookie['lifetime_seconds'])}; the policy allows {_limit(rule)} for {rule.describe()}."
        for cookie, rule, _ in found.values()
    )
    count = len(found)
    text = f"{format_count(count, 'cookie')} {'is' if count == 1 else 'are'} kept longer than the policy allows."
    names = tuple(cookie["name"] for cookie, _, _ in found.values())
    first = next(iter(found.values()))[2]["phase"]
    return ConsentFinding(code="lifetime_over_policy", phase=first, text=text, evidence=evidence, cookies=names)


def _days(seconds: int) -> str:
    """Return a lifetime exactly, because it is compared with a limit in days."""
    days = math.ceil(seconds / _DAY)
    words = format_lifetime(seconds)
    exact = format_count(days, "day")
    return words if words == exact or seconds < _DAY else f"{exact} ({words})"


def _limit(rule: LifetimeRule) -> str:
    return format_count(rule.max_days, "day") if rule.max_days else "only the session"


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


def describe_options(report: Entry) -> str:
    """Return what the browser told the site about the visitor; empty if nothing in particular."""
    options = report.get("options") or {}
    words = {"locale": "language and region {}", "timezone": "time zone {}", "gpc": "Global Privacy Control"}
    told = [words[name].format(value) for name, value in options.items() if name in words]
    return f"the browser told the site: {', '.join(told)}" if told else ""


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
