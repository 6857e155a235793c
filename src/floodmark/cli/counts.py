"""Counts by the minute and by the day."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from floodmark.model.durations import format_duration
from floodmark.model.minutes import MinuteRow
from floodmark.operations.fleet import LONGEST_HOURS

from .output import plain, print_json, table
from .root import AsJson, CliContext
from .times import relative

_NUMBERS = ("done", "failed", "other", "new", "changed", "late p50", "late p95", "queued")
_DAYS = ("new", "changed")


def minutes(
    context: typer.Context,
    *,
    hours: Annotated[float, typer.Option(min=0.02, max=LONGEST_HOURS, help="Number of hours to look back.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Show ended executions, stored items, lateness and the longest queue by the minute.

    floodmark minutes --hours 24
    """
    cli = CliContext.of(context)
    report = cli.work(lambda operations: operations.minutes(hours))
    if as_json:
        return print_json(report)
    if report.counted_at is None:
        cli.out.print("Nothing was counted in this time.")
        return cli.note("The scheduler counts: floodmark up")
    shown = [row for row in report.rows if _is_busy(row)]
    if shown:
        cli.out.print(table("UTC", *_NUMBERS, rows=map(_row, shown), right=_NUMBERS))
    else:
        cli.out.print("Nothing happened in this time.")
    length = "a minute" if report.step_minutes == 1 else f"{report.step_minutes} minutes"
    now = datetime.now(UTC)
    return cli.note(
        f"[dim]Each row is {length}; quiet ones are left out. Counted {relative(report.counted_at, now)}.[/]"
    )


def _is_busy(row: MinuteRow) -> bool:
    counts = (row.done, row.dead, row.cancelled, row.skipped, row.items_new, row.items_changed, row.started, row.queued)
    return any(counts)


def _row(row: MinuteRow) -> list[object]:
    counts = (row.done, row.dead, row.cancelled + row.skipped, row.items_new, row.items_changed)
    return [
        f"{row.at:%Y-%m-%d %H:%M}",
        *(f"{count:,}" if count else "-" for count in counts),
        _late(row.lateness_p50_seconds),
        _late(row.lateness_p95_seconds),
        f"{row.queued:,}" if row.queued else "-",
    ]


def _late(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(timedelta(seconds=seconds))


def days(
    context: typer.Context,
    *,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="A stream, or a job that collects it.")],
    last: Annotated[int, typer.Option(min=1, max=4000, help="Number of days to look back.")] = 30,
    as_json: AsJson = False,
) -> None:
    """Show new and changed items of a stream by UTC day."""
    cli = CliContext.of(context)
    since = datetime.now(UTC).date() - timedelta(days=last - 1)
    found = cli.work(lambda operations: operations.days(stream, since=since))
    if as_json:
        return print_json(found)
    if not found:
        return cli.out.print(f"No items of {plain(stream)} since {since}.")
    rows = ([f"{day.day}", f"{day.new:,}", f"{day.changed:,}"] for day in found)
    return cli.out.print(table("UTC day", *_DAYS, rows=rows, right=_DAYS))
