"""Files of posts: list, show, retry and prune them."""

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.text import Text

from floodmark.errors import InvalidInput
from floodmark.model.durations import parse_every
from floodmark.model.media import MediaChanged, MediaRow, MediaState, content_path
from floodmark.model.page import cursor_of, take
from floodmark.model.sizes import format_size

from .confirmation import confirm
from .output import counted, facts, plain, print_json, safe, short, table
from .root import AsJson, CliContext, DryRun, Yes, command_group
from .times import both, relative

StateOption = Annotated[MediaState | None, typer.Option(metavar="STATE", help="Only files in this state.")]
StreamOption = Annotated[str | None, typer.Option(metavar="STREAM", help="Only of this stream or job.")]

media = command_group("Manage files of posts: list, show, download again, delete.", default="ls")


@media.command()
def ls(
    context: typer.Context,
    *,
    state: StateOption = None,
    stream: StreamOption = None,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Start after this file.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number of entries.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List files of posts: wanted, stored, skipped, failed, gone or pruned."""
    cli = CliContext.of(context)
    found = cli.work(
        lambda operations: take(
            operations.each_media(state=state, stream=stream, cursor=cursor_of("media", after)), limit
        )
    )
    if as_json:
        return print_json(found)
    if not found:
        cli.out.print("No files.")
        return cli.note(
            "Download files of posts: floodmark add telegram @channel --media photo,document --max-size 20MB"
        )
    now = datetime.now(UTC)
    cli.out.print(table("id", "kind", "post", "size", "state", "since", "", rows=(_row(row, now) for row in found)))
    if len(found) == limit:
        same = "".join(f" --{name} {plain(value)}" for name, value in (("state", state), ("stream", stream)) if value)
        cli.note(f"[dim]More: floodmark media ls{same} --after {plain(found[-1].media_id)}[/]")
    return None


def _row(row: MediaRow, now: datetime) -> list[object]:
    return [
        Text(safe(row.media_id), style="bold"),
        safe(row.kind),
        short(row.key, 40),
        _size(row),
        row.state,
        relative(row.stored_at or row.created_at, now),
        short(row.error or row.filename or "", 60),
    ]


@media.command()
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="ID", help="Number of a file, or the hash of its content.")],
    as_json: AsJson = False,
) -> None:
    """Show a file of a post, and where its content is."""
    cli = CliContext.of(context)
    row = cli.work(lambda operations: operations.media_file(name))
    if as_json:
        return print_json(row)
    now = datetime.now(UTC)
    cli.out.print(Text(safe(row.media_id), style="bold"))
    return cli.out.print(
        facts(
            [
                ("kind", row.kind),
                ("type", row.media_type),
                ("name", row.filename),
                ("size", _size(row)),
                ("post", f"{row.stream} {row.key}"),
                ("state", row.state),
                ("attempts", str(row.attempts) if row.attempts else None),
                ("next try", both(row.try_at, now) if row.state == "wanted" else None),
                ("error", row.error),
                ("file", _path(row)),
                ("stored", None if row.stored_at is None else both(row.stored_at, now)),
            ]
        )
    )


@media.command()
def retry(
    context: typer.Context,
    *,
    name: Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this file, also if it was skipped.")] = None,
    state: StateOption = None,
    stream: StreamOption = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Download files again: one file, those in a state, or all that have failed."""
    cli = CliContext.of(context)
    found = cli.work(
        lambda operations: operations.retry_media(media_id=name, state=state, stream=stream, dry_run=dry_run)
    )
    if as_json:
        return print_json(found)
    return cli.out.print(_changed(found, "will be downloaded", "would be downloaded"))


@media.command()
def prune(
    context: typer.Context,
    *,
    older_than: Annotated[str, typer.Option(metavar="TIME", help="Files that were stored longer ago, as in 90d.")],
    stream: StreamOption = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete the content of files. Posts stay as they are.

    floodmark media prune --older-than 90d --dry-run
    """
    cli = CliContext.of(context)
    try:
        seconds = parse_every(older_than).total_seconds()
    except InvalidInput as error:
        raise InvalidInput(f"--older-than: {error}", hint=error.hint) from None
    plan = cli.work(lambda operations: operations.prune_media(seconds, stream=stream, dry_run=True))
    if dry_run and as_json:
        return print_json(plan)
    question = f"delete {counted(plan.files, 'file')} of {format_size(plan.size)}"
    if not confirm(cli, question, dry_run=dry_run, yes=yes):
        return None
    done = cli.work(lambda operations: operations.prune_media(seconds, stream=stream))
    if as_json:
        return print_json(done)
    return cli.out.print(_changed(done, "will be deleted", "would be deleted"))


def _changed(done: MediaChanged, will: str, would: str) -> str:
    size = f" ({format_size(done.size)})" if done.size else ""
    return f"{counted(done.files, 'file')}{size} {will if done.applied else would}."


def _size(row: MediaRow) -> str:
    return "-" if row.size is None else format_size(row.size)


def _path(row: MediaRow) -> str | None:
    return None if row.sha256 is None or row.state != "stored" else f"ARTIFACTS_DIR/{content_path(row.sha256)}"
