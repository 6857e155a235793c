"""Move jobs over from an older scheduler: compare with its runs (`shadow`), then move them (`migrate-jobs`)."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.text import Text

from floodmark.errors import InvalidInput
from floodmark.model.handover import JobParity, Moved, OldRunsTable, ParityReport, ShadowStatus, Which

from .confirmation import confirm
from .output import counted, facts, plain, print_json, table
from .parsing import duration
from .root import AsJson, CliContext, DryRun, Yes, command_group
from .session import open_here
from .times import absolute, due, relative

_STYLES = {"equal": "green", "differs": "bold red", "invalid": "bold red", "nothing": "dim"}
_LISTED = 20
_WEEK_HOURS = 168

shadow = command_group("Compare Floodmark with an older scheduler without firing its jobs.", default="status")


@shadow.command()
def status(context: typer.Context, as_json: AsJson = False) -> None:
    """Show whether the shadow is on, and its progress."""
    cli = CliContext.of(context)
    found = cli.work(lambda operations: operations.shadow())
    return print_json(found) if as_json else _print_status(cli, found)


@shadow.command()
def start(
    context: typer.Context,
    *,
    back: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Start this long ago, with the current schedules: 24h."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start to record what Floodmark would fire for the jobs of the older scheduler. Nothing is fired."""
    cli = CliContext.of(context)
    ago = duration(back)
    found = cli.work(lambda operations: operations.start_shadow(ago or timedelta()))
    if as_json:
        return print_json(found)
    _print_status(cli, found)
    return cli.note("[dim]The scheduler records from now on. Compare later: floodmark shadow report[/]")


@shadow.command()
def stop(context: typer.Context, *, dry_run: DryRun = False, yes: Yes = False, as_json: AsJson = False) -> None:
    """Stop the shadow and delete its records."""
    cli = CliContext.of(context)
    if confirm(cli, "stop the shadow and delete its records", dry_run=dry_run, yes=yes):
        found = cli.work(lambda operations: operations.stop_shadow())
        if as_json:
            return print_json(found)
        _print_status(cli, found)
    return None


@shadow.command()
def step(context: typer.Context, as_json: AsJson = False) -> None:
    """Record instants up to now, without waiting for the scheduler."""
    cli = CliContext.of(context)
    with cli.busy("Recording"):
        found = cli.work(lambda operations: operations.step_shadow())
    if as_json:
        return print_json(found)
    return cli.out.print(f"Recorded {counted(found.jobs, 'job')} up to now.")


@shadow.command()
def report(
    context: typer.Context,
    *,
    jobs: Annotated[list[str] | None, typer.Argument(metavar="JOB...", help="Only these jobs.")] = None,
    hours: Annotated[float, typer.Option(min=0.01, max=_WEEK_HOURS, help="Number of hours to look back.")] = 24,
    tolerance: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Maximum distance between a run and its instant (default: a minute, or less)."
        ),
    ] = None,
    table_name: Annotated[
        str, typer.Option("--table", metavar="TABLE", help="Table of the old scheduler's runs.")
    ] = "job_executions",
    job_column: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column with the name or id of the job.")
    ] = "job_id",
    time_column: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column with the time of the run.")
    ] = "scheduled_for",
    as_json: AsJson = False,
) -> None:
    """Compare the shadow with the runs of the old scheduler. The exit code is 1 if something differs.

    floodmark shadow report --hours 48

    floodmark shadow report --table old_runs --job-column job --time-column ran_at
    """
    cli = CliContext.of(context)
    within = duration(tolerance)

    record = OldRunsTable(table=table_name, job_column=job_column, time_column=time_column)
    if record == OldRunsTable(time_column=time_column):
        found = cli.work(
            lambda operations: operations.shadow_report(
                hours=hours, tolerance=within, time_column=time_column, jobs=jobs or ()
            )
        )
    else:
        found = asyncio.run(_compare_with_table(cli, record, hours=hours, tolerance=within, jobs=jobs or ()))
    if as_json:
        print_json(found)
    else:
        _print_report(cli, found)
    if found.differing:
        raise typer.Exit(1)


def _print_status(cli: CliContext, found: ShadowStatus) -> None:
    now = datetime.now(UTC)
    rows: list[tuple[str, object]] = [
        ("shadow", "on" if found.on else "off"),
        ("since", None if found.since is None else relative(found.since, now)),
        ("recorded up to", None if found.until is None else relative(found.until, now)),
        ("jobs of the old scheduler", found.jobs),
        ("fires recorded", f"{found.fires:,}"),
    ]
    cli.out.print(facts(rows))
    if not found.on:
        cli.note("[dim]Start it: floodmark shadow start[/]")


