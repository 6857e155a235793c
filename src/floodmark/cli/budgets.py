"""Budgets: list, show, set and remove them."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from rich.text import Text

from floodmark.errors import InvalidInput, NotFound
from floodmark.model.budget import BudgetRow, Period
from floodmark.model.durations import format_duration
from floodmark.model.page import cursor_of, take
from floodmark.operations.declared import AsyncOperations

from .confirmation import confirm
from .output import counted, facts, plain, print_json, safe, table
from .parsing import duration
from .root import AsJson, CliContext, DryRun, Yes, command_group
from .times import both, relative

_MAX_DELAY = "max-delay"

BudgetName = Annotated[str, typer.Argument(metavar="NAME", help="Name of a budget.")]

budgets = command_group("Manage budgets: how many requests jobs may make together.", default="ls")


@budgets.command()
def ls(
    context: typer.Context,
    *,
    after: Annotated[str | None, typer.Option(metavar="NAME", help="Start after this budget.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number of entries.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List budgets with their requests, adaptive jobs and use."""
    cli = CliContext.of(context)
    found = cli.work(lambda operations: take(operations.each_budget(cursor=cursor_of("budgets", after)), limit))
    if as_json:
        return print_json(found)
    if not found:
        cli.out.print("No budgets yet." if after is None else f"No budgets after {plain(after)}.")
        return cli.note("Create one: floodmark budgets set NAME --per-minute 30")
    columns = ("name", "requests", "max delay", "adaptive jobs", "used this hour", "used in 7 days")
    cli.out.print(table(*columns, rows=map(_row, found), right=columns[3:]))
    if len(found) == limit:
        cli.note(f"[dim]More: floodmark budgets ls --after {plain(found[-1].name)}[/]")
    return None


def _row(row: BudgetRow) -> list[object]:
    return [
        Text(safe(row.name), style="bold"),
        _describe_requests(row),
        _describe_max_delay(row),
        f"{row.sources:,}",
        f"{row.used_this_hour:,}",
        f"{row.used_this_week:,}",
    ]


@budgets.command()
def show(context: typer.Context, name: BudgetName, as_json: AsJson = False) -> None:
    """Show a budget: its requests, its use and its price."""
    cli = CliContext.of(context)
    row = cli.work(lambda operations: operations.budget(name))
    if as_json:
        return print_json(row)
    return _print_budget(cli, row)


@budgets.command("set")
def set_budget(
    context: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name: letters, digits, and any of - _ .")],
    per_minute: Annotated[
        float | None, typer.Option(metavar="N", help="Maximum number of requests in any minute.")
    ] = None,
    per_week: Annotated[
        float | None,
        typer.Option(metavar="N", help="Maximum number of requests in any week; busy hours of the sources get more."),
    ] = None,
    max_delay: Annotated[
        str | None, typer.Option(metavar="TIME", help="Its adaptive jobs run at least this often, as in 1h.")
    ] = None,
    fairness: Annotated[
        float | None,
        typer.Option(metavar="X", help="From 0, the least total delay, to 1, more runs for quiet sources (0.25)."),
    ] = None,
    clear: Annotated[str | None, typer.Option(metavar="FIELD", help=f"Clear a field: {_MAX_DELAY}.")] = None,
    as_json: AsJson = False,
) -> None:
    """Create a budget, or change it while it is in use. Values that are not named stay unchanged.

    floodmark budgets set news --per-minute 30 --max-delay 1h
    """
    cli = CliContext.of(context)
    if per_minute is not None and per_week is not None:
        raise InvalidInput("--per-minute and --per-week contradict each other", hint="use only one of them")
    if clear not in (None, _MAX_DELAY):
        raise InvalidInput(f"--clear {clear[:60]!r} is not a field that can be cleared", hint=_MAX_DELAY)
    if clear is not None and max_delay is not None:
        raise InvalidInput(f"--clear {clear} contradicts the new value", hint="use only one of them")
    given: dict[str, Any] = {"max_delay": duration(max_delay), "fairness": fairness}
    if per_minute is not None or per_week is not None:
        period: Period = "minute" if per_week is None else "week"
        given |= {"requests": per_minute if per_week is None else per_week, "period": period}

    async def work(operations: AsyncOperations) -> tuple[BudgetRow | None, BudgetRow]:
        before = await _find(operations, name)
        values = {field: value for field, value in given.items() if value is not None}
        if before is not None:
            kept = timedelta(seconds=before.max_delay_seconds) if before.max_delay_seconds and clear is None else None
            usual = {"requests": before.requests, "period": before.period, "fairness": before.fairness}
            values = {**usual, "max_delay": kept, **values}
        if "requests" not in values:
            raise InvalidInput(
                f"the budget {name[:80]} does not exist yet: it needs a number of requests",
                hint=f"floodmark budgets set {name[:80]} --per-minute 30, or --per-week 50000",
            )
        return before, await operations.set_budget(name, **values)

    before, row = cli.work(work)
    if as_json:
        return print_json(row)
    done = "Created" if before is None else "Changed" if before.version != row.version else "Unchanged:"
    cli.out.print(f"[green]{done}[/] [bold]{plain(name)}[/]: {plain(_describe_requests(row))}")
    return cli.note(f"[dim]Use it: floodmark edit JOB --adaptive --budget {plain(name)}[/]")


async def _find(operations: AsyncOperations, name: str) -> BudgetRow | None:
    try:
        return await operations.budget(name)
    except NotFound:
        return None


@budgets.command()
def rm(
    context: typer.Context, name: BudgetName, as_json: AsJson = False, dry_run: DryRun = False, yes: Yes = False
) -> None:
    """Remove a budget. It is refused while jobs use it."""
    cli = CliContext.of(context)
    row = cli.work(lambda operations: operations.budget(name))
    if not confirm(cli, f"remove the budget {row.name} ({_describe_requests(row)})", dry_run=dry_run, yes=yes):
        return None
    removed = cli.work(lambda operations: operations.remove_budget(name))
    if as_json:
        return print_json(removed)
    return cli.out.print(f"Removed {plain(name)}.")


def _print_budget(cli: CliContext, row: BudgetRow) -> None:
    now = datetime.now(UTC)
    cli.out.print(Text(safe(row.name), style="bold"))
    cli.out.print(
        facts(
            [
                ("requests", _describe_requests(row)),
                ("max delay", _describe_max_delay(row)),
                ("fairness", f"{row.fairness:g}"),
                ("adaptive jobs", f"{row.sources:,}"),
                ("used this hour", counted(row.used_this_hour, "request")),
                ("used in 7 days", counted(row.used_this_week, "request")),
                ("next request", "now" if row.next_free <= now else both(row.next_free, now)),
                ("price", None if row.price is None else f"{row.price:.4g} item-seconds"),
                ("version", str(row.version)),
                ("changed", relative(row.updated_at, now)),
            ]
        )
    )


def _describe_requests(row: BudgetRow) -> str:
    return f"{row.requests:,.10g} a {row.period}"


def _describe_max_delay(row: BudgetRow) -> str:
    seconds = row.max_delay_seconds
    return "automatic" if seconds is None else format_duration(timedelta(seconds=seconds))
