"""`preview`: recognise targets, and show what jobs for them would collect."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from floodmark.errors import FloodmarkError
from floodmark.model.previews import TargetPreview
from floodmark.operations.declared import AsyncOperations

from .output import facts, plain, print_json, short, table
from .root import AsJson, CliContext
from .times import relative

_ITEMS_SHOWN = 5


def preview(
    context: typer.Context,
    targets: Annotated[list[str], typer.Argument(metavar="TARGET...", help="Channels, URLs, domains, functions.")],
    source: Annotated[
        str | None, typer.Option(metavar="KIND", help="Kind of source (default: the one that fits best).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recognise targets and show what a job would collect, without storing anything.

    floodmark preview @channel https://example.com/feed.xml
    """
    cli = CliContext.of(context)

    async def work(operations: AsyncOperations) -> list[TargetPreview | FloodmarkError]:
        return [await _look(operations, target, source) for target in targets]

    with cli.busy("Looking"):
        found = cli.work(work)
    errors = [one for one in found if isinstance(one, FloodmarkError)]
    if errors and (len(found) == 1 or as_json):
        raise errors[0]
    if as_json:
        return print_json(found)
    for number, one in enumerate(found):
        if number:
            cli.out.print()
        if isinstance(one, FloodmarkError):
            cli.out.print(f"[red]{plain(one)}[/]\n  [dim]{plain(one.hint)}[/]")
        else:
            _show(cli, one)
    return None


async def _look(operations: AsyncOperations, target: str, source: str | None) -> TargetPreview | FloodmarkError:
    """Return the preview or the error of a target: one wrong target must not hide the others."""
    try:
        return await operations.preview(target, source)
    except FloodmarkError as error:
        return error


def _show(cli: CliContext, found: TargetPreview) -> None:
    cli.out.print(f"[bold]{plain(found.title or found.target)}[/]")
    rows = [
        ("  source", f"{found.source} {found.target}"),
        ("  collects", found.collects),
        ("  not collected", found.note),
        ("  collected by", ", ".join(found.jobs)),
        *(("  or", f"{other.source} {other.target}") for other in found.others),
    ]
    cli.out.print(facts(rows))
    if found.items:
        now = datetime.now(UTC)
        lines = [
            ("-" if item.at is None else relative(item.at, now), short(item.title, 80), short(item.url or "", 80))
            for item in found.items[:_ITEMS_SHOWN]
        ]
        cli.out.print(table("  published", "title", "link", rows=[(f"  {at}", *rest) for at, *rest in lines]))
    if found.missing is not None:
        cli.note(f"[yellow]{plain(found.missing)}[/]")
    if not found.jobs:
        cli.note(f"[dim]Collect it: floodmark add {plain(found.source)} {plain(found.target)} --every 15m[/]")
