"""`report cookies --all`: write one report over all scanned domains."""

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from floodmark.errors import InvalidInput, NotFound
from floodmark.exports.portfolio.printer import ChromiumPrinter
from floodmark.exports.portfolio.request import EvidenceLink, PortfolioRequest, PortfolioWritten, format_of, no_link
from floodmark.exports.portfolio.words import describe_earlier, link_to_server
from floodmark.exports.portfolio.writing import write_portfolio
from floodmark.model.cookie_portfolio import PortfolioDomain, PortfolioReport
from floodmark.operations.declared import AsyncOperations
from floodmark.sources.cookies.browser import require_browser
from floodmark.sources.cookies.severity import SEVERITIES, SEVERITY_WORDS

from .output import counted, plain, print_json
from .parsing import parse_moment
from .root import CliContext

_SAFE_NAME = re.compile(r"[^A-Za-z0-9.-]")


class PortfolioOptions(Struct, frozen=True, kw_only=True):
    """The options of `report cookies --all`, as they were typed."""

    out: Path | None
    format: str | None
    since: str | None
    evidence: Path | None
    records: bool
    as_json: bool


def write_report(cli: CliContext, options: PortfolioOptions) -> None:
    """Write the report, and record it so that the next one shows what has changed."""
    if options.out is None:
        raise InvalidInput("--all writes a file, and none is named", hint="name one: --out cookies.html")
    now, out = datetime.now(UTC), options.out
    since = None if options.since is None else parse_moment(options.since, now)
    chosen, settings = format_of(options.format, out), cli.local_settings()
    if chosen == "pdf":
        # Before all scans are read.
        require_browser(settings.floodmark_chromium, os.environ)
    base = settings.floodmark_url or settings.api_public_url
    link = no_link if base is None else link_to_server(str(base))
    if options.evidence is not None:
        link = _link_to_folder(options.evidence, out)

    async def work(operations: AsyncOperations) -> tuple[PortfolioWritten, PortfolioReport | None]:
        earlier = await describe_earlier(operations, since)
        request = PortfolioRequest(format=chosen, out=out, since=since, earlier=earlier, made_at=now, link=link)
        found: list[PortfolioDomain] = []
        with cli.busy("reading the scans") as shown:

            def advance(row: PortfolioDomain) -> None:
                if options.evidence is not None:
                    # Without the large fields, which only the file needs.
                    found.append(replace(row, findings=(), listed=(), changes=(), gone=()))
                shown.update(f"{plain(row.domain)}")

            written = await write_portfolio(operations, request, ChromiumPrinter(settings), advance)
            if options.evidence is not None:
                await _write_evidence(operations, options.evidence, found)
        if not options.records:
            return written, None
        findings = sum(written.totals.findings.values())
        return written, await operations.record_portfolio_report(
            written.scans, format=chosen, findings=findings, sha256=written.sha256
        )

    written, report = cli.work(work)
    _show(cli, options, written, report)


def _link_to_folder(folder: Path, out: Path) -> EvidenceLink:
    relative = os.path.relpath(folder, out.parent).replace(os.sep, "/")
    return lambda row: f"{quote(relative)}/{quote(_folder_name(row))}/report.html"


def _folder_name(row: PortfolioDomain) -> str:
    return _SAFE_NAME.sub("_", row.stream.removeprefix("cookies:"))


async def _write_evidence(operations: AsyncOperations, folder: Path, rows: list[PortfolioDomain]) -> None:
    """Write the files of the scans, each in the folder of its domain. Files that are no longer stored are left out."""
    for row in rows:
        place = folder / _folder_name(row)
        try:
            place.mkdir(parents=True, exist_ok=True)
            for name in row.files:
                try:
                    content = await operations.cookie_file(row.stream, name, row.scan)
                except NotFound:
                    continue
                # A server could send a name with a path.
                (place / Path(name).name).write_bytes(content)
            sums = "".join(f"{digest}  {Path(name).name}\n" for name, digest in row.files.items())
            (place / "SHA256SUMS").write_text(sums, encoding="utf-8")
        except OSError as error:
            raise InvalidInput(
                f"cannot write to {place}: {error.strerror}", hint="name another folder: --evidence DIR"
            ) from None


def _show(
    cli: CliContext, options: PortfolioOptions, written: PortfolioWritten, report: PortfolioReport | None
) -> None:
    totals = written.totals
    if options.as_json:
        recorded = None if report is None else report.report_id
        return print_json(
            {"file": str(options.out), "sha256": written.sha256, "report_id": recorded, **to_builtins(totals)}
        )
    numbers = ", ".join(f"{totals.findings[name]} {SEVERITY_WORDS[name].lower()}" for name in SEVERITIES)
    cli.out.print(f"[green]Wrote[/] {plain(options.out)}: {counted(totals.domains, 'domain')}; findings: {numbers}")
    if report is not None:
        cli.note(f"[dim]Recorded as report {report.report_id}: the next one shows what has changed since.[/]")
    return None
