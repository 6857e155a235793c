"""Show the reports of cookie scans."""

import tempfile
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from floodmark.errors import InvalidInput
from floodmark.model.cookie_reports import CookieReport
from floodmark.operations.declared import AsyncOperations
from floodmark.sources.cookies.assessment import format_lifetime
from floodmark.sources.cookies.difference import ScanDifference

from .output import counted, facts, plain, print_json, safe, short, table
from .root import AsJson, CliContext, command_group

_WORDS = {"before": "before consent", "accept": "after accepting", "reject": "after rejecting"}
_PURPOSES = {"necessary": "green", "preferences": "blue", "statistics": "yellow", "marketing": "red", "unknown": "dim"}
_MOST_ROWS, _MOST_EVIDENCE = 60, 10

report = command_group("Show reports of scans.", default="cookies")


@report.command("cookies")
def cookies(
    context: typer.Context,
    *,
    domain: Annotated[
        str | None, typer.Argument(metavar="[DOMAIN]", help="A domain, or the job that scans it.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Write one report over all scanned domains to the file --out.")
    ] = False,
    file_format: Annotated[
        str | None,
        typer.Option("--format", metavar="FORMAT", help="With --all: html, pdf, xlsx or csv (default: as --out says)."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="With --all: show changes since 7d, 2026-11-01 ... (default: since the last report)."
        ),
    ] = None,
    evidence: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With --all: also write the files of each scan, and link to them."),
    ] = None,
    record: Annotated[
        bool,
        typer.Option("--record/--no-record", help="With --all: record the report, so that the next one compares."),
    ] = True,
    diff: Annotated[bool, typer.Option("--diff", help="Compare with the previous scan.")] = False,
    scan: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Key of a scan (default: the last; `--json` shows the previous one)."),
    ] = None,
    against: Annotated[str | None, typer.Option(metavar="KEY", help="Scan to compare with, for --diff.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Write the page, the screenshots and the data to this folder; with --all the file."
        ),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in your browser.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the report of the last cookie scan of a domain, or write one over all domains.

    floodmark report cookies example.com --diff

    floodmark report cookies --all --out cookies.pdf
    """
    cli = CliContext.of(context)
    if everything:
        _refuse_one_domain(domain, scan, is_diff=diff, is_opened=open_page)
        # It records the report.
        cli.command += " --all"
        from .portfolio import PortfolioOptions, write_report  # noqa: PLC0415 - slow to import

        options = PortfolioOptions(
            out=out, format=file_format, since=since, evidence=evidence, records=record, as_json=as_json
        )
        return write_report(cli, options)
    domain = _require_domain(domain, {"--format": file_format, "--since": since, "--evidence": evidence})
    if diff and (out is not None or open_page):
        raise InvalidInput(
            "--diff prints a comparison and writes no page", hint="leave out --out and --open, or --diff"
        )
    if against is not None and not diff:
        raise InvalidInput("--against needs --diff", hint="add --diff")
    if diff:
        return _show_difference(
            cli, cli.work(lambda operations: operations.cookie_difference(domain, scan, against)), as_json
        )
    found, files = cli.work(lambda operations: _load(operations, domain, scan, with_files=open_page or out is not None))
    folder = Path(tempfile.mkdtemp(prefix="floodmark-report-")) if open_page and out is None else out
    if folder is not None:
        _write(folder, files, found)
    if as_json:
        print_json(found)
    else:
        _show(cli, found)
    if folder is not None:
        cli.note(f"[dim]Written to {plain(folder)}: {plain(', '.join(files))}, SHA256SUMS[/]")
    if open_page and folder is not None:
        webbrowser.open((folder / "report.html").resolve().as_uri())
    elif folder is None and not as_json:
        cli.note(f"[dim]With screenshots: floodmark report cookies {plain(domain)} --open[/]")
    return None


def _refuse_one_domain(domain: str | None, scan: str | None, *, is_diff: bool, is_opened: bool) -> None:
    if domain is not None or scan is not None or is_diff or is_opened:
        raise InvalidInput(
            "--all is about every domain", hint="leave out the domain, --diff, --scan and --open, or --all"
        )


def _require_domain(domain: str | None, others: Mapping[str, object]) -> str:
    if domain is None:
        raise InvalidInput("no domain is named", hint="name one, or write a report over all of them: --all --out FILE")
    if given := [name for name, value in others.items() if value is not None]:
        raise InvalidInput(f"{given[0]} needs --all", hint=f"add --all, or leave out {given[0]}")
    return domain


async def _load(
    operations: AsyncOperations, domain: str, scan: str | None, *, with_files: bool
) -> tuple[CookieReport, dict[str, bytes]]:
    found = await operations.cookie_report(domain, scan)
    # The files of this scan, also if another one ends meanwhile.
    names = list(found.files) if with_files else []
    return found, {name: await operations.cookie_file(domain, name, found.scan) for name in names}


def _write(folder: Path, files: dict[str, bytes], found: CookieReport) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            # A server could send a name with a path.
            (folder / Path(name).name).write_bytes(content)
        sums = "".join(f"{entry['sha256']}  {name}\n" for name, entry in found.files.items())
        (folder / "SHA256SUMS").write_text(sums, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(
            f"cannot write to {folder}: {error.strerror}", hint="name another folder: --out DIR"
        ) from None


def _show(cli: CliContext, found: CookieReport) -> None:
    report_data = found.report
    _show_findings(cli, report_data)
    rows: list[tuple[str, Any]] = [
        ("domain", report_data["domain"]),
        (
            "scanned",
            f"{report_data['scanned_at'].replace('T', ' ').replace('+00:00', ' UTC')}, in {report_data['seconds']} s",
        ),
        ("scan", found.scan),
    ]
    rows += [("note" if not number else "", note) for number, note in enumerate(report_data["notes"])]
    cli.out.print(facts(rows))
    for phase in report_data["phases"]:
        _show_phase(cli, phase)


def _show_findings(cli: CliContext, report_data: dict[str, Any]) -> None:
    """Print the result and the findings first."""
    findings, result = report_data["findings"], report_data["result"]
    count = counted(len(findings), "finding") if findings else "no findings"
    heading = Text(f"{safe(result[:1].upper() + result[1:])}: {count}", style="bold")
    cli.out.print(heading, Text(safe(report_data["domain"])), sep="  ")
    for number, finding in enumerate(findings, start=1):
        cli.out.print(Text(f"{number}. {safe(finding['text'])}", style="red"))
        for sentence in finding["evidence"][:_MOST_EVIDENCE]:
            cli.out.print(Text(f"   - {safe(sentence)}"))
        if len(finding["evidence"]) > _MOST_EVIDENCE:
            cli.note(f"[dim]   and {len(finding['evidence']) - _MOST_EVIDENCE} more: --json has all of them[/]")
    cli.out.print()


def _show_phase(cli: CliContext, phase: dict[str, Any]) -> None:
    counts, banner = phase["counts"], phase["banner"]
    heading = Text(f"\n{_WORDS[phase['phase']].capitalize()}: ", style="bold")
    if not phase["visits"]:
        return cli.out.print(heading.append(f"{phase['result']} ({safe(phase['note'])})", style="yellow"))
    result = "" if phase["result"] == "complete" else f" ({phase['result']}: {safe(phase['note'])})"
    third = f", {counts['third']} of third parties" if counts["third"] else ""
    steps = (banner.get("steps") or [banner["button"]]) if banner and banner["button"] else []
    labels = ", then ".join(f'"{safe(step)}"' for step in steps)
    pressed = f"; pressed {labels} ({safe(banner['name'])})" if steps else ""
    hosts = f"; {counted(len(phase['contacts']), 'other host')}" if phase["contacts"] else ""
    cli.out.print(heading.append(f"{counted(counts['cookies'], 'cookie')}{third}{hosts}{pressed}{result}"))
    if not phase["cookies"]:
        return None
    rows = [
        [
            short(cookie["name"], 40),
            short(cookie["domain"], 40),
            Text(cookie["party"], style="red" if cookie["party"] == "third" else ""),
            Text(safe(cookie["purpose"]), style=_PURPOSES.get(cookie["purpose"], "")),
            short(cookie["vendor"] or "", 24),
            format_lifetime(cookie["lifetime_seconds"]),
            cookie["set_by"],
        ]
        for cookie in phase["cookies"][:_MOST_ROWS]
    ]
    cli.out.print(table("cookie", "domain", "party", "purpose", "vendor", "kept for", "set by", rows=rows))
    if len(phase["cookies"]) > _MOST_ROWS:
        cli.note(f"[dim]and {len(phase['cookies']) - _MOST_ROWS} more: --json has all of them[/]")
    return None


def _show_difference(cli: CliContext, found: ScanDifference, as_json: bool) -> None:
    if as_json:
        return print_json(found)
    times = " -> ".join(time.replace("T", " ").replace("+00:00", " UTC") for time in (found.earlier, found.later))
    cli.out.print(f"[bold]{plain(found.domain)}[/]  {times}")
    if not found.summary:
        return cli.out.print("Nothing has changed.")
    for sentence in found.summary:
        cli.out.print(f"- {plain(sentence[:1].upper() + sentence[1:])}")
    return None
