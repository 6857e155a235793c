"""Write items of the database or a server to files: `floodmark export items`."""

import gc
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from floodmark.errors import InvalidInput
from floodmark.exports.export import run_export
from floodmark.exports.formats import FORMATS
from floodmark.exports.request import ExportRequest, ExportResult, FoundBy
from floodmark.model.moments import begin_of, end_of
from floodmark.operations.declared import AsyncOperations
from floodmark.rules.item_conditions import parse_condition

from .output import console, counted, plain, print_json
from .root import CliContext

_STDOUT = "-"


class ItemOptions(Struct, frozen=True, kw_only=True):
    """The options of `export items`, as they were typed."""

    out: str
    streams: tuple[str, ...] = ()
    format: str | None = None
    since: str | None = None
    until: str | None = None
    where: tuple[str, ...] = ()
    query: str | None = None
    tag: str | None = None
    source: str | None = None
    continues: bool = False
    name: str | None = None
    partition: str | None = None
    revisions: bool = False
    deleted: bool = False
    data: bool = False
    formula_guard: bool = True


def write_items(cli: CliContext, options: ItemOptions, *, as_json: bool) -> None:
    """Carry out an export, and say what was written."""
    request = request_of(options, datetime.now(UTC))
    request.check()
    if request.continues is not None:
        cli.require_database()

    # Modules stay until the end: the garbage collector need not look at them again and again.
    gc.freeze()

    async def work(operations: AsyncOperations) -> ExportResult:
        with _ProgressBar(cli) as progress:
            return await run_export(operations, request, progress, sys.stdout.buffer)

    try:
        result = cli.work(work)
    except BrokenPipeError:
        # The reader of the pipe, such as `head`, has what it wants. Python must not try to flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    finally:
        gc.unfreeze()
    if request.out is None:
        return _print_notes(result)
    return print_json(result) if as_json else _print_result(cli, request, result)


def request_of(options: ItemOptions, now: datetime) -> ExportRequest:
    """Return the request of the options, or raise `InvalidInput`."""
    is_stdout, path = options.out == _STDOUT, Path(options.out)
    file_format = (options.format or _format_of(path)).lower()
    if options.partition not in (None, "day"):
        raise InvalidInput(f"--partition {options.partition[:40]!r} is not known", hint="use --partition day")
    is_folder = not is_stdout and (
        options.out.endswith(("/", os.sep)) or path.is_dir() or options.continues or options.partition is not None
    )
    if is_folder and path.suffix.removeprefix(".").lower() in FORMATS and not path.is_dir():
        why = "--continue adds a file each time" if options.continues else "--partition writes several files"
        raise InvalidInput(
            f"{why}, and {path} is the name of a file", hint=f"name a folder: --out {path.with_suffix('')}/"
        )
    if options.name is not None and not options.continues:
        raise InvalidInput(
            "--name is the name of a position for --continue", hint="add --continue, or leave out --name"
        )
    if options.continues and is_stdout and options.name is None:
        raise InvalidInput("--continue to the standard output needs a name", hint="add --name NAME")
    since = None if options.since is None else begin_of(options.since, now)
    before = None if options.until is None else end_of(options.until, now)
    if since is not None and before is not None and before <= since:
        raise InvalidInput("--until is before --since", hint="name the earlier time with --since")
    return ExportRequest(
        format=file_format,
        out=None if is_stdout else path,
        is_folder=is_folder,
        streams=options.streams,
        found_by=_found_by(options),
        where=tuple(parse_condition(text, now) for text in options.where),
        since=since,
        before=before,
        revisions=options.revisions,
        deleted=options.deleted,
        with_data=options.data,
        by_day=options.partition is not None,
        guards_formulas=options.formula_guard,
        continues=(options.name or str(path.absolute())) if options.continues else None,
        as_typed=_selecting(options, file_format),
    )


def _found_by(options: ItemOptions) -> FoundBy | None:
    if options.query is None and options.tag is None and options.source is None:
        return None
    return FoundBy(query=options.query, tag=options.tag, source=options.source)


def _format_of(path: Path) -> str:
    suffix = path.suffix.removeprefix(".").lower()
    if suffix in FORMATS:
        return suffix
    raise InvalidInput(f"the format of {str(path)!r} is not known", hint=f"add --format {'|'.join(FORMATS)}")


def _selecting(options: ItemOptions, file_format: str) -> dict[str, Any]:
    """Return the options that decide about rows and their form."""
    others = ("out", "continues", "name")
    chosen = {name: value for name, value in asdict(options).items() if name not in others}
    # An export that continues has none of these; without them its options are those of earlier versions.
    chosen = {name: value for name, value in chosen.items() if name not in ("query", "tag", "source") or value}
    return chosen | {"streams": sorted(options.streams), "where": sorted(options.where), "format": file_format}


def _print_result(cli: CliContext, request: ExportRequest, result: ExportResult) -> None:
    files = f" in {counted(len(result.files), 'file')}" if request.is_folder else ""
    new = "" if result.is_complete else "new "
    where = "" if request.is_folder and not result.files else f": {plain(result.out)}"
    cli.out.print(
        f"[green]Done[/]: {result.rows:,} {new}{'row' if result.rows == 1 else 'rows'}{files}{where}", soft_wrap=True
    )
    _print_notes(result)
    if request.continues is not None:
        cli.note("[dim]The same command continues from here.[/]")
    elif not result.rows:
        cli.note("[dim]No stored item matches. See the streams: floodmark watermark[/]")


def _print_notes(result: ExportResult) -> None:
    for note in result.notes:
        console(stderr=True).print(f"[yellow]Note:[/] {plain(note)}", soft_wrap=True)


class _ProgressBar:
    """A progress bar on the terminal of stderr: streams, rows and rows per second."""

    def __init__(self, cli: CliContext) -> None:
        err = console(stderr=True)
        self._bar = Progress(
            SpinnerColumn(),
            BarColumn(),
            TextColumn("{task.fields[rows]:,} rows"),
            TextColumn("{task.fields[speed]}"),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=err,
            transient=True,
            disable=not err.is_terminal or cli.is_quiet,
        )
        self._task: TaskID = self._bar.add_task("", total=None, rows=0, speed="")
        self._rows, self._done, self._streams = 0, 0, 0

    def __enter__(self) -> "_ProgressBar":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def start(self, streams: int) -> None:
        """Show the number of streams."""
        self._streams = streams
        self._bar.update(self._task, total=streams or None)

    def add(self, rows: int, stream: str | None) -> None:
        """Count rows, and a stream that is complete."""
        self._rows += rows
        self._done += stream is not None
        elapsed = self._bar.tasks[self._task].elapsed or 0.0
        speed = f"{self._rows / elapsed:,.0f}/s" if elapsed > 1 else ""
        shown = f"{self._done:,} of {self._streams:,} streams" if self._streams else ""
        self._bar.update(self._task, completed=self._done, rows=self._rows, speed=speed, description=shown)
