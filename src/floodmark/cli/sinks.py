"""Sinks: list, pause, replay and test them, and handle their dead letters."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.text import Text

from floodmark.errors import InvalidInput
from floodmark.model.durations import format_duration
from floodmark.model.page import take
from floodmark.model.sinks import SinkLetter, SinkReplay, SinkRow
from floodmark.operations.declared import AsyncOperations

from .confirmation import confirm
from .output import counted, facts, plain, print_json, safe, short, table
from .parsing import parse_moment
from .root import AsJson, CliContext, DryRun, Yes, command_group
from .times import both, relative

_STYLES = {"ok": "green", "filling": "cyan", "failing": "bold red", "paused": "yellow", "removed": "dim"}
_MOST_LETTERS = 1000

SinkName = Annotated[str, typer.Argument(metavar="NAME", help="Name of a sink.")]

sinks = command_group("Manage sinks: where events are delivered.", default="ls")


@sinks.command()
def ls(context: typer.Context, as_json: AsJson = False) -> None:
    """List sinks with their position, lag, state and last error."""
    cli = CliContext.of(context)
    found, now = cli.work(lambda operations: operations.sinks()), datetime.now(UTC)
    if as_json:
        return print_json(found)
    if not found:
        cli.out.print("No sinks.")
        return cli.note("Configure one with SINKS, and start a scheduler: docs/how-to/sinks.md")
    columns = ("name", "kind", "place", "position", "lag", "dead letters", "state", "last error")
    rows = [
        [
            Text(safe(row.name), style="bold"),
            row.kind,
            short(row.place or "-", 50),
            f"{row.position:,}",
            _lag(row),
            f"{row.dead_letters:,}",
            Text(row.state, style=_STYLES[row.state]),
            _last_error(row, now),
        ]
        for row in found
    ]
    cli.out.print(table(*columns, rows=rows, right=("position", "dead letters")))
    return None


@sinks.command()
def show(context: typer.Context, name: SinkName, as_json: AsJson = False) -> None:
    """Show a sink."""
    cli = CliContext.of(context)
    row, now = cli.work(lambda operations: operations.sink(name)), datetime.now(UTC)
    if as_json:
        return print_json(row)
    cli.out.print(Text.assemble((safe(row.name), "bold"), "  ", (row.state, _STYLES[row.state])))
    return cli.out.print(
        facts(
            [
                ("kind", row.kind),
                ("place", row.place),
                ("streams", row.streams or "all"),
                ("position", f"{row.position:,}"),
                ("lag", _lag(row)),
                ("dead letters", f"{row.dead_letters:,}"),
                ("last moved", both(row.moved_at, now)),
                ("last error", row.error),
                ("failed", None if row.failed_at is None else both(row.failed_at, now)),
                ("tried again", None if row.retry_at is None else both(row.retry_at, now)),
            ]
        )
    )


@sinks.command()
def pause(context: typer.Context, name: SinkName, as_json: AsJson = False) -> None:
    """Stop deliveries to a sink. It gets its events when it is resumed."""
    cli = CliContext.of(context)
    row = cli.work(lambda operations: operations.pause_sink(name))
    if as_json:
        return print_json(row)
    return cli.out.print(f"[yellow]Paused[/] [bold]{plain(row.name)}[/] at position {row.position:,}.")


@sinks.command()
def resume(context: typer.Context, name: SinkName, as_json: AsJson = False) -> None:
    """Deliver to a sink again. One that failed is tried at once."""
    cli = CliContext.of(context)
    row = cli.work(lambda operations: operations.resume_sink(name))
    if as_json:
        return print_json(row)
    return cli.out.print(f"[green]Resumed[/] [bold]{plain(row.name)}[/]: {_lag(row)} to deliver.")


@sinks.command()
def replay(
    context: typer.Context,
    *,
    name: SinkName,
    position: Annotated[
        int | None, typer.Option("--from", metavar="POSITION", min=1, help="The first event to send, by position.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Or events published since: 2h (ago), 2026-11-01, ...")
    ] = None,
    as_json: AsJson = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Send stored events again, from a position or a time on.

    floodmark sinks replay archive --since 2h --dry-run
    """
    cli = CliContext.of(context)
    if (position is None) == (since is None):
        raise InvalidInput("name either a position or a time", hint="for example: --from 4812, or --since 2h")
    moment = None if since is None else parse_moment(since, datetime.now(UTC))

    async def change(operations: AsyncOperations, *, is_preview: bool) -> SinkReplay:
        return await operations.replay_sink(name, position=position, since=moment, dry_run=is_preview)

    preview = cli.work(lambda operations: change(operations, is_preview=True))
    action = (
        f"move the sink {name} from position {preview.before:,} to {preview.after:,}, "
        f"and deliver {counted(preview.events, 'event')} from there"
    )
    if as_json and dry_run:
        return print_json(preview)
    if not confirm(cli, action, dry_run=dry_run, yes=yes):
        return None
    done = cli.work(lambda operations: change(operations, is_preview=False))
    if as_json:
        return print_json(done)
    return cli.out.print(f"[green]Replaying[/] {counted(done.events, 'event')} from position {done.after + 1:,}.")


