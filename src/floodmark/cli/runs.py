"""Run jobs now, and show the next runs of a job."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated, Any

import typer

from floodmark.model.durations import format_duration
from floodmark.model.execution import ENDED, Execution, State
from floodmark.model.job import Job, ScheduleType
from floodmark.model.notes import notes_of
from floodmark.model.shapes import execution_shape
from floodmark.operations.declared import AsyncOperations
from floodmark.operations.runs import MOST_RUNS
from floodmark.triggers import instants, zone_of
from floodmark.triggers.cron import cron

from .bulk import first_names
from .confirmation import confirm
from .history import items_words, summary_of
from .job_selection import JobSelection
from .option_groups import expand_options
from .output import counted, plain, print_json, table
from .parsing import params_of
from .root import AsJson, CliContext, DryRun, Yes
from .times import clock_changes, due, relative, upcoming

_POLL_SECONDS = 0.3


@expand_options
def run(
    context: typer.Context,
    *,
    selection: JobSelection,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait until it has ended; exit code 1 if it failed.")
    ] = False,
    param: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Parameter for this run only; can be repeated.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Run jobs now, regardless of their schedule."""
    cli = CliContext.of(context)
    params = params_of(param or ())
    if selection.single is None or dry_run:
        if _confirm_runs(cli, selection, yes=yes, dry_run=dry_run):
            _run_many(cli, selection, params, wait=wait, as_json=as_json)
        return

    async def work(operations: AsyncOperations) -> Execution:
        found = await operations.job(str(selection.single))
        requested = await operations.run_job(found.job_id, params or None)
        if wait:
            return await _wait_for_end(cli, operations, found, requested.execution_id, is_shown=not as_json)
        if not as_json:
            text = requested.reason or (await operations.explain(found.job_id)).sentence
            cli.out.print(f"[green]Requested[/] [bold]{plain(found.name)}[/]: {plain(text)}")
            cli.note(f"[dim]See the result: floodmark history --id {requested.execution_id}[/]")
        return await operations.execution(requested.execution_id)

    ended = cli.work(work)
    if as_json:
        print_json(execution_shape(ended))
    elif wait:
        _print_end(cli, ended)
    if wait and ended.state is not State.DONE:
        raise typer.Exit(1)


def _confirm_runs(cli: CliContext, selection: JobSelection, *, yes: bool, dry_run: bool) -> bool:
    """Return whether to run the chosen jobs; named ones need no confirmation."""
    if not selection.is_filtered and not dry_run:
        return True
    names = [job.name for job in cli.work(selection.choose)]
    if not names:
        cli.out.print("No job matches.")
        return False
    return confirm(cli, f"run {counted(len(names), 'job')}: {first_names(names)}", yes=yes, dry_run=dry_run)


def _run_many(
    cli: CliContext, selection: JobSelection, params: Mapping[str, Any], *, wait: bool, as_json: bool
) -> None:
    """Request a run of each chosen job, and list those that failed. Exit code 1 if there are any."""
    failed: dict[str, str] = {}

    async def work(operations: AsyncOperations) -> tuple[int, list[Execution]]:
        requested = await _request_runs(operations, await selection.choose(operations), params, failed)
        if wait:
            ended = [await _wait_for_end(cli, operations, *one, is_shown=False) for one in requested]
            bad = {one.job_name: one.error_message or one.state for one in ended if one.state is not State.DONE}
            failed.update(bad)
            return len(ended), ended
        shown = [await operations.execution(execution_id) for _, execution_id in requested if as_json]
        return len(requested), shown

    count, executions = cli.work(work)
    if as_json:
        print_json({"executions": [execution_shape(one) for one in executions], "failed": failed})
    else:
        if failed:
            cli.out.print(table("failed", "", rows=list(failed.items())))
        verb, bad = "Ran" if wait else "Requested runs of", f", {len(failed):,} failed" if failed else ""
        cli.out.print(f"{verb} {counted(count, 'job')}{bad}.")
    if failed:
        raise typer.Exit(1)


async def _request_runs(
    operations: AsyncOperations, jobs: Sequence[Job], params: Mapping[str, Any], failed: dict[str, str]
) -> list[tuple[Job, str]]:
    """Return the jobs with the ids of their executions; those that are refused are added to `failed`."""
    requested: list[tuple[Job, str]] = []
    for start in range(0, len(jobs), MOST_RUNS):
        some = jobs[start : start + MOST_RUNS]
        report = await operations.run_many([job.job_id for job in some], params or None)
        for job, line in zip(some, report.results, strict=True):
            if line.run is not None:
                requested.append((job, line.run.execution_id))
            elif line.error is not None:
                hint = line.error.hint
                failed[job.name] = f"{line.error.detail} ({hint})" if hint else line.error.detail
    return requested


