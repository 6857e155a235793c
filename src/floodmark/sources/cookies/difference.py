"""Compares two scans of a domain: what is new, gone or changed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from .assessment import cookie_identity, format_count
from .findings import PHASE_WORDS

_ATTRIBUTES = ("http_only", "secure", "same_site", "party", "purpose", "set_by")
# Every scan sets the cookies again, so small differences in lifetime do not count.
_SAME_LIFETIME = 0.1
_SHOWN = 8

Entry = Mapping[str, Any]


class Changed(Struct, frozen=True, kw_only=True):
    """A cookie whose attributes have changed."""

    name: str
    domain: str
    fields: Annotated[dict[str, tuple[Any, Any]], Meta(description="What each attribute was, and what it is.")]


class CookieSummary(Struct, frozen=True, kw_only=True):
    """A cookie, in short."""

    name: str
    domain: str
    path: str
    party: Annotated[str, Meta(description="`first` or `third`.")]
    purpose: Annotated[str, Meta(description="`unknown` if it is not a cookie that is well known.")]
    vendor: str | None
    lifetime_seconds: Annotated[int | None, Meta(description="Null: until the browser is closed.")]


class PhaseDifference(Struct, frozen=True, kw_only=True):
    """What differs in one phase."""

    phase: Annotated[str, Meta(description="`before` consent, after `accept` or after `reject`.")]
    results: Annotated[
        tuple[str, str] | None, Meta(description="How the phase went before and now, if that is not the same.")
    ] = None
    new_cookies: tuple[dict[str, Any], ...] = ()
    gone_cookies: tuple[dict[str, Any], ...] = ()
    changed_cookies: tuple[Changed, ...] = ()
    new_hosts: Annotated[tuple[str, ...], Meta(description="Hosts of third parties.")] = ()
    gone_hosts: tuple[str, ...] = ()
    new_keys: Annotated[tuple[str, ...], Meta(description="In local or session storage: origin, area, key.")] = ()
    gone_keys: tuple[str, ...] = ()


class ScanDifference(Struct, frozen=True, kw_only=True):
    """What differs between two scans of a domain."""

    domain: str
    earlier: Annotated[str, Meta(description="When the earlier scan was made.")]
    later: Annotated[str, Meta(description="When the later scan was made.")]
    summary: Annotated[tuple[str, ...], Meta(description="In sentences; empty if nothing differs.")]
    phases: tuple[PhaseDifference, ...]


def difference(earlier: Entry, later: Entry) -> ScanDifference:
    """Compare two reports."""
    before = {phase["phase"]: phase for phase in earlier["phases"]}
    now = {phase["phase"]: phase for phase in later["phases"]}
    phases = [
        _compare_phase(name, before.get(name, _NOTHING), now.get(name, _NOTHING))
        for name in PHASE_WORDS
        if name in {*before, *now}
    ]
    return ScanDifference(
        domain=later["domain"],
        earlier=earlier["scanned_at"],
        later=later["scanned_at"],
        summary=tuple(sentence for phase in phases for sentence in _sentences(phase)),
        phases=tuple(phases),
    )


_NOTHING: Entry = {"result": "not scanned", "cookies": (), "contacts": (), "storage": ()}


def _compare_phase(name: str, before: Entry, now: Entry) -> PhaseDifference:
    old, new = ({cookie_identity(cookie): cookie for cookie in phase["cookies"]} for phase in (before, now))
    hosts = [dict.fromkeys(contact["host"] for contact in phase["contacts"]) for phase in (before, now)]
    keys = [dict.fromkeys(_key_id(stored) for stored in phase["storage"]) for phase in (before, now)]
    changed = ((new[key], _changes(old[key], new[key])) for key in new if key in old)
    return PhaseDifference(
        phase=name,
        results=(before["result"], now["result"]) if before["result"] != now["result"] else None,
        new_cookies=tuple(_short(cookie) for key, cookie in new.items() if key not in old),
        gone_cookies=tuple(_short(cookie) for key, cookie in old.items() if key not in new),
        changed_cookies=tuple(
            Changed(name=cookie["name"], domain=cookie["domain"], fields=fields) for cookie, fields in changed if fields
        ),
        new_hosts=tuple(host for host in hosts[1] if host not in hosts[0]),
        gone_hosts=tuple(host for host in hosts[0] if host not in hosts[1]),
        new_keys=tuple(key for key in keys[1] if key not in keys[0]),
        gone_keys=tuple(key for key in keys[0] if key not in keys[1]),
    )


def _key_id(stored: Entry) -> str:
    return f"{stored['origin']} {stored['area']} {stored['key']}"


def _short(cookie: Entry) -> dict[str, Any]:
    return {name: cookie[name] for name in ("name", "domain", "path", "party", "purpose", "vendor", "lifetime_seconds")}


def _changes(old: Entry, new: Entry) -> dict[str, tuple[Any, Any]]:
    found = {name: (old[name], new[name]) for name in _ATTRIBUTES if old[name] != new[name]}
    lifetimes = (old["lifetime_seconds"], new["lifetime_seconds"])
    if not _is_similar(*lifetimes):
        found["lifetime_seconds"] = lifetimes
    return found


def _is_similar(one: int | None, other: int | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= max(abs(one), abs(other), 1) * _SAME_LIFETIME


def _sentences(phase: PhaseDifference) -> Iterable[str]:
    when = PHASE_WORDS[phase.phase]
    if phase.results is not None:
        yield f'{when}: "{phase.results[1]}", was "{phase.results[0]}"'
    if phase.new_cookies:
        yield f"{format_count(len(phase.new_cookies), 'new cookie')} {when}: {_names(phase.new_cookies)}"
    if phase.gone_cookies:
        yield f"{format_count(len(phase.gone_cookies), 'cookie')} gone {when}: {_names(phase.gone_cookies)}"
    for cookie in phase.changed_cookies[:_SHOWN]:
        fields = ", ".join(f"{name} {old!s} -> {new!s}" for name, (old, new) in cookie.fields.items())
        yield f"{cookie.name} ({cookie.domain}) changed {when}: {fields}"
    if len(phase.changed_cookies) > _SHOWN:
        yield f"{format_count(len(phase.changed_cookies) - _SHOWN, 'more cookie')} changed {when}"
    yield from _list_names(phase.new_hosts, "new host", "of third parties", when)
    yield from _list_names(phase.gone_hosts, "host", "of third parties gone", when)
    yield from _list_names(phase.new_keys, "new key", "in storage", when)
    yield from _list_names(phase.gone_keys, "key", "in storage gone", when)


def _list_names(names: Sequence[str], noun: str, what: str, when: str) -> Iterable[str]:
    if names:
        yield f"{format_count(len(names), noun)} {what} {when}: {_some(names)}"


def _names(cookies: Sequence[Entry]) -> str:
    return _some([f"{cookie['name']} ({cookie['domain'].lstrip('.')}, {cookie['purpose']})" for cookie in cookies])


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
