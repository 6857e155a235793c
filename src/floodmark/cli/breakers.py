"""The breakers that keep the fleet from calling those who do not answer."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from .asking import go_ahead, picked
from .root import AsJson, Desk, DryRun, Yes
from .showing import plain, print_json, safe, short, table
from .times import both, relative

if TYPE_CHECKING:
    from floodmark.model.limits import BreakerRow

_MOST = 500
_STYLES = {"closed": "green", "open": "bold red", "half-open": "yellow"}

breakers = typer.Typer(help="List open circuit breakers and reset them.")


@breakers.callback(invoke_without_command=True)
def known(context: typer.Context, as_json: AsJson = False) -> None:
    """List open circuit breakers and reset them."""
    if context.invoked_subcommand is None:
        list_breakers(context, as_json=as_json)


@breakers.command("ls")
def list_breakers(context: typer.Context, as_json: AsJson = False) -> None:
    """List circuit breakers with recent failures, the open ones first."""
    desk = Desk.of(context)

    found, now = desk.work(lambda operations: operations.breakers()), datetime.now(UTC)
    if as_json:
        return print_json(found)
    if not found:
        return desk.out.print("No breakers: no call has failed recently.", highlight=False)
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
    return desk.out.print(table(*columns, rows=rows, right=("failures", "opened")))


def _next(row: "BreakerRow", now: datetime) -> str:
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
    desk = Desk.of(context)
    found = picked(desk.work(lambda operations: operations.breakers(limit=_MOST)), key, "breaker")
    if go_ahead(desk, f"close the breaker {found.key}, which is {found.state}", dry_run=dry_run, yes=yes):
        before = desk.work(lambda operations: operations.reset_breaker(key))
        if as_json:
            return print_json(before)
        desk.out.print(f"{plain(key)}: {before.state} -> closed", highlight=False)
    return None
