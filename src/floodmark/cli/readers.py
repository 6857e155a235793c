"""Stored positions of readers and exports."""

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.text import Text

from floodmark.model.consumers import ConsumerState

from .confirmation import confirm
from .output import plain, print_json, safe, table
from .root import AsJson, CliContext, Yes, command_group
from .times import relative

readers = command_group("List and remove the stored positions of readers and exports.", default="ls")


@readers.command("ls")
def list_readers(context: typer.Context, as_json: AsJson = False) -> None:
    """List readers and exports with their positions, and how many events each has not processed."""
    cli = CliContext.of(context)
    found = cli.work(lambda operations: operations.consumers())
    if as_json:
        return print_json(found)
    if not found:
        return cli.out.print("No positions are stored. A reader stores one: app.consumer(NAME); an export: --continue")
    now = datetime.now(UTC)
    rows = [
        [Text(safe(one.name), style="bold"), f"{one.position:,}", _lag(one), relative(one.moved_at, now)]
        for one in found
    ]
    return cli.out.print(table("name", "position", "lag", "moved", rows=rows, right=("position", "lag")))


def _lag(one: ConsumerState) -> Text:
    if not one.log.has_all_after(one.position):
        return Text("events deleted", style="red")
    return Text(f"{one.lag:,}", style="" if one.lag else "green")


@readers.command("rm")
def remove_reader(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Kind and name: reader:indexer, export:nightly.")],
    yes: Yes = False,
) -> None:
    """Remove a position. A reader starts again; an export writes all items again."""
    cli = CliContext.of(context)
    found = cli.work(lambda operations: operations.find_consumer(name))
    if confirm(cli, f"remove the position {found.position:,} of {name}", yes=yes):
        cli.work(lambda operations: operations.remove_consumer(name))
        cli.out.print(f"Removed the position of {plain(name)}.")
