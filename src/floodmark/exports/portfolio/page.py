"""The report as a self-contained HTML page for people, which is also what a PDF is printed from.

It has no scripts and loads nothing; everything from a scan is escaped. Sections are collected in temporary files while
the domains arrive, because the numbers at the top are known only at the end.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from html import escape
from importlib.resources import files
from pathlib import Path
from shutil import copyfileobj
from typing import IO

from msgspec import Struct

from floodmark.model.cookie_portfolio import PortfolioCookie, PortfolioDomain, PortfolioFinding
from floodmark.sources.cookies.assessment import NEEDS_CONSENT, format_count, format_lifetime
from floodmark.sources.cookies.findings import PHASE_WORDS
from floodmark.sources.cookies.portfolio import phase_words
from floodmark.sources.cookies.severity import SEVERITIES, SEVERITY_MEANING, SEVERITY_WORDS

from .request import PortfolioRequest, PortfolioTotals
from .words import evidence_command, format_time

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_MOST_EVIDENCE, _MOST_COOKIES, _MOST_CHANGES = 8, 60, 12
_ORDER: dict[str, int] = {severity: place for place, severity in enumerate(SEVERITIES)}


class _SummaryRow(Struct, frozen=True):
    """What the table at the top shows of a domain."""

    domain: str
    place: int
    html: str


class PortfolioPage:
    """Writes the page."""

    def __init__(self, stream: IO[bytes], request: PortfolioRequest, folder: Path) -> None:
        self._stream, self._request, self._folder = stream, request, folder
        self._parts = {name: (folder / name).open("w+b") for name in (*SEVERITIES, "changes", "cookies")}
        self._rows: list[_SummaryRow] = []
        self._number = self._changed = 0

    def add(self, row: PortfolioDomain) -> None:
        """Add a domain to all sections."""
        self._number += 1
        anchor, worst = f"d{self._number}", _ORDER.get(row.severity or "", len(SEVERITIES))
        # The most serious domains first: by severity, then by the number of such findings.
        counts = [row.count(severity) for severity in SEVERITIES]
        place = worst * 1000 - (min(999, counts[worst]) if worst < len(counts) else 0)
        self._rows.append(_SummaryRow(row.domain, place, self._summary_row(row, anchor)))
        for severity in SEVERITIES:
            found = [finding for finding in row.findings if finding.severity == severity]
            if found:
                self._put(severity, _domain_findings(row, found))
        is_new = bool(self._request.earlier) and row.compared_with is None
        if row.has_changed or is_new:
            self._changed += 1
            self._put("changes", _domain_changes(row))
        self._put("cookies", self._domain_details(row, anchor))

    def close(self, totals: PortfolioTotals) -> None:
        """Put the sections together."""
        self._write(_head(), f'<h1>Cookie report</h1><p class="lead">{_introduction(totals, self._request)}</p>')
        self._write(_tiles(totals, has_earlier=bool(self._request.earlier)), "<h2>Summary</h2>", _SUMMARY_TEXT)
        self._write(_table_head(_columns(bool(self._request.earlier))))
        for row in sorted(self._rows, key=lambda row: (row.place, row.domain)):
            self._write(row.html)
        self._write("</tbody></table>")
        self._write_changes()
        for severity in SEVERITIES:
            if totals.findings[severity]:
                count = format_count(totals.findings[severity], "finding")
                self._write(f'<h2 class="{severity}">{SEVERITY_WORDS[severity]}: {count}</h2>')
                self._write(f'<p class="soft">{SEVERITY_MEANING[severity]}</p>')
                self._copy(severity)
        self._write("<h2>Domains, cookies and what set them</h2>")
        self._copy("cookies")
        self._write(_ABOUT, "</main></body></html>\n")

    def release(self) -> None:
        """Close the temporary files."""
        for part in self._parts.values():
            part.close()

    def _write_changes(self) -> None:
        if not self._request.earlier:
            return
        self._write(f"<h2>Changes since {_text(self._request.earlier)}</h2>")
        if not self._changed:
            self._write("<p>Nothing has changed.</p>")
        self._copy("changes")

    def _summary_row(self, row: PortfolioDomain, anchor: str) -> str:
        counts = [(severity, row.count(severity)) for severity in SEVERITIES]
        cells = [f'<a href="#{anchor}">{_text(row.domain)}</a>', _text(format_time(row.scanned_at)[:-4])]
        if row.result != "scan complete":
            cells[1] += f'<br><span class="medium">{_text(row.result)}</span>'
        cells += [f'<span class="{name}">{count}</span>' if count else "" for name, count in counts]
        if self._request.earlier:
            cells.append(_change_words(row))
        cells.append(self._evidence(row))
        return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"

    def _evidence(self, row: PortfolioDomain) -> str:
        link = self._request.link(row)
        if link is None:
            return f"<code>{_text(row.scan)}</code>"
        return f'<a href="{_text(link)}" rel="noreferrer">Report</a>'

    def _domain_details(self, row: PortfolioDomain, anchor: str) -> str:
        facts = [("Scan", f"{format_time(row.scanned_at)}: {row.result}")]
        facts += [("Visitor", row.visitor)] if row.visitor else []
        counts = ", ".join(f"{count} {PHASE_WORDS[phase]}" for phase, count in row.cookies.items())
        facts += [("Cookies", counts), ("Other sites contacted", str(row.third_parties))]
        facts += [("Consent manager", ", ".join(row.managers))] if row.managers else []
        facts += [(f"Choice {PHASE_WORDS[phase]}", choice) for phase, choice in row.choices.items()]
        facts += [("Hosts of other parties", "; ".join(row.aliases))] if row.aliases else []
        digest = row.files.get("report.html")
        shown = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in facts if value)
        shown += f"<dt>Evidence</dt><dd>{self._evidence(row)}<br><code>{_text(evidence_command(row))}</code>"
        shown += f"<br>SHA-256 of report.html: <code>{_text(digest)}</code></dd>" if digest else "</dd>"
        heading = f'<section class="domain" id="{anchor}"><h3>{_text(row.domain)}</h3>'
        return f"{heading}<dl>{shown}</dl>{_cookies(row)}</section>\n"

    def _put(self, part: str, html: str) -> None:
        self._parts[part].write(html.encode("utf-8", "replace"))

    def _write(self, *parts: str) -> None:
        self._stream.write("\n".join(parts).encode("utf-8", "replace"))

    def _copy(self, part: str) -> None:
        file = self._parts[part]
        file.seek(0)
        copyfileobj(file, self._stream)


_SUMMARY_TEXT = '<p class="soft">The domains with the most serious findings come first. The numbers count findings.</p>'
_ABOUT = """<h2>About this report</h2>
<p>Each domain was opened in a real browser three times: before consent, after accepting and after rejecting. The report
states what the browser observed. The purposes of cookies come from a table of well-known cookies; a cookie that is not
in it has the purpose "unknown".</p>
<p>A finding is an observation, and the rule named next to it is the usual one. Whether there is an infringement is a
legal assessment. A domain without findings is not proven to comply: a scan sees only the pages that it visits, from its
own location.</p>
<p>The report of each scan, with screenshots and all data, is stored with its SHA-256. The key of the scan names it.</p>
"""


def _head() -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer"><title>Cookie report</title>\n'
        f"<style>\n{_style()}</style></head>\n<body><main>\n"
    )


def _introduction(totals: PortfolioTotals, request: PortfolioRequest) -> str:
    first, last = format_time(totals.first_scan), format_time(totals.last_scan)
    period = f"scanned {first}" if first == last else f"scanned between {first} and {last}"
    compared = f" Compared with {_text(request.earlier)}." if request.earlier else ""
    return f"{format_count(totals.domains, 'domain')}, {period}. Made {format_time(request.made_at)}.{compared}"


def _tiles(totals: PortfolioTotals, *, has_earlier: bool) -> str:
    tiles = [(str(totals.domains), "domain" if totals.domains == 1 else "domains", "")]
    tiles += [
        (str(totals.findings[name]), SEVERITY_WORDS[name].lower(), name if totals.findings[name] else "")
        for name in SEVERITIES
    ]
    tiles += [(str(totals.new), "new findings", "")] if has_earlier else []
    tiles += [(str(totals.clean), "without findings", "")]
    tiles += [(str(totals.incomplete), "incomplete scans", "medium")] if totals.incomplete else []
    shown = "".join(f'<div class="tile"><b class="{style}">{count}</b>{words}</div>' for count, words, style in tiles)
    return f'<div class="tiles">{shown}</div>'


def _columns(has_earlier: bool) -> Sequence[str]:
    severities = [SEVERITY_WORDS[severity] for severity in SEVERITIES]
    return ["Domain", "Scanned (UTC)", *severities, *(["Changes"] if has_earlier else []), "Evidence"]


def _table_head(columns: Iterable[str]) -> str:
    return f"<table><thead><tr>{''.join(f'<th>{column}</th>' for column in columns)}</tr></thead><tbody>\n"


def _change_words(row: PortfolioDomain) -> str:
    if row.compared_with is None:
        return "new domain"
    new = sum(finding.state == "new" for finding in row.findings)
    parts = [f"{new} new"] if new else []
    parts += [f"{len(row.gone)} gone"] if row.gone else []
    return ", ".join(parts) or ("cookies or hosts" if row.changes else "none")


def _domain_findings(row: PortfolioDomain, found: Sequence[PortfolioFinding]) -> str:
    return "".join(
        f'<article class="finding {finding.severity}"><h3>{_text(finding.title)}'
        f' <span class="where">{_text(row.domain)}</span>{_new_mark(finding)}</h3>'
        f'<p>{_text(finding.text)}</p>{_evidence_list(finding)}<p class="soft">{_text(finding.why)}</p></article>\n'
        for finding in found
    )


def _new_mark(finding: PortfolioFinding) -> str:
    return ' <span class="new">new</span>' if finding.state == "new" else ""


def _evidence_list(finding: PortfolioFinding) -> str:
    rows = [f"<li>{_text(sentence)}</li>" for sentence in finding.evidence[:_MOST_EVIDENCE]]
    more = finding.more + max(0, len(finding.evidence) - _MOST_EVIDENCE)
    rows += [f"<li>and {more} more: see the report of the scan</li>"] if more else []
    return f"<ul>{''.join(rows)}</ul>" if rows else ""


def _domain_changes(row: PortfolioDomain) -> str:
    first = [f"<li><b>New domain:</b> {_first_words(row)}</li>"] if row.compared_with is None else []
    new = [f"<li><b>New:</b> {_text(f.title)}. {_text(f.text)}</li>" for f in row.findings if f.state == "new"]
    gone = [f"<li><b>No longer observed:</b> {_text(text)}</li>" for text in row.gone]
    other = [f"<li>{_text(text)}</li>" for text in row.changes[:_MOST_CHANGES]]
    more = len(row.changes) - _MOST_CHANGES
    other += [f"<li>and {more} more changes</li>"] if more > 0 else []
    return f"<article><h3>{_text(row.domain)}</h3><ul>{''.join([*first, *new, *gone, *other])}</ul></article>\n"


def _first_words(row: PortfolioDomain) -> str:
    found = format_count(len(row.findings), "finding") if row.findings else "no findings"
    return f"its first scan has {found}."


def _cookies(row: PortfolioDomain) -> str:
    shown = row.listed[:_MOST_COOKIES]
    if not shown:
        return "<p>No cookies were stored.</p>"
    rows = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in _cookie(cookie))}</tr>\n" for cookie in shown)
    more = row.unlisted + len(row.listed) - len(shown)
    rest = f'<p class="soft">and {format_count(more, "more cookie")}: see the report of the scan</p>' if more else ""
    return f"{_table_head(('Cookie', 'Purpose', 'Kept for', 'Present', 'Set by'))}{rows}</tbody></table>{rest}"


def _cookie(cookie: PortfolioCookie) -> Sequence[str]:
    style = "high" if cookie.purpose in NEEDS_CONSENT else ""
    vendor = f"<br><small>{_text(cookie.vendor)}</small>" if cookie.vendor else ""
    how = "response" if cookie.set_by == "header" else "script"
    return (
        f"<code>{_text(cookie.name)}</code><br><small>{_text(cookie.domain)}, {_text(cookie.party)} party</small>",
        f'<span class="{style}">{_text(cookie.purpose)}</span>{vendor}',
        _text(format_lifetime(cookie.lifetime_seconds)),
        _text(phase_words(cookie.phases)),
        f"{how}<br><code>{_text(cookie.set_by_url or 'unknown')}</code>",
    )


def _text(value: object) -> str:
    return escape(str(value), quote=True)


@lru_cache(maxsize=1)
def _style() -> str:
    return files(__package__).joinpath("page.css").read_text(encoding="utf-8")
