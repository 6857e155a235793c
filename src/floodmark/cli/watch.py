"""Watches: notify people of items that match, and of sources that are gone or late."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from msgspec.structs import replace

from floodmark.errors import InvalidInput
from floodmark.model.durations import format_duration, parse_every
from floodmark.model.page import cursor_of, take
from floodmark.model.watches import SOURCE_KINDS, WatchFields, WatchRow, WatchTrial
from floodmark.operations.declared import AsyncOperations
from floodmark.rules.notification_times import Threshold, reach_threshold
from floodmark.rules.watch_words import describe_search

from .confirmation import confirm
from .option_groups import expand_options
from .output import counted, plain, print_json
from .root import AsJson, CliContext, DryRun, Yes, command_group
from .watch_options import CLEARABLE, NotifyOptions, WatchOptions, clear_fields
from .watch_output import print_list, print_match, print_notifications, print_watch

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name or id of a watch, or a unique prefix.")]
Words = Annotated[
    str | None, typer.Argument(metavar="WORDS", help='Words as in a search: fire OR smoke, "big fire", -drill.')
]

_ANY_LETTER = r"[\pL\pN_]"

watch = command_group("Notify people of items that match, and of sources that are gone or late.", default="ls")


@watch.command()
@expand_options
def add(
    context: typer.Context,
    *,
    words: Words = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="Name (default: made from its words).")] = "",
    as_json: AsJson = False,
    search: WatchOptions,
    notify: NotifyOptions,
) -> None:
    """Add a watch. It looks at items that are collected from now on.

    floodmark watch add "fire OR smoke" --stream 'telegram:*' --notify slack
    """
    cli = CliContext.of(context)
    fields = notify.fields(search.fields(words, WatchFields(name=name)))
    row = cli.work(lambda operations: operations.add_watch(fields))
    if as_json:
        return print_json(row)
    cli.out.print(f"[green]Added[/] [bold]{plain(row.name)}[/]: {plain(describe_search(row))}")
    _warn_about_ascii(cli, row)
    return cli.note(f"[dim]What it would have matched lately: floodmark watch try --watch {plain(row.name)}[/]")


@watch.command()
def ls(
    context: typer.Context,
    *,
    after: Annotated[str | None, typer.Option(metavar="NAME", help="Start after this watch.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of entries.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List watches with their matches and state."""
    cli = CliContext.of(context)
    found = cli.work(lambda operations: take(operations.each_watch(cursor=cursor_of("watches", after)), limit))
    if as_json:
        return print_json(found)
    if not found:
        cli.out.print("No watches yet." if after is None else f"No watches after {plain(after)}.")
        return cli.note("Add one: floodmark watch add \"fire OR smoke\" --stream 'telegram:*' --notify slack")
    print_list(cli, found)
    if len(found) == limit:
        cli.note(f"[dim]More: floodmark watch ls --after {plain(found[-1].name)}[/]")
    return None


