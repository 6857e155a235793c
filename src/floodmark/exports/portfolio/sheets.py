"""The report as a spreadsheet (XLSX) and as CSV.

The spreadsheet has the sheets Summary, Findings, Changes and Cookies; CSV has one row for each finding, and one for a
domain without findings. No text becomes a formula.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from floodmark.exports.formats.csv import guard_formula
from floodmark.exports.formats.xlsx import MOST_CHARACTERS, MOST_ROWS
from floodmark.model.cookie_portfolio import PortfolioDomain, PortfolioFinding
from floodmark.process.lazy import LazyModule
from floodmark.sources.cookies.assessment import format_lifetime
from floodmark.sources.cookies.portfolio import phase_words
from floodmark.sources.cookies.severity import SEVERITIES, SEVERITY_MEANING, SEVERITY_WORDS

from .request import PortfolioRequest, PortfolioTotals
from .words import STATE_WORDS, evidence_command, format_time, total_rows

if TYPE_CHECKING:
    import xlsxwriter
else:
    # Only spreadsheets need it.
    xlsxwriter = LazyModule("xlsxwriter")

_CSV_COLUMNS = (
    *("domain", "scanned_at", "scan_result", "severity", "title", "finding", "since_last_report", "why", "evidence"),
    *("code", "scan", "stream", "report_sha256", "link"),
)
_SUMMARY = (
    *(("Domain", 32), ("Scanned (UTC)", 20), ("Scan", 18)),
    *((SEVERITY_WORDS[severity], 14) for severity in SEVERITIES),
    *(("New findings", 13), ("No longer observed", 18), ("Cookies before consent", 14), ("Cookies after refusal", 14)),
    *(
        ("Third parties", 13),
        ("Consent manager", 22),
        ("Scan key", 38),
        ("SHA-256 of report.html", 30),
        ("Evidence", 50),
    ),
)
_FINDINGS = (
    *(("Severity", 14), ("Domain", 32), ("Finding", 34), ("What was observed", 60), ("Since the last report", 16)),
    *(("Evidence", 90), ("Usual rule", 60), ("Code", 24), ("Scan key", 38)),
)
_CHANGES = (("Domain", 32), ("What", 22), ("Change", 110), ("Earlier scan (UTC)", 20), ("This scan (UTC)", 20))
_COOKIES = (
    *(("Domain", 32), ("Cookie", 28), ("Purpose", 14), ("Vendor", 24), ("Party", 10), ("Of domain", 28)),
    *(("Kept for", 14), ("Lifetime in days", 14), ("Present", 34), ("Set by", 10), ("Response or script", 80)),
)


class PortfolioCsv:
    """Writes CSV: UTF-8, comma, one header line."""

    def __init__(self, stream: IO[bytes], request: PortfolioRequest) -> None:
        self._stream, self._link = stream, request.link
        self._write([_CSV_COLUMNS])

    def add(self, row: PortfolioDomain) -> None:
        """Add the findings of a domain."""
        self._write(_csv_row(row, finding, self._link(row)) for finding in row.findings or (None,))

    def close(self, totals: PortfolioTotals) -> None:
        """Do nothing: every line is complete."""

    def release(self) -> None:
        """Do nothing: there are no temporary files."""

    def _write(self, rows: Any) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows([guard_formula(cell) for cell in row] for row in rows)
        self._stream.write(text.getvalue().encode("utf-8", "replace"))


def _csv_row(row: PortfolioDomain, finding: PortfolioFinding | None, link: str | None) -> Sequence[str]:
    known = (row.domain, row.scanned_at.astimezone(UTC).isoformat(timespec="seconds"), row.result)
    told: tuple[str, ...] = ("No finding", "", "", "", "", "", "")
    if finding is not None:
        words, state = SEVERITY_WORDS[finding.severity], STATE_WORDS[finding.state]
        told = (words, finding.title, finding.text, state, finding.why, _evidence(finding), finding.code)
    digest = row.files.get("report.html", "")
    return (*known, *told, row.scan, row.stream, digest, link or evidence_command(row))


def _evidence(finding: PortfolioFinding) -> str:
    more = [f"and {finding.more} more: see the report of the scan"] if finding.more else []
    return "\n".join([*finding.evidence, *more])


class PortfolioBook:
    """Writes a spreadsheet. Rows go to temporary files at once."""

    def __init__(self, stream: IO[bytes], request: PortfolioRequest, folder: Path) -> None:
        self._request = request
        self._book = xlsxwriter.Workbook(
            stream,
            {
                "constant_memory": True,
                "tmpdir": str(folder),
                "strings_to_formulas": False,
                "strings_to_urls": False,
                "strings_to_numbers": False,
            },
        )
        self._book.set_properties({"title": "Cookie report", "comments": "Made by Floodmark"})
        top = {"valign": "top", "text_wrap": True}
        self._head = self._book.add_format({"bold": True, "bg_color": "#E8ECF2", "bottom": 1, **top})
        self._plain, self._time = (
            self._book.add_format(top),
            self._book.add_format({"num_format": "yyyy-mm-dd hh:mm", **top}),
        )
        self._bold = self._book.add_format({"bold": True, **top})
        colors = {"high": "#B3261E", "medium": "#A15C00", "low": "#5B6472"}
        self._severity = {
            SEVERITY_WORDS[name]: self._book.add_format({"bold": True, "font_color": color, **top})
            for name, color in colors.items()
        }
        self._about = self._book.add_worksheet("About")
        self._rows = {
            name: _Sheet(self._book, name, columns, self._head)
            for name, columns in (
                ("Summary", _SUMMARY),
                ("Findings", _FINDINGS),
                ("Changes", _CHANGES),
                ("Cookies", _COOKIES),
            )
        }
        self._rows["Summary"].sheet.activate()

    def add(self, row: PortfolioDomain) -> None:
        """Add a domain to all sheets."""
        link = self._request.link(row) or evidence_command(row)
        counts = [row.count(severity) or None for severity in SEVERITIES]
        new = sum(finding.state == "new" for finding in row.findings)
        values = [row.domain, row.scanned_at, row.result, *counts, new or None, len(row.gone) or None]
        values += [row.cookies.get("before"), row.cookies.get("reject"), row.third_parties, ", ".join(row.managers)]
        self._put("Summary", [*values, row.scan, row.files.get("report.html", ""), link])
        for finding in row.findings:
            told = [SEVERITY_WORDS[finding.severity], row.domain, finding.title, finding.text]
            told += [STATE_WORDS[finding.state], _evidence(finding), finding.why, finding.code, row.scan]
            self._put("Findings", told)
        for what, text in _changes(row):
            self._put("Changes", [row.domain, what, text, row.compared_at, row.scanned_at])
        for cookie in row.listed:
            seconds = cookie.lifetime_seconds
            days = None if seconds is None else round(seconds / 86_400, 1)
            known: list[Any] = [
                row.domain,
                cookie.name,
                cookie.purpose,
                cookie.vendor,
                f"{cookie.party} party",
                cookie.domain,
            ]
            known += [format_lifetime(seconds), days, phase_words(cookie.phases), cookie.set_by, cookie.set_by_url]
            self._put("Cookies", known)

    def close(self, totals: PortfolioTotals) -> None:
        """Write the sheet about the report, and the filters."""
        self._about.set_column(0, 0, 34)
        self._about.set_column(1, 1, 110)
        rows: list[tuple[str, str]] = [
            ("Cookie report", f"made {format_time(self._request.made_at)}"),
            ("Compared with", self._request.earlier or "nothing: this is the first report"),
            *total_rows(totals),
            *((SEVERITY_WORDS[name], SEVERITY_MEANING[name]) for name in SEVERITIES),
            ("Limits", "A scan sees the pages that it visits, from its own location. It cannot prove compliance."),
            *(
                (
                    f"Rows left out of {name}",
                    f"{sheet.left_out:,}: a sheet has at most {MOST_ROWS:,} rows, CSV has no limit",
                )
                for name, sheet in self._rows.items()
                if sheet.left_out
            ),
        ]
        for place, (name, text) in enumerate(rows):
            self._about.write_string(place, 0, name, self._bold)
            self._about.write_string(place, 1, text, self._plain)
        for sheet in self._rows.values():
            sheet.finish()

    def release(self) -> None:
        """Put the sheets together, which also closes their temporary files."""
        self._book.close()

    def _put(self, name: str, values: Sequence[Any]) -> None:
        sheet = self._rows[name]
        if sheet.used >= MOST_ROWS:
            sheet.left_out += 1
            return
        for column, value in enumerate(values):
            if isinstance(value, datetime):
                moment = value.astimezone(UTC).replace(tzinfo=None)
                sheet.sheet.write_datetime(sheet.used, column, moment, self._time)
            elif isinstance(value, int | float):
                sheet.sheet.write_number(sheet.used, column, value, self._plain)
            elif value:
                style = self._severity.get(value, self._plain) if name == "Findings" and not column else self._plain
                sheet.sheet.write_string(sheet.used, column, _fit(str(value)), style)
        sheet.used += 1


class _Sheet:
    """A sheet with a header line, a filter, and the place of its next row."""

    def __init__(self, book: Any, name: str, columns: Sequence[tuple[str, int]], style: Any) -> None:
        self.sheet, self._columns, self.used, self.left_out = book.add_worksheet(name), columns, 1, 0
        self.sheet.freeze_panes(1, 1)
        self.sheet.set_landscape()
        self.sheet.fit_to_pages(1, 0)
        self.sheet.repeat_rows(0)
        for column, (title, width) in enumerate(columns):
            self.sheet.set_column(column, column, width)
            self.sheet.write_string(0, column, title, style)

    def finish(self) -> None:
        """Add the filter, which needs the number of rows."""
        self.sheet.autofilter(0, 0, max(1, self.used - 1), len(self._columns) - 1)


def _changes(row: PortfolioDomain) -> Iterator[tuple[str, str]]:
    for finding in row.findings:
        if finding.state == "new":
            yield "New finding", f"{finding.title}: {finding.text}"
    for text in row.gone:
        yield "No longer observed", text
    for text in row.changes:
        yield "Change", text


def _fit(text: str) -> str:
    # As spreadsheets count: in UTF-16 units, of which a character has at most two.
    most = MOST_CHARACTERS // 2
    return text if len(text) <= most else f"{text[: most - 6]} [cut]"
