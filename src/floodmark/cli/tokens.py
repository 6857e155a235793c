"""API tokens: add, list and revoke them; sessions of the dashboard."""

from datetime import UTC, datetime
from typing import Annotated, get_args

import msgspec
import typer
from rich.text import Text

from floodmark.errors import InvalidInput
from floodmark.model.page import cursor_of, take
from floodmark.model.tokens import Minted, Role, TokenRow
from floodmark.operations.declared import AsyncOperations

from .confirmation import confirm
from .output import counted, plain, print_json, safe, table
from .parsing import duration
from .root import AsJson, CliContext, DryRun, Yes, command_group
from .times import relative

_MOST_SESSIONS = 500
_STYLES = {"active": "green", "expired": "yellow", "revoked": "dim"}

TokenName = Annotated[str, typer.Argument(metavar="NAME", help="Name of a token.")]

tokens = command_group("Manage API tokens.", default="ls")


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
    cli = CliContext.of(context)
    chosen, expires_in = _role(role), duration(expires)

    async def work(operations: AsyncOperations) -> tuple[Minted, bool]:
        is_first = not (await operations.tokens(limit=1)).items
        return await operations.add_token(name, chosen, expires_in), is_first

    minted, is_first = cli.work(work)
    if as_json:
        return print_json({**msgspec.structs.asdict(minted.row), "token": minted.text})
    cli.note(f"[green]Added[/] [bold]{plain(name)}[/], role {chosen}, {_until(minted.row)}. It is shown only once:")
    # Alone on its line, also with --quiet: TOKEN=$(floodmark -q tokens add ...)
    cli.out.print(minted.text, soft_wrap=True)
    if is_first:
        cli.note("[dim]From now on every API request needs a token, also on this machine.[/]")
    return cli.note("[dim]Use it: export FLOODMARK_TOKEN=..., or send it as Authorization: Bearer ...[/]")


@tokens.command()
def ls(
    context: typer.Context,
    *,
    after: Annotated[str | None, typer.Option(metavar="NAME", help="Start after this token.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number of entries.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List tokens with role, last use and expiry."""
    cli = CliContext.of(context)
    found = cli.work(lambda operations: take(operations.each_token(cursor=cursor_of("tokens", after)), limit))
    now = datetime.now(UTC)
    if as_json:
        return print_json(found)
    if not found:
        cli.out.print("No tokens yet." if after is None else f"No tokens after {plain(after)}.")
        return cli.note("Add one: floodmark tokens add NAME --role read (or operate, or admin)")
    rows = [_row(row, now) for row in found]
    cli.out.print(table("name", "role", "state", "last used", "created", "expires", "id", rows=rows))
    if len(found) == limit:
        cli.note(f"[dim]More: floodmark tokens ls --after {plain(found[-1].name)}[/]")
    return None


def _row(row: TokenRow, now: datetime) -> list[object]:
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
    cli = CliContext.of(context)
    row = cli.work(lambda operations: operations.token(name))
    if not confirm(cli, f"revoke the token {row.name}, role {row.role}, {row.state}", dry_run=dry_run, yes=yes):
        return None
    revoked = cli.work(lambda operations: operations.revoke_token(name))
    if as_json:
        return print_json(revoked)
    return cli.out.print(f"Revoked {plain(name)}.")


@tokens.command()
def sessions(
    context: typer.Context,
    *,
    end: Annotated[
        str | None, typer.Option(metavar="ID", help="End this session: its browser must sign in again.")
    ] = None,
    end_all: Annotated[bool, typer.Option("--end-all", help="End all sessions, or those of --token.")] = False,
    token: Annotated[str | None, typer.Option(metavar="NAME", help="Token whose sessions --end-all ends.")] = None,
    as_json: AsJson = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """List the browsers that are signed in to the dashboard, or end sessions."""
    cli = CliContext.of(context)
    if end_all:
        return _end_all(cli, token, as_json=as_json, dry_run=dry_run, yes=yes)
    if token is not None:
        raise InvalidInput("--token only limits --end-all", hint=f"floodmark tokens sessions --end-all --token {token}")
    if end is not None:
        ended = cli.work(lambda operations: operations.end_session(end))
        return print_json(ended) if as_json else cli.out.print(f"Ended the session of {plain(ended.token)}.")
    found, now = cli.work(lambda operations: take(operations.each_session(), _MOST_SESSIONS)), datetime.now(UTC)
    if as_json:
        return print_json(found)
    if not found:
        return cli.out.print("Nobody is signed in to the dashboard.")
    rows = [
        [
            row.session_id,
            safe(row.token),
            row.role,
            relative(row.last_used_at, now),
            row.address,
            safe(row.browser)[:60],
        ]
        for row in found
    ]
    return cli.out.print(table("id", "token", "role", "last used", "address", "browser", rows=rows))


def _end_all(cli: CliContext, token: str | None, *, as_json: bool, dry_run: bool, yes: bool) -> None:
    whose = "all sessions of the dashboard" if token is None else f"all sessions of the token {token}"
    if not confirm(cli, f"end {whose}", dry_run=dry_run, yes=yes):
        return None
    ended = cli.work(lambda operations: operations.end_sessions(token=token))
    return print_json({"ended": ended}) if as_json else cli.out.print(f"Ended {counted(ended, 'session')}.")


def _role(text: str) -> Role:
    for known in get_args(Role):
        if text == known:
            role: Role = known
            return role
    raise InvalidInput(f"{text[:60]!r} is not a role", hint=f"choose one of: {', '.join(get_args(Role))}")


def _until(row: TokenRow) -> str:
    return "no expiry" if row.expires_at is None else f"until {row.expires_at.astimezone():%Y-%m-%d %H:%M}"
