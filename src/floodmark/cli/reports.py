"""The reports of what was scanned."""

import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from floodmark.errors import InvalidInput

from .root import AsJson, Desk
from .showing import counted, facts, plain, print_json, safe, short, table

if TYPE_CHECKING:
    from floodmark.model.cookie_reports import CookieReport
    from floodmark.operations.declared import AsyncOperations
    from floodmark.sources.cookies.difference import ScanDifference

_WORDS = {"before": "before consent", "accept": "after accepting", "reject": "after rejecting"}
_PURPOSES = {"necessary": "green", "preferences": "blue", "statistics": "yellow", "marketing": "red", "unknown": "dim"}
_MOST_ROWS, _MOST_EVIDENCE = 60, 10

report = typer.Typer(help="Show reports of scans.", no_args_is_help=True)


@report.callback()
def reports() -> None:
    """Show reports of scans."""


@report.command("cookies")
def cookies(
    context: typer.Context,
    *,
    domain: Annotated[str, typer.Argument(metavar="DOMAIN", help="A domain, or the job that scans it.")],
    diff: Annotated[bool, typer.Option("--diff", help="Compare with the previous scan.")] = False,
    scan: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Key of a scan (default: the last; `--json` shows the previous one)."),
    ] = None,
    against: Annotated[str | None, typer.Option(metavar="KEY", help="Scan to compare with, for --diff.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the page, the screenshots and the data to this folder.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in your browser.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the report of the last cookie scan of a domain.

    floodmark report cookies example.com --diff
    """
    desk = Desk.of(context)
    if diff and (out is not None or open_page):
        raise InvalidInput("--diff is shown here, and has no page", hint="leave out --out and --open, or --diff")
    if against is not None and not diff:
        raise InvalidInput("--against is for comparing", hint="add --diff")
    if diff:
        return _show_difference(
            desk, desk.work(lambda operations: operations.cookie_difference(domain, scan, against)), as_json
        )
    found, files = desk.work(
        lambda operations: _found(operations, domain, scan, with_files=open_page or out is not None)
    )
    folder = Path(tempfile.mkdtemp(prefix="floodmark-report-")) if open_page and out is None else out
    if folder is not None:
        _write(folder, files, found)
    if as_json:
        print_json(found)
    else:
        _show(desk, found)
    if folder is not None:
        desk.note(f"[dim]Written to {plain(folder)}: {plain(', '.join(files))}, SHA256SUMS[/]")
    if open_page and folder is not None:
        webbrowser.open((folder / "report.html").resolve().as_uri())
    elif folder is None and not as_json:
        desk.note(f"[dim]With pictures: floodmark report cookies {plain(domain)} --open[/]")
    return None


async def _found(
    operations: "AsyncOperations", domain: str, scan: str | None, *, with_files: bool
) -> "tuple[CookieReport, dict[str, bytes]]":
    found = await operations.cookie_report(domain, scan)
    # Of this scan, also if another one ends meanwhile.
    names = list(found.files) if with_files else []
    return found, {name: await operations.cookie_file(domain, name, found.scan) for name in names}


def _write(folder: Path, files: dict[str, bytes], found: "CookieReport") -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            # Names are of our making; one from a server need not be.
            (folder / Path(name).name).write_bytes(content)
        sums = "".join(f"{entry['sha256']}  {name}\n" for name, entry in found.files.items())
        (folder / "SHA256SUMS").write_text(sums, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(
            f"cannot write to {folder}: {error.strerror}", hint="name another folder: --out DIR"
        ) from None


def _show(desk: Desk, found: "CookieReport") -> None:
    told = found.report
    _show_findings(desk, told)
    rows: list[tuple[str, Any]] = [
        ("domain", told["domain"]),
        ("scanned", f"{told['scanned_at'].replace('T', ' ').replace('+00:00', ' UTC')}, in {told['seconds']} s"),
        ("scan", found.scan),
    ]
    rows += [("note" if not number else "", note) for number, note in enumerate(told["notes"])]
    desk.out.print(facts(rows))
    for phase in told["phases"]:
        _show_phase(desk, phase)


def _show_findings(desk: Desk, told: dict[str, Any]) -> None:
    """How the scan went, and what it found: what a reader has to know first."""
    findings, result = told["findings"], told["result"]
    count = counted(len(findings), "finding") if findings else "no findings"
    heading = Text(f"{safe(result[:1].upper() + result[1:])}: {count}", style="bold")
    desk.out.print(heading, Text(safe(told["domain"])), sep="  ")
    for number, finding in enumerate(findings, start=1):
        desk.out.print(Text(f"{number}. {safe(finding['text'])}", style="red"), highlight=False)
        for sentence in finding["evidence"][:_MOST_EVIDENCE]:
            desk.out.print(Text(f"   - {safe(sentence)}"), highlight=False)
        if len(finding["evidence"]) > _MOST_EVIDENCE:
            desk.note(f"[dim]   and {len(finding['evidence']) - _MOST_EVIDENCE} more: --json has all of them[/]")
    desk.out.print()


def _show_phase(desk: Desk, phase: dict[str, Any]) -> None:
    counts, banner = phase["counts"], phase["banner"]
    heading = Text(f"\n{_WORDS[phase['phase']].capitalize()}: ", style="bold")
    if not phase["visits"]:
        return desk.out.print(heading.append(f"{phase['result']} ({safe(phase['note'])})", style="yellow"))
    result = "" if phase["result"] == "complete" else f" ({phase['result']}: {safe(phase['note'])})"
    third = f", {counts['third']} of third parties" if counts["third"] else ""
    steps = (banner.get("steps") or [banner["button"]]) if banner and banner["button"] else []
    said = ", then ".join(f'"{safe(step)}"' for step in steps)
    pressed = f"; pressed {said} ({safe(banner['name'])})" if steps else ""
    hosts = f"; {counted(len(phase['contacts']), 'other host')}" if phase["contacts"] else ""
    desk.out.print(heading.append(f"{counted(counts['cookies'], 'cookie')}{third}{hosts}{pressed}{result}"))
    if not phase["cookies"]:
        return None
    rows = [
        [
            short(cookie["name"], 40),
            short(cookie["domain"], 40),
            Text(cookie["party"], style="red" if cookie["party"] == "third" else ""),
            Text(safe(cookie["purpose"]), style=_PURPOSES.get(cookie["purpose"], "")),
            short(cookie["vendor"] or "", 24),
            _kept_for(cookie["lifetime_seconds"]),
            cookie["set_by"],
        ]
        for cookie in phase["cookies"][:_MOST_ROWS]
    ]
    desk.out.print(table("cookie", "domain", "party", "purpose", "vendor", "kept for", "set by", rows=rows))
    if len(phase["cookies"]) > _MOST_ROWS:
        desk.note(f"[dim]and {len(phase['cookies']) - _MOST_ROWS} more: --json has all of them[/]")
    return None


def _kept_for(seconds: int | None) -> str:
    from floodmark.sources.cookies.assessment import format_lifetime  # noqa: PLC0415 - with the words of the page

    return format_lifetime(seconds)


def _show_difference(desk: Desk, found: "ScanDifference", as_json: bool) -> None:
    if as_json:
        return print_json(found)
    times = " -> ".join(time.replace("T", " ").replace("+00:00", " UTC") for time in (found.earlier, found.later))
    desk.out.print(f"[bold]{plain(found.domain)}[/]  {times}", highlight=False)
    if not found.summary:
        return desk.out.print("Nothing has changed.", highlight=False)
    for sentence in found.summary:
        desk.out.print(f"- {plain(sentence[:1].upper() + sentence[1:])}", highlight=False)
    return None
