"""Watermarks, items and events."""

import asyncio
import sys
from collections.abc import Awaitable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from floodmark.errors import InvalidInput
from floodmark.model.page import cursor_of, take
from floodmark.model.shapes import event_shape
from floodmark.model.streams import StoredItem, StreamState
from floodmark.operations.declared import AsyncOperations
from floodmark.operations.streams import WatermarkMoved
from floodmark.store.port import Event

from .confirmation import confirm
from .output import counted, facts, json_line, plain, print_json, safe, short, table
from .parsing import json_object, parse_moment
from .root import AsJson, CliContext, DryRun, Yes, command_group
from .times import both, relative

_FOLLOW_SECONDS = 0.5
_DATA_SHOWN = 100
_WINDOW = 1000

StreamName = Annotated[str, typer.Argument(metavar="STREAM", help="A stream, or a job that collects it.")]

watermark = command_group("Show, set and reset watermarks.", default="show")


@watermark.command("show")
def show_watermark(
    context: typer.Context,
    *,
    stream: Annotated[str | None, typer.Argument(metavar="STREAM", help="A stream or a job (default: all).")] = None,
    after: Annotated[str | None, typer.Option(metavar="STREAM", help="Start after this stream.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of entries.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Show the watermark of a stream, or of all streams."""
    cli = CliContext.of(context)

    async def work(operations: AsyncOperations) -> list[StreamState]:
        if stream is None:
            return await take(operations.each_watermark(cursor=cursor_of("watermarks", after)), limit)
        return [await operations.watermark(stream)]

    found, now = cli.work(work), datetime.now(UTC)
    if as_json:
        return print_json(found if stream is None else found[0])
    if stream is not None:
        return cli.out.print(facts(_watermark(found[0], now)))
    if not found:
        return cli.out.print("Nothing has been collected yet.")
    rows = [
        [
            Text(safe(state.stream), style="bold"),
            "-" if state.value is None else short(json_line(state.value), 60),
            "never" if state.last_parsed_at is None else relative(state.last_parsed_at, now),
            "never" if state.last_checked_at is None else relative(state.last_checked_at, now),
        ]
        for state in found
    ]
    cli.out.print(table("stream", "watermark", "last new item", "last checked", rows=rows))
    if len(found) == limit:
        cli.note(f"[dim]More: floodmark watermark show --after {plain(found[-1].stream)}[/]")
    return None


def _watermark(state: StreamState, now: datetime) -> list[tuple[str, object]]:
    is_held = state.lease_until is not None and state.lease_until > now
    return [
        ("stream", state.stream),
        (
            "watermark",
            "none: the next run starts from the beginning" if state.value is None else json_line(state.value),
        ),
        ("moved", both(state.moved_at, now) if state.moved_at else None),
        ("last new item", both(state.last_parsed_at, now) if state.last_parsed_at else "never"),
        ("last checked", both(state.last_checked_at, now) if state.last_checked_at else "never"),
        ("being collected", f"by execution {state.holder}" if is_held else None),
        ("fence", str(state.fence)),
    ]


@watermark.command("set")
def set_watermark(
    context: typer.Context,
    stream: StreamName,
    value: Annotated[str, typer.Argument(metavar="JSON", help="""An object, such as '{"value": 4812}'.""")],
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Set a watermark, from which the next run continues. Stored items are not stored twice."""
    wanted = json_object(value, example='{"value": 4812}')
    _move(CliContext.of(context), stream, wanted, dry_run=dry_run, yes=yes)


@watermark.command("reset")
def reset_watermark(context: typer.Context, stream: StreamName, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Reset a watermark: the next run starts from the beginning. Stored items are not stored twice."""
    _move(CliContext.of(context), stream, None, dry_run=dry_run, yes=yes)


def _move(cli: CliContext, text: str, wanted: Mapping[str, Any] | None, *, dry_run: bool, yes: bool) -> None:
    def move(operations: AsyncOperations, *, is_trial: bool) -> Awaitable[WatermarkMoved]:
        if wanted is None:
            return operations.clear_watermark(text, dry_run=is_trial)
        return operations.move_watermark(text, wanted, dry_run=is_trial)

    trial = cli.work(lambda operations: move(operations, is_trial=True))
    name, shown = trial.stream, ["nothing" if value is None else json_line(value) for value in (trial.before, wanted)]
    if confirm(cli, f"move the watermark of {name} from {shown[0]} to {shown[1]}", dry_run=dry_run, yes=yes):
        cli.work(lambda operations: move(operations, is_trial=False))
        cli.out.print(f"{plain(name)}: {plain(shown[0])} -> {plain(shown[1])}")


def items(
    context: typer.Context,
    *,
    stream: StreamName,
    key: Annotated[str | None, typer.Option(help="Show one item with its earlier revisions.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only items since: 2h, 3d, a date or a time.")
    ] = None,
    before: Annotated[str | None, typer.Option(metavar="KEY", help="Start after this item.")] = None,
    after: Annotated[
        str | None, typer.Option(metavar="KEY", help="List in order of keys instead, starting after this key.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of entries.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the items of a stream, newest first."""
    cli = CliContext.of(context)
    moment = None if since is None else parse_moment(since, datetime.now(UTC))
    if after is not None and (before is not None or moment is not None):
        raise InvalidInput("--after lists by key, --since and --before by time", hint="leave out --after")

    async def work(operations: AsyncOperations) -> tuple[list[StoredItem], int]:
        if key is not None:
            found = await operations.item(stream, key)
            return [found.newest, *found.earlier], 1
        if after is not None:
            rows = operations.each_item(stream, cursor=cursor_of("items", after))
        else:
            rows = operations.each_newest_item(stream, since=moment, cursor=cursor_of("newest-items", before))
        return await take(rows, limit), (await operations.describe_stream(stream)).items

    found, count = cli.work(work)
    if as_json:
        return print_json(found)
    if not found:
        return cli.out.print("No items.")
    _print_items(cli, found)
    if key is None and len(found) == limit and count > limit:
        how = "--before" if after is None else "--after"
        more = f"floodmark items {plain(stream)} {how} {plain(found[-1].key)}"
        more += "" if since is None else f" --since {plain(since)}"
        cli.note(f"[dim]{counted(count, 'item')} in total. More: {more}[/]")
    return None


def _print_items(cli: CliContext, found: Sequence[StoredItem]) -> None:
    now = datetime.now(UTC)
    rows = [
        [
            Text(short(item.key, 40), style="bold"),
            "deleted" if item.deleted else str(item.revision),
            "-" if item.occurred_at is None else relative(item.occurred_at, now),
            relative(item.collected_at, now),
            short(json_line(item.data), _DATA_SHOWN),
        ]
        for item in found
    ]
    cli.out.print(table("key", "revision", "created", "collected", "data", rows=rows, right=("revision",)))


def events(
    context: typer.Context,
    *,
    after: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Start after this position (default: show the newest).")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of entries.")] = 20,
    stream: Annotated[str | None, typer.Option(help="Only events of this stream, or of this job's stream.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep running and print new events.")] = False,
    as_json: AsJson = False,
) -> None:
    """List events in order: one per new or changed item. Pass the last position as --after to continue."""
    cli = CliContext.of(context)
    if follow:
        cli.require_database()

    async def work(operations: AsyncOperations) -> list[Event]:
        # The newest events of one stream are searched for among the newest of all.
        window = limit if stream is None else _WINDOW
        position = max(0, await operations.last_position() - window) if after is None else after
        most = window if after is None else limit
        found = await take(operations.each_event(after=position, stream=stream), most)
        found = found[-limit:] if after is None else found
        while follow:
            for event in found:
                position = event.position
                sys.stdout.write(f"{json_line(event_shape(event)) if as_json else _line(event)}\n")
            sys.stdout.flush()
            if not found:
                await asyncio.sleep(_FOLLOW_SECONDS)
            found = await take(operations.each_event(after=position, stream=stream), limit)
        return found

    found = cli.work(work)
    if as_json:
        return print_json([event_shape(event) for event in found])
    if not found:
        return cli.out.print("No events." if after is None else f"No events after {after}.")
    for event in found:
        cli.out.print(
            _line(event),
            markup=False,
            soft_wrap=not cli.out.is_terminal,
            overflow="ellipsis",
            no_wrap=True,
        )
    return cli.note(f"[dim]Continue: floodmark events --after {found[-1].position}[/]")


def _line(event: Event) -> str:
    kind = event.kind.removeprefix("item.")
    # Of a post only the post itself: the line already has the rest of the payload.
    data = event.data if event.type == event.kind else json_line(msgspec.json.decode(event.data)["post"])
    return f"{event.position:>7}  {kind:<7}  {safe(event.stream)}  {safe(event.key)}  {short(data, _DATA_SHOWN)}"
