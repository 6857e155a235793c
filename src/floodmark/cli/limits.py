"""The limits that slow the fleet down."""

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.text import Text

from .asking import go_ahead, picked
from .root import AsJson, Desk, DryRun, Yes
from .showing import plain, print_json, safe, short, table
from .times import both

Past = Annotated[bool, typer.Option("--past", help="Also those that are over.")]

_MOST = 500

limits = typer.Typer(help="What has to wait, for the whole fleet, and until when; lift a limit.")


@limits.callback(invoke_without_command=True)
def holding(context: typer.Context, past: Past = False, as_json: AsJson = False) -> None:
    """What has to wait, for the whole fleet, and until when; lift a limit."""
    if context.invoked_subcommand is None:
        list_limits(context, past=past, as_json=as_json)


@limits.command("ls")
def list_limits(context: typer.Context, past: Past = False, as_json: AsJson = False) -> None:
    """List the limits that hold."""
    desk = Desk.of(context)

    found, now = desk.work(lambda office: office.limits(with_past=past)), datetime.now(UTC)
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
    key: Annotated[str, typer.Argument(metavar="KEY", help="As `floodmark limits` shows it.")],
    as_json: AsJson = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Lift a limit, and the pace that follows it. Whoever set it may set it again, for longer."""
    desk = Desk.of(context)
    found = picked(desk.work(lambda office: office.limits(with_past=True, limit=_MOST)), key, "limit")
    now = datetime.now(UTC)
    ends = f"ends {both(found.until, now)}" if found.until > now else f"ended {both(found.until, now)}"
    what = f"lift the limit {found.key}, which {ends}"
    if go_ahead(desk, what, dry_run=dry_run, yes=yes):
        before = desk.work(lambda office: office.clear_limit(key))
        if as_json:
            return print_json(before)
        desk.out.print(f"{plain(key)}: lifted", highlight=False)
    return None
