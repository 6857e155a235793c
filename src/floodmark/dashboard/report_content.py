"""A cookie report for the page of an item. Pure; a report may be of any age, or of another program."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from floodmark.sources.cookies.assessment import format_lifetime
from floodmark.sources.cookies.findings import PHASE_WORDS

_MOST_ROWS, _MOST_FINDINGS, _MOST_EVIDENCE = 100, 20, 12


class ReportCookie(Struct, frozen=True):
    """A cookie in a row."""

    name: str
    domain: str
    party: str
    purpose: str
    vendor: str
    lifetime: str
    set_by: str


class ReportPhase(Struct, frozen=True):
    """A phase of a scan. `more` is the number of cookies that are not listed."""

    name: str
    result: str
    note: str
    picture: str | None
    cookies: tuple[ReportCookie, ...]
    more: int
    third: int
    hosts: tuple[tuple[str, int], ...]
    pages: tuple[str, ...]


class ReportFinding(Struct, frozen=True):
    """A finding with its evidence."""

    text: str
    evidence: tuple[str, ...]


class ReportShown(Struct, frozen=True):
    """A report: its result, its findings, its phases, and the names and sizes of its files."""

    result: str
    browser: str
    seconds: float | None
    findings: tuple[ReportFinding, ...]
    phases: tuple[ReportPhase, ...]
    files: tuple[tuple[str, int | None], ...]
    notes: tuple[str, ...]


def report_of(data: Mapping[str, Any]) -> ReportShown:
    """Return a report for people."""
    manifest = _mapping(data.get("manifest"))
    seconds = data.get("seconds")
    return ReportShown(
        _text(data.get("result")),
        _text(data.get("browser")),
        seconds if isinstance(seconds, int | float) else None,
        tuple(_findings(data.get("findings"))),
        tuple(_phase(one, manifest) for one in _mappings(data.get("phases"), 10)),
        tuple((str(name)[:100], _number(_mapping(about).get("size"))) for name, about in list(manifest.items())[:20]),
        tuple(_texts(data.get("notes"), 20)),
    )


def _findings(values: Any) -> Iterator[ReportFinding]:
    for value in _mappings(values, _MOST_FINDINGS):
        yield ReportFinding(_text(value.get("text")), tuple(_texts(value.get("evidence"), _MOST_EVIDENCE)))


def _phase(phase: Mapping[str, Any], manifest: Mapping[str, Any]) -> ReportPhase:
    name = _text(phase.get("phase"))
    listed = phase.get("cookies")
    cookies: list[Any] = listed if isinstance(listed, list) else []
    picture = phase.get("picture")
    return ReportPhase(
        PHASE_WORDS.get(name, name).capitalize(),
        _text(phase.get("result")),
        _text(phase.get("note")),
        picture if isinstance(picture, str) and picture in manifest else None,
        tuple(_cookie(one) for one in _mappings(cookies, _MOST_ROWS)),
        max(0, len(cookies) - _MOST_ROWS),
        sum(_mapping(one).get("party") == "third" for one in cookies),
        tuple(
            (_text(one.get("host")), _number(one.get("requests")) or 0)
            for one in _mappings(phase.get("contacts"), _MOST_ROWS)
        ),
        tuple(_text(one.get("url"), 500) for one in _mappings(phase.get("visits"), 20)),
    )


def _cookie(cookie: Mapping[str, Any]) -> ReportCookie:
    lifetime = cookie.get("lifetime_seconds")
    return ReportCookie(
        _text(cookie.get("name")),
        _text(cookie.get("domain")),
        _text(cookie.get("party")),
        _text(cookie.get("purpose")),
        _text(cookie.get("vendor")),
        format_lifetime(lifetime if isinstance(lifetime, int) else None),
        _text(cookie.get("set_from") or cookie.get("set_by")),
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(values: Any, most: int) -> list[Mapping[str, Any]]:
    return [one for one in values[:most] if isinstance(one, Mapping)] if isinstance(values, list) else []


def _texts(values: Any, most: int) -> list[str]:
    return [_text(one, 600) for one in values[:most]] if isinstance(values, list) else []


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _text(value: Any, most: int = 200) -> str:
    text = value if isinstance(value, str) else "" if value is None else str(value)[:most]
    return text if len(text) <= most else f"{text[: most - 1]}…"