@watch.command()
def show(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Show a watch: what it looks for, its matches, and the state of its channels."""
    cli = CliContext.of(context)
    row = cli.work(lambda operations: operations.watch(name))
    return print_json(row) if as_json else print_watch(cli, row)


@watch.command()
@expand_options
def edit(
    context: typer.Context,
    *,
    name: Name,
    words: Words = None,
    new_name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="New name.")] = None,
    clear: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help=f"Clear a field: {', '.join(CLEARABLE)}; can be repeated."),
    ] = None,
    as_json: AsJson = False,
    search: WatchOptions,
    notify: NotifyOptions,
) -> None:
    """Change a watch. What is not named stays unchanged.

    floodmark watch edit fires --cooldown 1h --clear digest
    """
    cli = CliContext.of(context)

    async def work(operations: AsyncOperations) -> tuple[WatchRow, WatchRow]:
        row = await operations.watch(name)
        before = WatchFields(**{field: getattr(row, field) for field in WatchFields.__struct_fields__})
        after = notify.fields(search.fields(words, replace(before, name=new_name or before.name)))
        after = clear_fields(before, clear or (), after)
        if after == before:
            raise InvalidInput("no change is given", hint=f"for example: floodmark watch edit {row.name} --cooldown 1h")
        return row, await operations.replace_watch(row.watch_id, after, version=row.version)

    before, row = cli.work(work)
    if as_json:
        return print_json(row)
    if before.version == row.version:
        return cli.out.print(f"{plain(row.name)} already has these values.")
    cli.out.print(f"[green]Changed[/] [bold]{plain(row.name)}[/]: {plain(describe_search(row))}")
    return _warn_about_ascii(cli, row)


@watch.command()
def pause(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Pause a watch. Matches that wait are sent when it is resumed."""
    cli = CliContext.of(context)
    row = cli.work(lambda operations: operations.pause_watch(name))
    if as_json:
        return print_json(row)
    cli.out.print(f"[yellow]Paused[/] [bold]{plain(row.name)}[/]")
    return cli.note(f"[dim]Resume it: floodmark watch resume {plain(row.name)}[/]")


@watch.command()
def resume(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Resume a watch. Items that were collected during the pause are not looked at."""
    cli = CliContext.of(context)
    row = cli.work(lambda operations: operations.resume_watch(name))
    return print_json(row) if as_json else cli.out.print(f"[green]Resumed[/] [bold]{plain(row.name)}[/]")


@watch.command()
def rm(context: typer.Context, name: Name, as_json: AsJson = False, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Remove a watch with its matches and messages."""
    cli = CliContext.of(context)
    row = cli.work(lambda operations: operations.watch(name))
    what = f"remove the watch {row.name} ({describe_search(row)}, {counted(row.matches, 'match', 'matches')})"
    if not confirm(cli, what, dry_run=dry_run, yes=yes):
        return None
    removed = cli.work(lambda operations: operations.remove_watch(row.watch_id))
    return print_json(removed) if as_json else cli.out.print(f"Removed {plain(removed.name)}.")


@watch.command()
def history(
    context: typer.Context,
    *,
    name: Name,
    matches: Annotated[bool, typer.Option("--matches", help="List matches instead of messages.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of entries.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the messages of a watch, newest first, with failed attempts; or its matches."""
    cli = CliContext.of(context)
    if matches:
        found = cli.work(lambda operations: take(operations.each_watch_match(name), limit))
        if as_json:
            return print_json(found)
        for match in found:
            print_match(cli, match, datetime.now(UTC))
        return None if found else cli.out.print("No matches yet.")
    sent = cli.work(lambda operations: take(operations.each_watch_notification(name), limit))
    if as_json:
        return print_json(sent)
    return print_notifications(cli, sent) if sent else cli.out.print("No messages yet.")


@watch.command("try")
@expand_options
def try_out(
    context: typer.Context,
    *,
    words: Words = None,
    of_watch: Annotated[
        str | None, typer.Option("--watch", metavar="NAME", help="Try this watch, with the other options changed.")
    ] = None,
    threshold: Annotated[
        str | None, typer.Option(metavar="COUNT", help='Count how often this is reached, as in "20 in 10m".')
    ] = None,
    since: Annotated[str, typer.Option(metavar="TIME", help="How far back to look.")] = "7d",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Stop after this many matches.")] = 50,
    as_json: AsJson = False,
    search: WatchOptions,
) -> None:
    """Show what a watch would have matched in the last week. Nobody is notified.

    floodmark watch try "fire OR smoke" --stream 'telegram:*' --since 2d
    """
    cli, back = CliContext.of(context), parse_every(since)

    async def work(operations: AsyncOperations) -> None:
        fields = WatchFields() if of_watch is None else _fields_of(await operations.watch(of_watch))
        fields = NotifyOptions(threshold=threshold).fields(search.fields(words, fields))
        await _Trial(cli, fields, limit=limit, as_json=as_json).run(operations, back)

    cli.work(work)


class _Trial:
    """Prints matches as they are found, and then how many there were."""

    def __init__(self, cli: CliContext, fields: WatchFields, *, limit: int, as_json: bool) -> None:
        self._cli, self._fields, self._limit, self._as_json = cli, fields, limit, as_json
        self._examined = self._suppressed = 0
        self._times: list[datetime] = []
        self._began: datetime | None = None
        self._has_more = False

    async def run(self, operations: AsyncOperations, since: timedelta) -> None:
        now, found = datetime.now(UTC), []
        async for trial in self._trials(operations, since):
            for match in trial.matches[: self._limit - len(self._times)]:
                self._times.append(match.at)
                if self._as_json:
                    found.append(match)
                else:
                    print_match(self._cli, match, now)
            if len(self._times) >= self._limit:
                self._has_more = trial.next is not None
                break
        if self._as_json:
            return print_json(found)
        return self._print_summary(since)

    async def _trials(self, operations: AsyncOperations, since: timedelta) -> AsyncIterator[WatchTrial]:
        after: int | None = None
        while True:
            trial = await operations.try_watch(self._fields, since=since, after=after, limit=min(self._limit, 50))
            self._examined += trial.examined
            self._suppressed += trial.suppressed
            self._began = self._began or trial.since
            yield trial
            if trial.next is None:
                return
            after = trial.next

    def _print_summary(self, since: timedelta) -> None:
        count = counted(len(self._times), "match", "matches")
        where = "" if self._fields.kind in SOURCE_KINDS else f" in {counted(self._examined, 'event')}"
        self._cli.out.print(f"[bold]{count}[/]{where} of the last {format_duration(since)}.")
        if self._suppressed:
            self._cli.note(f"[dim]{self._suppressed:,} more are back-fill: nobody would be notified of them.[/]")
        if self._has_more:
            self._cli.note("[dim]There may be more: use a higher --limit.[/]")
        fields = self._fields
        if fields.threshold_count is not None and fields.threshold_seconds is not None:
            threshold = Threshold(fields.threshold_count, timedelta(seconds=fields.threshold_seconds))
            times = reach_threshold(threshold, [], self._times).times
            self._cli.note(f"The threshold would have been reached {counted(times, 'time')}.")
        _warn_about_ascii(self._cli, fields)


def _fields_of(row: WatchRow) -> WatchFields:
    return WatchFields(**{name: getattr(row, name) for name in WatchFields.__struct_fields__})


def _warn_about_ascii(cli: CliContext, fields: WatchFields) -> None:
    """Warn about classes of RE2 that know ASCII letters only."""
    from floodmark.watches.patterns import ASCII_CLASS  # noqa: PLC0415 - few watches have a pattern

    if fields.pattern is not None and (found := ASCII_CLASS.search(fields.pattern)):
        cli.note(f"[yellow]{plain(found[1])} knows ASCII letters only. For every script write {plain(_ANY_LETTER)}.[/]")
