"""List, show, explain and cancel jobs."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from msgspec.structs import asdict
from rich.text import Text

from floodmark.errors import InvalidInput, NotFound
from floodmark.model.durations import format_duration
from floodmark.model.execution import ACTIVE, Execution
from floodmark.model.job import SCHEDULER_VERSION, Job, Priority
from floodmark.model.page import cursor_of, take
from floodmark.model.shapes import execution_shape, job_shape
from floodmark.operations.declared import AsyncOperations
from floodmark.operations.jobs import ANY_JOB
from floodmark.rules.explain import Explanation
from floodmark.triggers import zone_of
from floodmark.triggers.parsing import words_of

from .confirmation import confirm
from .history import executions_table
from .job_selection import FilterOptions, filter_of
from .option_groups import expand_options
from .output import counted, facts, json_line, plain, print_json, safe, short, state, table
from .root import AsJson, CliContext, DryRun, JobName, Yes
from .times import both, due, relative, upcoming

_MOST_AT_ONCE = 500
# On a narrower terminal, clock times are left out and names and schedules are cut, so that a job fits on one line.
_WIDE, _NARROW_NAME, _NARROW_WHEN = 110, 22, 17


@expand_options
def ls(
    context: typer.Context,
    *,
    text: Annotated[str | None, typer.Argument(help="Match a part of the name, target, URL or domain.")] = None,
    filters: FilterOptions,
    after: Annotated[str | None, typer.Option(metavar="NAME", help="Start after this job.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=_MOST_AT_ONCE, help="Maximum number of entries.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List jobs with their next run and last result."""
    cli = CliContext.of(context)
    which = filter_of(filters.values, text=text)

    async def work(operations: AsyncOperations) -> list[Job]:
        return await take(operations.each_job(which, cursor=cursor_of("jobs", after)), limit)

    found = cli.work(work)
    if as_json:
        return print_json([job_shape(job) for job in found])
    if not found:
        return _print_none(cli, is_filtered=which != ANY_JOB or after is not None)
    _print_jobs(cli, found)
    if len(found) == limit:
        cli.note(f"[dim]More: floodmark ls --after {plain(found[-1].name)}[/]")
    return None


def _print_jobs(cli: CliContext, found: Sequence[Job]) -> None:
    now = datetime.now(UTC)
    is_narrow = cli.out.width < _WIDE
    next_run = "next run" if is_narrow else f"next run ({now.astimezone():%Z})"
    rows = (_row(job, now, is_narrow=is_narrow) for job in found)
    cli.out.print(table("name", "source", "when", next_run, "last run", "state", rows=rows, one_line=True))


def _print_none(cli: CliContext, *, is_filtered: bool) -> None:
    if is_filtered:
        cli.out.print("No job matches. List all jobs: floodmark ls")
        return
    cli.out.print("No jobs yet.")
    cli.note("Add one: floodmark add python package.module:function --every 15m")
    cli.note("Or run the demo: floodmark demo")


def _row(job: Job, now: datetime, *, is_narrow: bool) -> list[object]:
    last = state(job.last_status)
    if job.last_run is not None:
        last.append(f" {relative(job.last_run, now)}", style="dim")
    name = Text(short(job.name, _NARROW_NAME) if is_narrow else safe(job.name), style="bold")
    when, next_run = words_of(job.when), _next_run(job, now, is_narrow=is_narrow)
    return [name, job.source, short(when, _NARROW_WHEN) if is_narrow else when, next_run, last, condition(job)]


def _next_run(job: Job, now: datetime, *, is_narrow: bool) -> str:
    if job.scheduler_version != SCHEDULER_VERSION:
        return "old scheduler"
    if job.next_run is None:
        return "-" if job.paused or not job.schedule_enabled or job.invalid_reason else "not planned yet"
    return relative(job.next_run, now) if is_narrow and job.next_run > now else due(job.next_run, now)


def condition(job: Job) -> Text:
    """Return whether the job is on, or why it is not."""
    if job.scheduler_version != SCHEDULER_VERSION:
        return Text("old scheduler", style="dim")
    if job.invalid_reason:
        return Text("invalid", style="bold red")
    if job.paused:
        return Text("paused", style="yellow")
    return Text("on", style="green") if job.schedule_enabled else Text("disabled", style="dim")