@sinks.command("test")
def send_test(context: typer.Context, name: SinkName, as_json: AsJson = False) -> None:
    """Send a test event (kind: test) to a sink, and wait until it is accepted."""
    cli = CliContext.of(context)
    with cli.busy("Sending ..."):
        sent = cli.work(lambda operations: operations.test_sink(name))
    if as_json:
        return print_json(sent)
    return cli.out.print(
        f"[green]Accepted[/] by {plain(sent.place)} after {sent.seconds:.2f} s: {plain(sent.event_id)}", soft_wrap=True
    )


@sinks.command()
def rm(
    context: typer.Context, name: SinkName, as_json: AsJson = False, dry_run: DryRun = False, yes: Yes = False
) -> None:
    """Remove a sink that is no longer configured, with its position and its dead letters."""
    cli = CliContext.of(context)
    row = cli.work(lambda operations: operations.sink(name))
    what = f"remove the sink {name}, its position {row.position:,} and {counted(row.dead_letters, 'dead letter')}"
    if not confirm(cli, what, dry_run=dry_run, yes=yes):
        return None
    removed = cli.work(lambda operations: operations.remove_sink(name))
    if as_json:
        return print_json(removed)
    return cli.out.print(f"Removed {plain(name)}.")


@sinks.command("dead-letters")
def dead_letters(
    context: typer.Context,
    *,
    name: SinkName,
    retry: Annotated[bool, typer.Option("--retry", help="Send them again.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Drop them: they are not sent again.")] = False,
    positions: Annotated[
        list[int] | None,
        typer.Option("--position", metavar="N", min=1, help="Only the event at this position; can be repeated."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=_MOST_LETTERS, help="Maximum number of entries.")] = 50,
    as_json: AsJson = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """List events that the receiver of a sink refused; retry or drop them."""
    cli = CliContext.of(context)
    if retry and drop:
        raise InvalidInput("--retry and --drop contradict each other", hint="use only one of them")
    if retry or drop:
        return _change_letters(cli, name, positions, is_retry=retry, dry_run=dry_run, yes=yes or retry)
    found = cli.work(lambda operations: _select(operations, name, positions, limit))
    if as_json:
        return print_json(found)
    if not found:
        return cli.out.print(f"No dead letters of {plain(name)}.")
    now = datetime.now(UTC)
    rows = [
        [
            Text(f"{letter.position}", style="bold"),
            short(letter.event_id, 60),
            relative(letter.failed_at, now),
            "will be sent again" if letter.is_retried else "-",
            short(letter.error, 100),
        ]
        for letter in found
    ]
    cli.out.print(table("position", "event", "refused", "retry", "error", rows=rows, right=("position",)))
    return cli.note(f"[dim]Send them again: floodmark sinks dead-letters {plain(name)} --retry[/]")


def _change_letters(
    cli: CliContext, name: str, positions: Sequence[int] | None, *, is_retry: bool, dry_run: bool, yes: bool
) -> None:
    found = cli.work(lambda operations: _select(operations, name, positions, _MOST_LETTERS))
    if not found:
        raise InvalidInput(
            f"the sink {name[:60]} has no such dead letters", hint=f"floodmark sinks dead-letters {name[:60]}"
        )
    which = counted(len(found), "dead letter")
    if not confirm(cli, f"{'retry' if is_retry else 'drop'} {which} of {name}", dry_run=dry_run, yes=yes):
        return
    chosen = [letter.position for letter in found]

    async def change(operations: AsyncOperations) -> int:
        method = operations.retry_sink_letters if is_retry else operations.drop_sink_letters
        return await method(name, chosen)

    count = cli.work(change)
    if is_retry:
        cli.out.print(f"[green]Sending[/] {counted(count, 'dead letter')} again.")
    else:
        cli.out.print(f"Dropped {counted(count, 'dead letter')}.")


async def _select(
    operations: AsyncOperations, name: str, positions: Sequence[int] | None, limit: int
) -> list[SinkLetter]:
    most = limit if positions is None else _MOST_LETTERS
    found = await take(operations.each_sink_letter(name), most)
    return [letter for letter in found if positions is None or letter.position in positions]


def _lag(row: SinkRow) -> str:
    events = counted(row.lag_events, "event")
    if not row.lag_events:
        return events
    return f"{events}, {format_duration(timedelta(seconds=row.lag_seconds))}"


def _last_error(row: SinkRow, now: datetime) -> str:
    if row.error is None:
        return "-"
    again = "" if row.retry_at is None or row.retry_at <= now else f" (tried again {relative(row.retry_at, now)})"
    return short(f"{row.error}{again}", 120)
