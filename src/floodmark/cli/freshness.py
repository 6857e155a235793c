"""Show how late items are stored."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.text import Text

from floodmark.errors import InvalidInput
from floodmark.model.durations import format_duration
from floodmark.model.freshness import BudgetFreshness, JobFreshness
from floodmark.model.freshness_map import FreshnessLevel
from floodmark.operations.declaration import MOST_ROWS

from .output import counted, facts, plain, print_json, safe, short, table
from .root import AsJson, CliContext
from .times import absolute, relative

# A narrower terminal has no room for all columns.
_WIDE, _NARROW_NAME = 110, 28
_NUMBERS = ("median", "p95", "found", "expected", "polls", "requests")


def freshness(
    context: typer.Context,
    *,
    budget: Annotated[str | None, typer.Option(metavar="NAME", help="Only this budget and its jobs.")] = None,
    as_map: Annotated[
        bool, typer.Option("--map", help="Show how late all sources are for their own rhythm, the latest first.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=MOST_ROWS, help="Maximum number of sources.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show how late items of adaptive jobs are stored, and what their budget brings.

    floodmark freshness --budget news
    """
    cli = CliContext.of(context)
    if as_map:
        if budget is not None:
            raise InvalidInput("--map covers all jobs, and --budget only some", hint="use only one of them")
        return _show_map(cli, limit, as_json=as_json)
    report = cli.work(lambda operations: operations.freshness(budget=budget, limit=limit))
    if as_json:
        return print_json(report)
    now = datetime.now(UTC)
    if not report.sources:
        cli.out.print("No adaptive jobs yet." if budget is None else f"No adaptive jobs in the budget {plain(budget)}.")
        return cli.note("Make a job adaptive: floodmark edit JOB --adaptive")
    shown = [one for one in report.budgets if one.sources]
    for one in shown:
        _print_budget(cli, one, now)
    _print_sources(cli, report.sources, now, with_budget=len(shown) > 1)
    if report.next is not None:
        total = sum(one.sources for one in shown)
        cli.note(f"[dim]The {limit} slowest of {total:,} sources. Show more: --limit N, at most {MOST_ROWS}[/]")
    return None


def _show_map(cli: CliContext, limit: int, *, as_json: bool) -> None:
    found = cli.work(lambda operations: operations.freshness_map())
    if as_json:
        return print_json(found)
    now = datetime.now(UTC)
    if found.measured_at is None:
        cli.out.print("Not measured yet.")
        return cli.note("The scheduler measures it: floodmark up")
    names = [level.replace("_", " ") for level in FreshnessLevel]
    groups = ([group.name, *(f"{group.levels.get(level, 0):,}" for level in FreshnessLevel)] for group in found.kinds)
    cli.out.print(table("source", *names, rows=groups, right=names))
    cells = [cell for cell in found.cells if cell.level is not FreshnessLevel.OFF][:limit]
    rows = (
        [
            Text(short(cell.name, 60), style="bold"),
            cell.level.replace("_", " "),
            "never" if cell.checked_at is None else relative(cell.checked_at, now),
            _delay(cell.usual_seconds),
        ]
        for cell in cells
    )
    cli.out.print()
    cli.out.print(table("job", "level", "last checked", "usual pause", rows=rows, one_line=True))
    return cli.note(f"[dim]Measured {relative(found.measured_at, now)}; {counted(found.jobs, 'job')}.[/]")


def _print_budget(cli: CliContext, row: BudgetFreshness, now: datetime) -> None:
    never = f" ({row.never_polled:,} never polled)" if row.never_polled else ""
    terms = f"  {_per_period(row, row.requests)}, {counted(row.sources, 'source')}{never}"
    share = f" ({row.used / row.allowed:.0%})" if row.allowed else ""
    cli.out.print(Text.assemble((safe(row.name), "bold"), terms))
    cli.out.print(
        facts(
            [
                ("requests", f"{row.used:,} of {row.allowed:,.0f} allowed since {absolute(row.since, now)}{share}"),
                ("price", None if row.price is None else f"{row.price:.4g} item-seconds"),
                ("delay", _describe_delay(row)),
                ("items", f"{_number(row.found)} found, {_number(row.expected)} expected"),
                ("gain", _describe_gain(row)),
                *(("" if n else "forecast", text) for n, text in enumerate(_describe_forecasts(row))),
            ]
        )
    )
    cli.out.print()


def _describe_delay(row: BudgetFreshness) -> str:
    if row.mean_delay_seconds is None:
        return "nothing measured yet: it takes a second poll that finds new items"
    values = (row.mean_delay_seconds, row.median_delay_seconds, row.p95_delay_seconds)
    return ", ".join(f"{name} {_delay(value)}" for name, value in zip(("mean", "median", "p95"), values, strict=True))


def _describe_gain(row: BudgetFreshness) -> str | None:
    if row.gain is None:
        return None
    best = "" if row.best_fixed_gain is None else f"; the best fixed allocation: {row.best_fixed_gain:.2f}x"
    return f"{row.gain:.2f}x sooner than uniform polling (mean {_delay(row.uniform_delay_seconds)}){best}"


def _describe_forecasts(row: BudgetFreshness) -> list[str]:
    return [f"{_per_period(row, one.requests)}: mean about {_delay(one.mean_delay_seconds)}" for one in row.forecasts]


def _print_sources(cli: CliContext, rows: list[JobFreshness], now: datetime, *, with_budget: bool) -> None:
    columns: dict[str, Callable[[JobFreshness], object]] = {
        "job": lambda row: Text(short(row.name, _NARROW_NAME), style="bold"),
        "budget": lambda row: short(row.budget, _NARROW_NAME),
        "median": lambda row: _delay(row.median_delay_seconds),
        "p95": lambda row: _delay(row.p95_delay_seconds),
        "found": lambda row: _number(row.found),
        "expected": lambda row: _number(row.expected),
        "polls": lambda row: _number(row.polls),
        "requests": lambda row: _number(row.requests),
        "last poll": lambda row: "never" if row.last_poll is None else relative(row.last_poll, now),
        "due": lambda row: _describe_due(row, now),
    }
    hidden = {"polls", "requests"} if cli.out.width < _WIDE else set[str]()
    hidden |= set() if with_budget else {"budget"}
    shown = {name: cell for name, cell in columns.items() if name not in hidden}
    cells = ([cell(row) for cell in shown.values()] for row in rows)
    cli.out.print(table(*shown, rows=cells, right=_NUMBERS, one_line=True))


def _describe_due(row: JobFreshness, now: datetime) -> str:
    if row.hinted_at is not None:
        return "hinted"
    if row.next_run is None:
        return "not planned yet"
    return relative(row.next_run, now) if row.next_run > now else "now"


def _per_period(row: BudgetFreshness, requests: float) -> str:
    number = f"{requests:,.0f}" if requests >= 100 else f"{requests:.3g}"
    return f"{number} a {row.period}"


def _delay(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(timedelta(seconds=seconds))


def _number(value: float) -> str:
    """Return a number that may have faded to a fraction."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0")
