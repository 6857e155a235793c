"""What was collected, as files: `export files`, `export schema`, and `fetch`, which collects just for that."""

import sys
from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from floodmark.errors import InvalidInput

from .root import AsJson, Desk
from .showing import counted, json, plain, print_json, short

Out = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder of the files (default: ARTIFACTS_DIR).", show_default=False)
]

export = typer.Typer(help="Export collected data.")


@export.callback(invoke_without_command=True)
def begin(context: typer.Context) -> None:
    """Export collected data."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), nl=False)


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
    """Write one file per chat and UTC day. Unchanged files are not written, so the command can be repeated."""
    desk = Desk.of(context)
    first, last = days_between(since, until)
    if job is not None and stream is not None:
        raise InvalidInput("--job and --stream say the same in two ways", hint="leave one of them out")
    folder = folder_for(desk, out)

    from .exporting import exported  # noqa: PLC0415 - heavy

    told = exported(desk, folder, job=job, stream=stream, first=first, last=last)
    if as_json:
        return print_json(told)
    counts = f"{counted(told.written, 'file')} written, {told.unchanged:,} unchanged"
    desk.out.print(f"[green]Done[/]: {counts}, in {plain(folder)}", highlight=False, soft_wrap=True)
    if not told.written + told.unchanged:
        desk.note("[dim]There are no posts in that time. See what was collected: floodmark watermark[/]")
    return None


@export.command("schema")
def export_schema(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Name of a schema (default: list all).")] = None,
) -> None:
    """Print a JSON Schema of the files or of an event about posts."""
    from floodmark.schemas import names, schema  # noqa: PLC0415 - read from the package when asked for

    desk = Desk.of(context)
    if name is not None:
        sys.stdout.write(json(schema(name)) + "\n")
        return
    for each in names():
        desk.out.print(each, highlight=False)


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
    desk = Desk.of(context)
    folder = folder_for(desk, out)
    first, last = days_between(day, until, names=("--date", "--until"))
    assert first is not None
    from .fetching import run_fetch  # noqa: PLC0415 - heavy

    is_good = run_fetch(
        desk,
        chats,
        first=first,
        last=last or first,
        folder=folder,
        account=account,
        parallelism=parallelism,
        as_json=as_json,
    )
    if not is_good:
        raise typer.Exit(1)


def folder_for(desk: Desk, out: Path | None) -> Path:
    """Where files go: what was said, else ARTIFACTS_DIR. It must be a folder, or a place to make one."""
    folder = out or desk.maker().settings.artifacts_dir
    if folder is None:
        raise InvalidInput("it is not said where the files shall go", hint="add --out DIR, or set ARTIFACTS_DIR")
    if folder.exists() and not folder.is_dir():
        raise InvalidInput(f"{folder} is a file, not a folder", hint="name another with --out DIR")
    return folder


def days_between(
    since: str | None, until: str | None, names: tuple[str, str] = ("--since", "--until")
) -> tuple[date | None, date | None]:
    """Two days, the first not behind the second."""
    first, last = day_of(names[0], since), day_of(names[1], until)
    if first is not None and last is not None and last < first:
        raise InvalidInput(f"{last} comes before {first}", hint="name the earlier day first")
    return first, last


def day_of(option: str, text: str | None) -> date | None:
    """A day as people write it."""
    if text is None:
        return None
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInput(f"{option} {short(text, 40)!r} is not a day", hint="write it like 2026-01-31") from None
