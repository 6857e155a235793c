"""The report as a self-contained HTML page: no scripts, no external URLs, embedded pictures, everything escaped."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from html import escape
from importlib.resources import files
from typing import Any

from .assessment import area_name, cookie_identity, describe_options, format_count, format_lifetime
from .findings import COMPLETE, PHASE_WORDS
from .severity import severity_of
from .tcf import describe_choice

_HEADINGS = {phase: words.capitalize() for phase, words in PHASE_WORDS.items()}
_PICTURES = {
    "before": "The page as a visitor sees it first, before any choice.",
    "accept": "The page after consent was given.",
    "reject": "The page after consent was refused.",
}
_MAX_EVIDENCE = 12
# Nothing may be loaded or run, whatever the scanned page contained.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def render_page(
    report: Mapping[str, Any], pictures: Mapping[str, bytes], files_: Mapping[str, Mapping[str, Any]]
) -> str:
    """Return the whole page."""
    title = f"Cookies of {report['domain']}"
    known = {cookie_identity(cookie) for cookie in report["phases"][0]["cookies"]}
    body = [
        f"<h1>{_text(title)}</h1>",
        f'<p class="soft">Scanned {_text(report["scanned_at"].replace("T", " ").replace("+00:00", " UTC"))} '
        f"in {_text(report['seconds'])} s with {_text(report['browser'])}. Third-party cookies were allowed.</p>",
        _findings(report),
        f'<div class="tiles">{"".join(_tile(phase) for phase in report["phases"])}</div>',
        _notes(report),
        _aliases(report.get("aliases", ())),
        *(_phase(phase, pictures, known) for phase in report["phases"]),
        _files(files_),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{_text(title)}</title>\n<style>\n{_style()}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def _findings(report: Mapping[str, Any]) -> str:
    found, result = report["findings"], report["result"]
    words = f"{result[:1].upper()}{result[1:]}"
    if not found:
        none = (
            "No finding. None of the cookies that were stored is known to need consent, and consent could be rejected."
            if result == "scan complete"
            else "No finding in what could be scanned."
        )
        return f'<section class="findings none"><h2>{_text(words)}: no findings</h2><p>{none}</p></section>'
    items = "".join(_finding(finding) for finding in found)
    return (
        f'<section class="findings"><h2>{_text(words)}: {format_count(len(found), "finding")}</h2><ol>{items}</ol>'
        '<p class="soft">A finding states what was observed. Purposes come from a table of well-known cookies; '
        "whether a finding is an infringement is a legal assessment.</p></section>"
    )


def _finding(finding: Mapping[str, Any]) -> str:
    # Findings that need a person's decision are shown less prominently than proven ones.
    kind = "proven" if severity_of(finding["code"]) == "high" else "open"
    rows = [f"<li>{_text(sentence)}</li>" for sentence in finding["evidence"]]
    shown, more = rows[:_MAX_EVIDENCE], rows[_MAX_EVIDENCE:]
    rest = f"<details><summary>{len(more)} more</summary><ul>{''.join(more)}</ul></details>" if more else ""
    evidence = f"<ul>{''.join(shown)}</ul>{rest}" if shown else ""
    return f'<li class="{kind}"><b>{_text(finding["text"])}</b>{evidence}</li>'


def _tile(phase: Mapping[str, Any]) -> str:
    counts = phase["counts"]
    heading = f'{_HEADINGS[phase["phase"]]} <span class="result">{_result(phase["result"])}</span>'
    if not phase["visits"]:
        return f'<div class="tile">{heading}<b>&ndash;</b><span class="soft">{_text(phase["note"])}</span></div>'
    purposes = " ".join(_tag(name, f"{count} {name}") for name, count in counts["purposes"].items())
    contacts = len(phase["contacts"])
    return (
        f'<div class="tile">{heading}<b>{counts["cookies"]}</b>'
        f'<span class="soft">cookie{"" if counts["cookies"] == 1 else "s"}, {counts["third"]} of third parties;'
        f" {contacts} other host{'' if contacts == 1 else 's'}</span><p>{purposes}</p></div>"
    )


def _notes(report: Mapping[str, Any]) -> str:
    notes = list(report["notes"])
    before = report["phases"][0]
    blocked = before["counts"]["blocked_by_default"]
    if blocked:
        notes.append(
            f"a browser that blocks third-party cookies would reject {blocked} of those before consent "
            "(marked in the table)"
        )
    if told := describe_options(report):
        notes.insert(0, told)
    if report["final"] != report["start"]:
        notes.append(f"{report['start']} redirects to {report['final']}")
    return f'<ul class="plain">{"".join(f"<li>{_text(note)}</li>" for note in notes)}</ul>' if notes else ""


def _aliases(aliases: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            f"<code>{_text(alias['host'])}</code>",
            f"<code>{_text(' -> '.join(alias['chain']))}</code>",
            _text(alias["site"]),
            _tag(alias["purpose"]) + _small(alias["vendor"] or ""),
        )
        for alias in aliases
    ]
    if not rows:
        return ""
    return _section(
        "Hosts of the site that lead to another party", ("Host", "Alias of", "Site", "Purpose"), rows, empty=""
    )


def _phase(phase: Mapping[str, Any], pictures: Mapping[str, bytes], before: set[tuple[str, ...]]) -> str:
    name = phase["phase"]
    parts = [f"<h2>{_HEADINGS[name]} {_result(phase['result'])}</h2>"]
    if phase["note"]:
        parts.append(f"<p>{_text(phase['note'])}</p>")
    if phase["banner"] is not None:
        parts.append(f'<p class="soft">{_banner(phase["banner"])}</p>')
    if phase.get("tcf") is not None:
        parts.append(f'<p class="soft">{_text(describe_choice(phase["tcf"]))}</p>')
    if phase["picture"] in pictures:
        parts.append(_picture(pictures[phase["picture"]], _PICTURES[name]))
    if phase["visits"]:
        parts += [_cookies(phase["cookies"], before), _contacts(phase["contacts"]), _storage(phase["storage"])]
        parts.append(_visits(phase["visits"]))
    if phase["left_out"]:
        parts.append(f'<p class="soft">Left out: {_text("; ".join(phase["left_out"]))}</p>')
    return "\n".join(part for part in parts if part)


def _banner(banner: Mapping[str, Any]) -> str:
    steps = " then ".join(f"<b>{_text(step)}</b>" for step in banner["steps"])
    layer = {1: " on the first layer", 2: " on the second layer"}.get(banner["layer"], "")
    off = (
        f", after turning off {format_count(banner['switched_off'], 'switch', 'switches')}"
        if banner["switched_off"]
        else ""
    )
    name = f"recognised {banner['name']}" if banner["name"].startswith("by ") else banner["name"]
    return f"Consent banner: {_text(name)}" + (f". Pressed {steps}{layer}{off}." if steps else ".")


def _picture(content: bytes, caption: str) -> str:
    data = base64.b64encode(content).decode()
    alt = _text(caption)
    return f'<figure><img alt="{alt}" src="data:image/png;base64,{data}"><figcaption>{alt}</figcaption></figure>'


def _cookies(cookies: Sequence[Mapping[str, Any]], before: set[tuple[str, ...]]) -> str:
    rows = [
        (
            _name(cookie, is_new=cookie_identity(cookie) not in before),
            f"<code>{_text(cookie['domain'])}</code>{_small(_where(cookie))}",
            _party(cookie),
            _tag(cookie["purpose"]) + _small(cookie["vendor"] or ""),
            _text(format_lifetime(cookie["lifetime_seconds"])),
            _text(_attributes(cookie)),
            _text(cookie["set_by"]) + _small(cookie["set_by_url"] or cookie["set_from"] or ""),
            _text(cookie["size"]),
        )
        for cookie in cookies
    ]
    columns = ("Name", "Domain", "Party", "Purpose", "Kept for", "Attributes", "Set by", "Bytes")
    return _section("Cookies", columns, rows, empty="None.")


def _contacts(contacts: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            f"<code>{_text(contact['host'])}</code>",
            _text(contact["site"]),
            _text(", ".join(f"{name} {count}" for name, count in contact["types"].items())),
            _text(contact["requests"]),
        )
        for contact in contacts
    ]
    return _section("Other hosts", ("Host", "Site", "What", "Requests"), rows, empty="No requests to third parties.")


def _storage(stored: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            f"<code>{_text(entry['key'])}</code>",
            f"<code>{_text(entry['origin'])}</code>",
            f'<span class="{entry["party"]}">{_text(entry["party"])}</span>',
            _text(area_name(entry["area"])),
            _text(entry["detail"]),
            _text(entry["size"] or ""),
        )
        for entry in stored
    ]
    columns = ("Key", "Origin", "Party", "Area", "Detail", "Characters")
    return _section("Storage", columns, rows, empty="Nothing is stored besides cookies.")


def _visits(visits: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            f"<code>{_text(visit['url'])}</code>{_small(visit['title'])}",
            _result(visit["result"]) + _small(visit["note"]),
            _text(visit["depth"]),
            _text(visit["status"] or ""),
        )
        for visit in visits
    ]
    table = _table(("Page", "Result", "Depth", "Status"), rows)
    return f"<details><summary>Pages ({len(visits)})</summary>{table}</details>"


def _files(listed: Mapping[str, Mapping[str, Any]]) -> str:
    rows = [
        (_text(name), f"<code>{_text(entry['sha256'])}</code>", _text(f"{entry['size']:,}"))
        for name, entry in listed.items()
    ]
    return f"<h2>Files of this report</h2>{_table(('File', 'SHA-256', 'Bytes'), rows)}"


_NUMBERS = ("Bytes", "Requests", "Depth", "Status", "Characters")
_SHORT = ("Kept for", "Party", "Area")


def _section(heading: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str) -> str:
    return f"<h3>{heading} ({len(rows)})</h3>{_table(columns, rows)}" if rows else f"<h3>{heading}</h3><p>{empty}</p>"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    classes = {**dict.fromkeys(_NUMBERS, "number"), **dict.fromkeys(_SHORT, "short"), "Name": "name"}
    kinds = [f' class="{classes[column]}"' if column in classes else "" for column in columns]
    head = "".join(f"<th{kind}>{column}</th>" for column, kind in zip(columns, kinds, strict=True))
    body = "\n".join(
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def _name(cookie: Mapping[str, Any], *, is_new: bool) -> str:
    mark = ' <span class="tag new">not before consent</span>' if is_new else ""
    return f"<code>{_text(cookie['name'])}</code>{mark}{_small(cookie['about'] or '')}"


def _where(cookie: Mapping[str, Any]) -> str:
    path = "" if cookie["path"] == "/" else f"path {cookie['path']}"
    partition = "" if cookie["partition"] is None else f"only within {cookie['partition']}"
    return ", ".join(part for part in (path, partition) if part)


def _party(cookie: Mapping[str, Any]) -> str:
    blocked = _small("blocked by default") if cookie["blocked_by_default"] else ""
    return f'<span class="{cookie["party"]}">{_text(cookie["party"])}</span>{blocked}'


def _attributes(cookie: Mapping[str, Any]) -> str:
    named = {
        "HttpOnly": cookie["http_only"],
        "Secure": cookie["secure"],
        "Partitioned": cookie["partition"] is not None,
    }
    return ", ".join([*(name for name, is_set in named.items() if is_set), f"SameSite={cookie['same_site']}"])


def _result(result: str) -> str:
    return f'<span class="tag {"complete" if result == COMPLETE else "other"}">{_text(result)}</span>'


def _tag(purpose: str, words: str | None = None) -> str:
    return f'<span class="tag {_text(purpose)}">{_text(words or purpose)}</span>'


def _small(text: str) -> str:
    return f"<br><small>{_text(text)}</small>" if text else ""


def _text(value: object) -> str:
    return escape(str(value), quote=True)


@lru_cache(maxsize=1)
def _style() -> str:
    return files(__package__).joinpath("page.css").read_text(encoding="utf-8")
