"""Circuit breakers: list and reset them."""

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.text import Text

from floodmark.model.limits import BreakerRow

from .confirmation import confirm, find_by_key
from .output import plain, print_json, safe, short, table
from .root import AsJson, CliContext, DryRun, Yes, command_group
from .times import both, relative

_MOST = 500
_STYLES = {"closed": "green", "open": "bold red", "half-open": "yellow"}

breakers = command_group("List open circuit breakers and reset them.", default="ls")


@breakers.command("ls")
def list_breakers(context: typer.Context, as_json: AsJson = False) -> None:
    """List circuit breakers with recent failures, the open ones first."""
    cli = CliContext.of(context)
    found, now = cli.work(lambda operations: operations.breakers()), datetime.now(UTC)
    if as_json:
        return print_json(found)
    if not found:
        return cli.out.print("No circuit breakers: no call has failed recently.")
    rows = [
        [
            Text(safe(row.key), style="bold"),
            Text(row.state, style=_STYLES.get(row.state, "")),
            _next(row, now),
            f"{row.failures:,}",
            f"{row.trips:,}",
            short(row.reason or "-", 40),
            relative(row.updated_at, now),
        ]
        for row in found
    ]
    columns = ("key", "state", "next", "failures", "opened", "last failure", "changed")
    return cli.out.print(table(*columns, rows=rows, right=("failures", "opened")))


def _next(row: BreakerRow, now: datetime) -> str:
    if row.open_until is not None:
        return f"probed {both(row.open_until, now)}" if row.open_until > now else "the next call probes"
    if row.probe_until is not None and row.probe_until > now:
        return "being probed"
    return "the next call probes" if row.state == "half-open" else "-"


@breakers.command("reset")
def reset_breaker(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Key, as shown by `floodmark breakers`.")],
    as_json: AsJson = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Close a circuit breaker: calls are made again at once. It opens again if they fail."""
    cli = CliContext.of(context)
    found = find_by_key(cli.work(lambda operations: operations.breakers(limit=_MOST)), key, "breaker")
    if confirm(cli, f"close the circuit breaker {found.key}, which is {found.state}", dry_run=dry_run, yes=yes):
        before = cli.work(lambda operations: operations.reset_breaker(key))
        if as_json:
            return print_json(before)
        cli.out.print(f"{plain(key)}: {before.state} -> closed")
    return None
