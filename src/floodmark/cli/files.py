"""Write collected items to files: `export items`, `export files`, `export schema`, and `fetch`."""

import sys
from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from floodmark import schemas
from floodmark.errors import InvalidInput

from .output import counted, json, plain, print_json, short
from .root import AsJson, CliContext, command_group

Out = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder of the files (default: ARTIFACTS_DIR).", show_default=False)
]

export = command_group("Export collected data.", default="--help")


@export.command("items")
def export_items(
    context: typer.Context,
    *,
    streams: Annotated[
        list[str] | None,
        typer.Argument(metavar="STREAM...", help="Streams, jobs, or patterns such as 'telegram:*' (default: all)."),
    ] = None,
    out: Annotated[str, typer.Option(metavar="PATH", help="A file, a folder (DIR/), or - for the standard output.")],
    file_format: Annotated[
        str | None,
        typer.Option("--format", metavar="FORMAT", help="jsonl, csv, parquet or xlsx (default: the suffix of --out)."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only items since: 2h, 3d, a date or a time.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="WHEN", help="Only items until; a date is included.")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="Only items with: 'views>100', 'channel=harbour', 'text~ferry'; can be repeated, all must be true.",
        ),
    ] = None,
    query: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Only items that a search finds; see: floodmark search --help.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Only what jobs with this tag collect.")] = None,
    source: Annotated[str | None, typer.Option(help="Only what this kind of source collects, such as feed.")] = None,
    continues: Annotated[
        bool, typer.Option("--continue", help="Write only what is new since the last time, as another file in DIR/.")
    ] = False,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the position for --continue (default: the path).")
    ] = None,
    partition: Annotated[
        str | None, typer.Option(metavar="day", help="Write a folder for each UTC day (only: day).")
    ] = None,
    revisions: Annotated[bool, typer.Option("--revisions", help="Include earlier revisions.")] = False,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Include items that were deleted at their source.")
    ] = False,
    data: Annotated[bool, typer.Option("--data", help="Add the whole item as JSON in the column data.")] = False,
    formula_guard: Annotated[
        bool,
        typer.Option(
            "--formula-guard/--no-formula-guard",
            help="In CSV, put a ' before text that a spreadsheet program would take for a formula.",
        ),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Write items of any source as JSON lines, CSV, Parquet or a spreadsheet.

    floodmark export items 'telegram:*' --since 7d --out posts.csv
    """
    from .export_items import ItemOptions, write_items  # noqa: PLC0415 - loads the database library

    cli = CliContext.of(context)
    options = ItemOptions(
        streams=tuple(streams or ()),
        out=out,
        format=file_format,
        since=since,
        until=until,
        where=tuple(where or ()),
        query=query,
        tag=tag,
        source=source,
        continues=continues,
        name=name,
        partition=partition,
        revisions=revisions,
        deleted=deleted,
        data=data,
        formula_guard=formula_guard,
    )
    write_items(cli, options, as_json=as_json)


@export.command("files")
def export_files(
    context: typer.Context,
    *,
    out: Out = None,
    job: Annotated[str | None, typer.Option(metavar="JOB", help="Only items of this job.")] = None,
    stream: Annotated[str | None, typer.Option(metavar="STREAM", help="Only items of this stream.")] = None,
    since: Annotated[str | None, typer.Option(metavar="DATE", help="First day in UTC, as in 2026-01-31.")] = None,
    until: Annotated[str | None, typer.Option(metavar="DATE", help="Last day, included.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write posts of Telegram as one file per chat and UTC day. Unchanged files are not written again."""
    cli = CliContext.of(context)
    first, last = days_between(since, until)
    if job is not None and stream is not None:
        raise InvalidInput("--job and --stream contradict each other", hint="use only one of them")
    folder = folder_for(cli, out)

    from .export_files import export_posts  # noqa: PLC0415 - loads the database library

    result = export_posts(cli, folder, job=job, stream=stream, first=first, last=last)
    if as_json:
        return print_json(result)
    counts = f"{counted(result.written, 'file')} written, {result.unchanged:,} unchanged"
    cli.out.print(f"[green]Done[/]: {counts}, in {plain(folder)}", soft_wrap=True)
    if not result.written + result.unchanged:
        cli.note("[dim]There are no posts in this time. See the collected streams: floodmark watermark[/]")
    return None


@export.command("engagement")
def export_samples(
    context: typer.Context,
    *,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="A stream, or a job that collects it.")],
    out: Annotated[str, typer.Option(metavar="FILE", help="File to write; - for the standard output.")],
    file_format: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help="jsonl, csv, xlsx or parquet (by the file name).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write views, forwards and reactions of posts over time: one row per sample.

    floodmark export engagement telegram-harbour --out samples.csv
    """
    from .export_engagement import write_samples  # noqa: PLC0415 - loads the database library

    write_samples(CliContext.of(context), stream, out, file_format, as_json=as_json)


@export.command("schema")
def export_schema(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Name of a schema (default: list all).")] = None,
) -> None:
    """Print a JSON Schema of the files or of an event about posts."""
    cli = CliContext.of(context)
    if name is not None:
        sys.stdout.write(json(schemas.schema(name)) + "\n")
        return
    for each in schemas.names():
        cli.out.print(each)


def fetch(
    context: typer.Context,
    *,
    chats: Annotated[list[str], typer.Argument(metavar="@NAME...", help="Channels: @name, a t.me link, or a number.")],
    day: Annotated[str, typer.Option("--date", metavar="DATE", help="Day in UTC, as in 2026-01-31.")],
    until: Annotated[str | None, typer.Option(metavar="DATE", help="Last day of a range, included.")] = None,
    out: Out = None,
    account: Annotated[str | None, typer.Option(metavar="NAME", help="Account to read with (default: any).")] = None,
    parallelism: Annotated[
        int | None, typer.Option(min=1, max=64, help="Number of channels in parallel (default: PARALLELISM_MAX).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read certain days of channels now and write a file for each. Repeat the command to continue it.

    Ends with exit code 1 after Telegram has not responded for FETCH_GIVE_UP_AFTER (5 minutes), or if a disk is full.
    """
    cli = CliContext.of(context)
    folder = folder_for(cli, out)
    first, last = days_between(day, until, names=("--date", "--until"))
    assert first is not None
    from .fetch import run_fetch  # noqa: PLC0415 - loads the database library

    is_complete = run_fetch(
        cli,
        chats,
        first=first,
        last=last or first,
        folder=folder,
        account=account,
        parallelism=parallelism,
        as_json=as_json,
    )
    if not is_complete:
        raise typer.Exit(1)


def folder_for(cli: CliContext, out: Path | None) -> Path:
    """Return the folder for files, from --out or ARTIFACTS_DIR; it need not exist yet."""
    folder = out or cli.local_settings().artifacts_dir
    if folder is None:
        raise InvalidInput("no folder for the files is given", hint="add --out DIR, or set ARTIFACTS_DIR")
    if folder.exists() and not folder.is_dir():
        raise InvalidInput(f"{folder} is a file, not a folder", hint="choose another with --out DIR")
    return folder


def days_between(
    since: str | None, until: str | None, names: tuple[str, str] = ("--since", "--until")
) -> tuple[date | None, date | None]:
    """Return two days, the first not after the second."""
    first, last = day_of(names[0], since), day_of(names[1], until)
    if first is not None and last is not None and last < first:
        raise InvalidInput(f"{last} comes before {first}", hint="name the earlier day first")
    return first, last


def day_of(option: str, text: str | None) -> date | None:
    """Return the day of an option."""
    if text is None:
        return None
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInput(f"{option} {short(text, 40)!r} is not a day", hint="write it like 2026-01-31") from None
