"""Tokens: who may use the API, and what for."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, get_args

import msgspec
import typer
from rich.text import Text

from floodmark.errors import InvalidInput
from floodmark.model.page import cursor_of, take
from floodmark.model.tokens import Minted, Role, TokenRow

from .asking import go_ahead
from .parsing import duration
from .root import AsJson, Desk, DryRun, Yes
from .showing import plain, print_json, safe, table
from .times import relative

if TYPE_CHECKING:
    from floodmark.operations.declared import AsyncOperations

_STYLES = {"active": "green", "expired": "yellow", "revoked": "dim"}

TokenName = Annotated[str, typer.Argument(metavar="NAME", help="Name of a token.")]

tokens = typer.Typer(help="Manage API tokens.")


@tokens.callback(invoke_without_command=True)
def begin(context: typer.Context) -> None:
    """Manage API tokens."""
    if context.invoked_subcommand is None:
        ls(context)


@tokens.command()
def add(
    context: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name: letters, digits, and any of - _ .")],
    role: Annotated[
        str,
        typer.Option(
            metavar="ROLE",
            help="read: read only; operate: also pause, run and retry; admin: everything.",
        ),
    ],
    expires: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Lifetime, as in 90d (default: unlimited).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a token. It is shown once; only a digest is stored.

    floodmark tokens add ci --role operate --expires 90d
    """
    desk = Desk.of(context)
    chosen, expires_in = _role(role), duration(expires)

    async def work(operations: "AsyncOperations") -> "tuple[Minted, bool]":
        is_first = not (await operations.tokens(limit=1)).items
        return await operations.add_token(name, chosen, expires_in), is_first

    minted, is_first = desk.work(work)
    if as_json:
        return print_json({**msgspec.structs.asdict(minted.row), "token": minted.text})
    desk.note(f"[green]Added[/] [bold]{plain(name)}[/], role {chosen}, {_until(minted.row)}. It is shown this once:")
    # On a line of its own and nothing else, also with --quiet: TOKEN=$(floodmark -q tokens add ...)
    desk.out.print(minted.text, highlight=False, soft_wrap=True)
    if is_first:
        desk.note("[dim]From now on everybody needs a token for the API, on this machine too.[/]")
    return desk.note("[dim]Use it: export FLOODMARK_TOKEN=..., or send it as Authorization: Bearer ...[/]")


@tokens.command()
def ls(
    context: typer.Context,
    *,
    after: Annotated[str | None, typer.Option(metavar="NAME", help="Start after this token.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number of entries.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List tokens with role, last use and expiry."""
    desk = Desk.of(context)
    found = desk.work(lambda operations: take(operations.each_token(cursor=cursor_of("tokens", after)), limit))
    now = datetime.now(UTC)
    if as_json:
        return print_json(found)
    if not found:
        desk.out.print("No tokens yet." if after is None else f"No tokens behind {plain(after)}.", highlight=False)
        return desk.note("Add one: floodmark tokens add NAME --role read (or operate, or admin)")
    rows = [_row(row, now) for row in found]
    desk.out.print(table("name", "role", "state", "last used", "made", "expires", "id", rows=rows))
    if len(found) == limit:
        desk.note(f"[dim]More: floodmark tokens ls --after {plain(found[-1].name)}[/]")
    return None


def _row(row: "TokenRow", now: datetime) -> list[object]:
    revoked = f" {relative(row.revoked_at, now)}" if row.revoked_at is not None else ""
    return [
        Text(safe(row.name), style="bold"),
        row.role,
        Text(f"{row.state}{revoked}", style=_STYLES[row.state]),
        "never" if row.last_used_at is None else relative(row.last_used_at, now),
        relative(row.created_at, now),
        "never" if row.expires_at is None else relative(row.expires_at, now),
        row.token_id,
    ]


@tokens.command()
def revoke(
    context: typer.Context, name: TokenName, as_json: AsJson = False, dry_run: DryRun = False, yes: Yes = False
) -> None:
    """Revoke a token. Every server refuses it within a second."""
    desk = Desk.of(context)
    row = desk.work(lambda operations: operations.token(name))
    if not go_ahead(desk, f"revoke the token {row.name}, role {row.role}, {row.state}", dry_run=dry_run, yes=yes):
        return None
    revoked = desk.work(lambda operations: operations.revoke_token(name))
    if as_json:
        return print_json(revoked)
    return desk.out.print(f"Revoked {plain(name)}.", highlight=False)


def _role(text: str) -> "Role":
    for known in get_args(Role):
        if text == known:
            role: Role = known
            return role
    raise InvalidInput(f"{text[:60]!r} is not a role", hint=f"choose one of: {', '.join(get_args(Role))}")


def _until(row: "TokenRow") -> str:
    return "for ever" if row.expires_at is None else f"until {row.expires_at.astimezone():%Y-%m-%d %H:%M}"
