"""The limits that slow the fleet down."""

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.text import Text

from .asking import go_ahead, picked
from .root import AsJson, Desk, DryRun, Yes
from .showing import plain, print_json, safe, short, table
from .times import both

Past = Annotated[bool, typer.Option("--past", help="Include limits that have ended.")]

_MOST = 500

limits = typer.Typer(help="List and clear the rate limits of the fleet.")


@limits.callback(invoke_without_command=True)
def holding(context: typer.Context, past: Past = False, as_json: AsJson = False) -> None:
    """List and clear the rate limits of the fleet."""
    if context.invoked_subcommand is None:
        list_limits(context, past=past, as_json=as_json)


@limits.command("ls")
def list_limits(context: typer.Context, past: Past = False, as_json: AsJson = False) -> None:
    """List active rate limits."""
    desk = Desk.of(context)

    found, now = desk.work(lambda operations: operations.limits(with_past=past)), datetime.now(UTC)
    if as_json:
        return print_json(found)
    if not found:
        return desk.out.print("No limits hold: nothing was told to wait.", highlight=False)
    rows = [
        [
            Text(safe(row.key), style="bold"),
            both(row.until, now),
            f"{row.hits:,}",
            "-" if row.rate is None else f"{row.rate:.2g}/s",
            short(row.reason, 80),
        ]
        for row in found
    ]
    return desk.out.print(
        table("key", "until", "times", "then at most", "reason", rows=rows, right=("times", "then at most"))
    )


@limits.command("clear")
def clear_limit(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Key, as shown by `floodmark limits`.")],
    as_json: AsJson = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Clear a rate limit and its reduced pace. The next rate-limit response may set it again."""
    desk = Desk.of(context)
    found = picked(desk.work(lambda operations: operations.limits(with_past=True, limit=_MOST)), key, "limit")
    now = datetime.now(UTC)
    ends = f"ends {both(found.until, now)}" if found.until > now else f"ended {both(found.until, now)}"
    what = f"lift the limit {found.key}, which {ends}"
    if go_ahead(desk, what, dry_run=dry_run, yes=yes):
        before = desk.work(lambda operations: operations.clear_limit(key))
        if as_json:
            return print_json(before)
        desk.out.print(f"{plain(key)}: lifted", highlight=False)
    return None