async def _wait_for_end(
    cli: CliContext, operations: AsyncOperations, job: Job, execution_id: str, *, is_shown: bool
) -> Execution:
    """Return the execution once it has ended; meanwhile show its state."""
    with cli.busy("queued") as status:
        last = ""
        while True:
            execution = await operations.execution(execution_id)
            if execution.state in ENDED:
                return execution
            text = plain((await operations.explain(job.job_id)).sentence)
            status.update(f"[bold]{plain(job.name)}[/]: {text}")
            # Without a terminal there is no spinner: one line per new state.
            if is_shown and not cli.out.is_terminal and execution.state != last:
                cli.note(f"{plain(job.name)}: {text}")
            last = execution.state
            await asyncio.sleep(_POLL_SECONDS)


def _print_end(cli: CliContext, execution: Execution) -> None:
    took = f" in {format_duration(timedelta(seconds=execution.duration_seconds or 0))}"
    if execution.state is State.DONE:
        count = execution.items_new + execution.items_changed + execution.items_known
        found = f"{items_words(execution)} {'item' if count == 1 else 'items'}" if count else "nothing new"
        text = summary_of(execution) or found
        cli.out.print(f"[green]Done[/]{took}: {plain(text)}")
        for note in notes_of(execution.result):
            cli.out.print(f"[yellow]Note[/]: {plain(note)}")
        return
    why = execution.error_message or execution.reason or execution.state
    cli.out.print(f"[bold red]{execution.state.capitalize()}[/]{took}: {plain(why)}")
    cli.note(f"[dim]Details: floodmark history --id {execution.execution_id}[/]")


def next_runs(
    context: typer.Context,
    what: Annotated[str, typer.Argument(metavar="JOB|EXPRESSION", help="A job, or a cron expression in quotes.")],
    tz: Annotated[str, typer.Option(metavar="ZONE", help="Time zone of an expression, as in Europe/Berlin.")] = "UTC",
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="Maximum number of entries.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Show the next runs of a job or a cron expression; daylight saving changes are marked."""
    cli = CliContext.of(context)
    now = datetime.now(UTC)
    if _is_expression(what):
        zone_name, runs = tz, list(islice(instants(cron(what, tz), now), count))
    else:
        job = cli.work(lambda operations: operations.job(what))
        zone_name, runs = job.when.timezone, upcoming(job, now, count)
        if not as_json:
            _warn_if_off(cli, job)
            if job.when.schedule_type is ScheduleType.ADAPTIVE:
                return cli.out.print(_describe_adaptive(runs, now))
    return _show_runs(cli, runs, zone_name, now, as_json=as_json)


def _is_expression(text: str) -> bool:
    return text.startswith("@") or len(text.split()) >= 4


def _warn_if_off(cli: CliContext, job: Job) -> None:
    if job.paused or not job.schedule_enabled:
        why = "paused" if job.paused else "disabled"
        cli.note(f"[yellow]{plain(job.name)} is {why}: it does not run until that changes.[/]")


def _describe_adaptive(runs: Sequence[datetime], now: datetime) -> str:
    if not runs:
        return "It is adaptive, and not planned yet."
    return f"It is adaptive: {due(runs[0], now)}, or earlier if its budget has requests left."


def _show_runs(cli: CliContext, runs: Sequence[datetime], zone_name: str, now: datetime, *, as_json: bool) -> None:
    zone = zone_of(zone_name)
    changes = list(clock_changes(runs, now, zone))
    if as_json:
        shapes: list[dict[str, Any]] = [
            {"at": run, "local": run.astimezone(zone).isoformat(), "clock_change": change or None}
            for run, change in zip(runs, changes, strict=True)
        ]
        return print_json(shapes)
    if not runs:
        return cli.out.print("It has no schedule: it runs on demand.")
    rows = [
        [f"{run.astimezone(zone):%a %Y-%m-%d %H:%M:%S %Z}", f"{run:%H:%M:%S} UTC", relative(run, now), change]
        for run, change in zip(runs, changes, strict=True)
    ]
    return cli.out.print(
        table(zone_name, "UTC", "", "", rows=rows)
        if zone_name != "UTC"
        else table("UTC", "", rows=[[row[0], row[2]] for row in rows])
    )
