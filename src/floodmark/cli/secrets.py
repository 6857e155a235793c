"""Secrets that jobs refer to by name: set, list and remove them."""

import sys
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.text import Text

from floodmark.errors import InvalidInput
from floodmark.model.page import cursor_of, take
from floodmark.model.secrets import LONGEST_SECRET, secret_name

from .confirmation import confirm
from .output import plain, print_json, safe, table
from .root import AsJson, CliContext, DryRun, Yes, command_group
from .times import relative

SecretArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name: letters, digits and _, as in SHOP.")]

secrets = command_group("Manage secrets that jobs refer to by name: passwords, tokens, proxies.", default="ls")


@secrets.command("set")
def set_secret(context: typer.Context, name: SecretArgument, as_json: AsJson = False) -> None:
    """Store a secret. Its value is asked for, or read from standard input; it cannot be shown again.

    floodmark secrets set SHOP < password.txt
    """
    cli = CliContext.of(context)
    secret_name(name)
    value = _read_value()
    done = cli.work(lambda operations: operations.set_secret(name, value))
    if as_json:
        return print_json(done)
    cli.out.print(f"{'Replaced' if done.replaced else 'Stored'} {plain(done.secret.name)}.")
    return cli.note(
        f"[dim]Use it in a job: --basic-auth {plain(done.secret.name)}, --proxy {plain(done.secret.name)}, or "
        f"--header 'Authorization: Bearer {{secret:{plain(done.secret.name)}}}'[/]"
    )


def _read_value() -> str:
    """Prompt without echo, or read one line of standard input. A value in the command line would be visible to all."""
    if sys.stdin.isatty():
        return str(typer.prompt("Value (not shown)", hide_input=True, err=True))
    text = sys.stdin.read(LONGEST_SECRET + 3)
    value = text.removesuffix("\n").removesuffix("\r")
    if not value:
        raise InvalidInput(
            "the value is missing, and there is no terminal to ask on",
            hint="run it in a terminal, or send the value as standard input: floodmark secrets set NAME < file",
        )
    return value


@secrets.command()
def ls(
    context: typer.Context,
    *,
    after: Annotated[str | None, typer.Option(metavar="NAME", help="Start after this secret.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number of entries.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the names of secrets. Values are never shown."""
    cli = CliContext.of(context)
    found = cli.work(lambda operations: take(operations.each_secret(cursor=cursor_of("secrets", after)), limit))
    if as_json:
        return print_json(found)
    if not found:
        cli.out.print("No secrets.")
        return cli.note("[dim]Store one: floodmark secrets set SHOP[/]")
    now = datetime.now(UTC)
    rows = [
        [Text(safe(row.name), style="bold"), relative(row.changed_at, now), relative(row.created_at, now)]
        for row in found
    ]
    return cli.out.print(table("name", "set", "first set", rows=rows))


@secrets.command()
def rm(
    context: typer.Context, name: SecretArgument, as_json: AsJson = False, dry_run: DryRun = False, yes: Yes = False
) -> None:
    """Remove a secret. Jobs that refer to it fail until it is set again."""
    cli = CliContext.of(context)
    if not confirm(cli, f"remove the secret {secret_name(name)}", dry_run=dry_run, yes=yes):
        return None
    removed = cli.work(lambda operations: operations.remove_secret(name))
    return print_json(removed) if as_json else cli.out.print(f"Removed {plain(removed.name)}.")
