"""Rate limits: list and clear them."""

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.text import Text

from .confirmation import confirm, find_by_key
from .output import plain, print_json, safe, short, table
from .root import AsJson, CliContext, DryRun, Yes, command_group
from .times import both

Past = Annotated[bool, typer.Option("--past", help="Include limits that have ended.")]

_MOST = 500

limits = command_group("List and clear the rate limits of the fleet.", default="ls")


@limits.command("ls")
def list_limits(context: typer.Context, past: Past = False, as_json: AsJson = False) -> None:
    """List active rate limits."""
    cli = CliContext.of(context)
    found, now = cli.work(lambda operations: operations.limits(with_past=past)), datetime.now(UTC)
    if as_json:
        return print_json(found)
    if not found:
        return cli.out.print("No active rate limits.")
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
    return cli.out.print(
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
    cli = CliContext.of(context)
    found = find_by_key(cli.work(lambda operations: operations.limits(with_past=True, limit=_MOST)), key, "limit")
    now = datetime.now(UTC)
    ends = f"ends {both(found.until, now)}" if found.until > now else f"ended {both(found.until, now)}"
    if confirm(cli, f"clear the limit {found.key}, which {ends}", dry_run=dry_run, yes=yes):
        before = cli.work(lambda operations: operations.clear_limit(key))
        if as_json:
            return print_json(before)
        cli.out.print(f"{plain(key)}: cleared")
    return None