def show(
    context: typer.Context,
    *,
    job: JobName,
    last: Annotated[int, typer.Option(min=1, max=100, help="Number of executions.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Show a job: its schedule, watermark, last runs, and what it waits for."""
    cli = CliContext.of(context)

    async def work(operations: AsyncOperations) -> dict[str, Any]:
        found = await operations.job(job)
        try:
            watermark = await operations.watermark(found.job_id)
        except NotFound:
            watermark = None
        return {
            "job": found,
            "explanation": await operations.explain(found.job_id),
            "watermark": watermark,
            "items": (await operations.describe_stream(found.job_id)).items,
            "executions": await take(operations.each_execution(job=found.job_id), last),
        }

    details = cli.work(work)
    now = datetime.now(UTC)
    found: Job = details["job"]
    runs = _runs(found, now, 3)
    if as_json:
        shapes = {"job": job_shape(found), "executions": [execution_shape(e) for e in details["executions"]]}
        return print_json({**details, **shapes, "next_runs": runs})
    cli.out.print(Text.assemble((found.name, "bold"), "  ", condition(found)))
    cli.out.print(plain(details["explanation"].sentence))
    cli.out.print()
    cli.out.print(facts(_details(details, runs, now)))
    if details["executions"]:
        cli.out.print()
        cli.out.print(executions_table(details["executions"], now, with_job=False))
    return None


def _runs(job: Job, now: datetime, count: int) -> list[datetime]:
    try:
        return upcoming(job, now, count)
    except InvalidInput:
        # The row was edited by hand; the explanation says what is wrong.
        return []


def _details(details: dict[str, Any], runs: list[datetime], now: datetime) -> list[tuple[str, object]]:
    job, watermark = details["job"], details["watermark"]
    policy = job.policy
    jitter = f", spread over {format_duration(policy.jitter)}" if policy.jitter else ""
    return [
        ("id", job.job_id),
        ("source", f"{job.source} {job.target}"),
        ("params", json_line(job.params) if job.params else None),
        ("when", f"{words_of(job.when)}{jitter}"),
        *(("" if n else "next runs", due(run, now, zone_of(job.when.timezone))) for n, run in enumerate(runs)),
        ("last run", both(job.last_run, now) if job.last_run else None),
        ("last success", both(job.last_success, now) if job.last_success else None),
        ("stream", job.stream),
        ("items", f"{details['items']:,}"),
        ("watermark", None if watermark is None or watermark.value is None else json_line(watermark.value)),
        (
            "checked",
            None if watermark is None or not watermark.last_checked_at else both(watermark.last_checked_at, now),
        ),
        ("priority", Priority(job.priority).name.lower()),
        ("time-out", format_duration(job.timeout)),
        ("retries", str(job.retry_max)),
        ("overlap", f"{policy.overlap}; at most {policy.max_instances} at once; catches up {policy.catch_up}"),
        ("waits for", ", ".join(job.depends_on)),
        ("limit", job.limit_key),
        ("budget", _budget(job)),
        ("account", job.account),
        ("tags", ", ".join(job.tags)),
        ("tenant, user", ", ".join(filter(None, (job.tenant_id, job.user_id)))),
        ("version", str(job.version)),
    ]


def _budget(job: Job) -> str | None:
    if job.budget is None:
        return None
    often = "" if job.max_delay is None else f"; at least every {format_duration(job.max_delay)}"
    weight = "" if job.weight == 1 else f"; weight {job.weight:g}"
    return f"{job.budget}{often}{weight}"


def explain(context: typer.Context, job: JobName, as_json: AsJson = False) -> None:
    """Explain in one sentence why a job is not running, and until when."""
    cli = CliContext.of(context)

    async def work(operations: AsyncOperations) -> tuple[Job, Explanation]:
        found = await operations.job(job)
        return found, await operations.explain(found.job_id)

    found, explanation = cli.work(work)
    if as_json:
        return print_json({"job": found.name, **asdict(explanation)})
    return cli.out.print(f"[bold]{plain(found.name)}[/]: {plain(explanation.sentence)}")


def cancel(context: typer.Context, job: JobName, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Cancel the unfinished executions of a job. Its schedule continues."""
    cli = CliContext.of(context)

    async def look(operations: AsyncOperations) -> tuple[Job, list[Execution]]:
        found = await operations.job(job)
        return found, await take(operations.each_execution(job=found.job_id, states=ACTIVE), _MOST_AT_ONCE)

    found, active = cli.work(look)
    if not active:
        return cli.out.print(f"{plain(found.name)} has no unfinished execution.")
    states = ", ".join(sorted({execution.state for execution in active}))
    action = f"cancel {counted(len(active), 'execution')} of {found.name} ({states})"
    if not confirm(cli, action, dry_run=dry_run, yes=yes):
        return None
    ended = cli.work(lambda operations: operations.cancel_job(found.job_id))
    return cli.out.print(f"Cancelled {counted(ended, 'execution')} of {plain(found.name)}.")