def _print_report(cli: CliContext, found: ParityReport) -> None:
    now = datetime.now(UTC)
    if not found.jobs:
        cli.out.print("No job belongs to an older scheduler (scheduler_version 1).")
        return
    cli.out.print(
        table(
            "job",
            "expected",
            "ran",
            "missed",
            "extra",
            "drift",
            "at most",
            "verdict",
            rows=(_row(one) for one in found.jobs),
            right=("expected", "ran", "missed", "extra", "drift", "at most"),
        )
    )
    for one in found.jobs:
        _print_differences(cli, one)
    since, until = absolute(found.since, now), absolute(found.until, now)
    cli.out.print(f"{found.equal} equal, {found.differing} differing, from {since} to {until}.")
    if not found.differing and found.equal:
        cli.note("[dim]Move them: floodmark migrate-jobs --all --dry-run[/]")


def _row(one: JobParity) -> list[object]:
    return [
        Text(one.job, style="bold"),
        one.expected,
        one.actual,
        one.missed,
        one.extra,
        _seconds(one.drift_median_seconds),
        _seconds(one.drift_max_seconds),
        Text(one.verdict, style=_STYLES[one.verdict]),
    ]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f} s"


def _print_differences(cli: CliContext, one: JobParity) -> None:
    lines = [("missed", one.missed, one.missed_at), ("extra", one.extra, one.extra_at)]
    for word, count, moments in lines:
        if count:
            # With seconds: an extra run is often a few seconds after another.
            shown = ", ".join(f"{moment.astimezone():%Y-%m-%d %H:%M:%S}" for moment in moments)
            more = f" and {count - len(moments):,} more" if count > len(moments) else ""
            cli.out.print(f"[bold]{plain(one.job)}[/] {word}: {shown}{more}")
    if one.verdict == "invalid" and one.reason is not None:
        cli.out.print(f"[bold]{plain(one.job)}[/]: {plain(one.reason)}")


def migrate_jobs(
    context: typer.Context,
    *,
    jobs: Annotated[list[str] | None, typer.Argument(metavar="JOB...", help="Names or ids.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    tag: Annotated[str | None, typer.Option(help="Jobs with this tag.")] = None,
    domain: Annotated[str | None, typer.Option(help="Jobs of this domain.")] = None,
    back: Annotated[bool, typer.Option("--back", help="Move them back to the old scheduler.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Move jobs from an older scheduler to Floodmark (scheduler_version 1 to 2), or back; all or none of them.

    floodmark migrate-jobs --tag news --dry-run
    """
    cli = CliContext.of(context)

    which = Which(jobs=tuple(jobs or ()), tag=tag, domain=domain, everything=everything)

    def move(*, only_try: bool) -> Moved:
        return cli.work(lambda operations: operations.migrate_jobs(which, back=back, dry_run=only_try))

    tried = move(only_try=True)
    goal = "the old scheduler" if back else "this scheduler"
    if tried.jobs and not as_json:
        _print_moves(cli, tried)
    if not tried.jobs:
        if as_json:
            return print_json(tried)
        return cli.out.print(f"Nothing to move: the matching jobs already belong to {goal}.")
    if as_json and dry_run:
        return print_json(tried)
    if not confirm(cli, f"move {counted(len(tried.jobs), 'job')} to {goal}", dry_run=dry_run, yes=yes):
        return None
    done = move(only_try=False)
    if as_json:
        return print_json(done)
    cli.out.print(f"[green]Moved[/] {counted(len(done.jobs), 'job')} to {goal}.")
    return cli.note(f"[dim]{_next_step(back=back)}[/]")


def _next_step(*, back: bool) -> str:
    if back:
        return "Floodmark still runs what was due before; the old scheduler runs everything after that."
    return "Floodmark runs them from now on. Undo it: floodmark migrate-jobs --back ..."


def _print_moves(cli: CliContext, moved: Moved) -> None:
    now = datetime.now(UTC)
    rows = [[Text(one.job, style="bold"), due(one.next_run, now)] for one in moved.jobs[:_LISTED]]
    cli.out.print(table("job", "next run here", rows=rows))
    if len(moved.jobs) > _LISTED:
        cli.out.print(f"... and {counted(len(moved.jobs) - _LISTED, 'more job')}")


async def _compare_with_table(
    cli: CliContext, record: OldRunsTable, *, hours: float, tolerance: timedelta | None, jobs: Sequence[str]
) -> ParityReport:
    """Compare with another table. A server reads only the table of its executions."""
    from floodmark.operations.handlers.handover import HandoverHandlers  # noqa: PLC0415 - loads the database library

    if cli.url() is not None:
        raise InvalidInput(
            "a server compares with job_executions only, not with another table",
            hint="run it where the database is, or leave out --table and --job-column",
        )
    async with open_here(cli.overrides) as local:
        handlers = HandoverHandlers(local.resources, local.actor)
        return await handlers.shadow_report(hours=hours, tolerance=tolerance, jobs=jobs, record=record)
