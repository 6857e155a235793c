"""Moving over from an older scheduler: compare, move, import."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.text import Text

from floodmark.errors import FloodmarkError, InvalidInput
from floodmark.model.handover import Imports, Moved, NewJob, OldRunsTable, ParityReport, ShadowStatus, Which

from .asking import go_ahead
from .parsing import duration
from .root import AsJson, Desk, DryRun, Yes
from .showing import counted, facts, plain, print_json, short, table
from .times import absolute, due, relative

if TYPE_CHECKING:
    from floodmark.importers.apscheduler import ImportedJob
    from floodmark.importers.crontab import LineError
    from floodmark.model.handover import JobParity
    from floodmark.operations.declared import AsyncOperations

_STYLES = {"equal": "green", "differs": "bold red", "invalid": "bold red", "nothing": "dim"}
_LISTED = 20
# Half of what a request may be (API_BODY_MAX), and half as many jobs as one may hold.
_BYTES_AT_ONCE, _JOBS_AT_ONCE = 500_000, 250
_WEEK_HOURS = 168
_COMPARE = "Compare first: floodmark shadow start. Take them over with: floodmark migrate-jobs ..."
_TAKEN = "They are scheduled here from now on: take them away from the old scheduler."
_LARGEST_FILE = 1_000_000

Tags = Annotated[list[str] | None, typer.Option("--tag", help="Tag for the jobs; can be repeated.")]
TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over", help="Let Floodmark schedule them at once; default: they still belong to the old scheduler."
    ),
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Skip jobs that cannot be imported.")]

shadow = typer.Typer(help="Compare Floodmark with an older scheduler without firing its jobs.")
importing = typer.Typer(help="Import jobs from another scheduler.", no_args_is_help=True)


@shadow.callback(invoke_without_command=True)
def begin(context: typer.Context) -> None:
    """See what Floodmark would do with the jobs of an older scheduler (those with scheduler_version 1)."""
    if context.invoked_subcommand is None:
        status(context)


@shadow.command()
def status(context: typer.Context, as_json: AsJson = False) -> None:
    """Show whether the shadow is on, and its progress."""
    desk = Desk.of(context)
    told = desk.work(lambda operations: operations.shadow())
    return print_json(told) if as_json else _show_status(desk, told)


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
    desk = Desk.of(context)
    ago = duration(back)
    told = desk.work(lambda operations: operations.start_shadow(ago or timedelta()))
    if as_json:
        return print_json(told)
    _show_status(desk, told)
    return desk.note("[dim]The scheduler records from here on. Compare later with: floodmark shadow report[/]")


@shadow.command()
def stop(context: typer.Context, *, dry_run: DryRun = False, yes: Yes = False, as_json: AsJson = False) -> None:
    """Stop the shadow and delete its records."""
    desk = Desk.of(context)
    if go_ahead(desk, "stop the shadow and forget what it has recorded", dry_run=dry_run, yes=yes):
        told = desk.work(lambda operations: operations.stop_shadow())
        if as_json:
            return print_json(told)
        _show_status(desk, told)
    return None


@shadow.command()
def step(context: typer.Context, as_json: AsJson = False) -> None:
    """Record instants up to now, without waiting for the scheduler."""
    desk = Desk.of(context)
    with desk.busy("Recording"):
        told = desk.work(lambda operations: operations.step_shadow())
    if as_json:
        return print_json(told)
    return desk.out.print(f"Recorded up to now: {counted(told.jobs, 'job')} looked at.", highlight=False)


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
    desk = Desk.of(context)
    within = duration(tolerance)

    record = OldRunsTable(table=table_name, job_column=job_column, time_column=time_column)
    if record == OldRunsTable(time_column=time_column):
        told = desk.work(
            lambda operations: operations.shadow_report(
                hours=hours, tolerance=within, time_column=time_column, jobs=jobs or ()
            )
        )
    else:
        told = asyncio.run(_compare_with(desk, record, hours=hours, tolerance=within, jobs=jobs or ()))
    if as_json:
        print_json(told)
    else:
        _show_report(desk, told)
    if told.differing:
        raise typer.Exit(1)


def _show_status(desk: Desk, told: "ShadowStatus") -> None:
    now = datetime.now(UTC)
    rows: list[tuple[str, object]] = [
        ("shadow", "on" if told.on else "off"),
        ("since", None if told.since is None else relative(told.since, now)),
        ("recorded up to", None if told.until is None else relative(told.until, now)),
        ("jobs of the old scheduler", told.jobs),
        ("fires recorded", f"{told.fires:,}"),
    ]
    desk.out.print(facts(rows))
    if not told.on:
        desk.note("[dim]Begin with: floodmark shadow start[/]")


def _show_report(desk: Desk, told: "ParityReport") -> None:
    now = datetime.now(UTC)
    if not told.jobs:
        desk.out.print("No job belongs to an old scheduler (scheduler_version 1).", highlight=False)
        return
    desk.out.print(
        table(
            "job",
            "expected",
            "ran",
            "missed",
            "extra",
            "drift",
            "at most",
            "verdict",
            rows=(_row(one) for one in told.jobs),
            right=("expected", "ran", "missed", "extra", "drift", "at most"),
        )
    )
    for one in told.jobs:
        _show_differences(desk, one)
    since, until = absolute(told.since, now), absolute(told.until, now)
    desk.out.print(f"{told.equal} equal, {told.differing} differing, from {since} to {until}.", highlight=False)
    if not told.differing and told.equal:
        desk.note("[dim]Move them over with: floodmark migrate-jobs --all --dry-run[/]")


def _row(one: "JobParity") -> list[object]:
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


def _show_differences(desk: Desk, one: "JobParity") -> None:
    lines = [("missed", one.missed, one.missed_at), ("extra", one.extra, one.extra_at)]
    for word, count, moments in lines:
        if count:
            # To the second: an extra run is often a few of them behind another.
            shown = ", ".join(f"{moment.astimezone():%Y-%m-%d %H:%M:%S}" for moment in moments)
            more = f" and {count - len(moments):,} more" if count > len(moments) else ""
            desk.out.print(f"[bold]{plain(one.job)}[/] {word}: {shown}{more}", highlight=False)
    if one.verdict == "invalid" and one.reason is not None:
        desk.out.print(f"[bold]{plain(one.job)}[/]: {plain(one.reason)}", highlight=False)


# Moving


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
    desk = Desk.of(context)

    def move(*, only_try: bool) -> "Moved":
        async def work(operations: "AsyncOperations") -> "Moved":
            which = Which(jobs=tuple(jobs or ()), tag=tag, domain=domain, everything=everything)
            return await operations.migrate_jobs(which, back=back, dry_run=only_try)

        return desk.work(work)

    tried = move(only_try=True)
    goal = "the old scheduler" if back else "this scheduler"
    if tried.jobs and not as_json:
        _show_moves(desk, tried)
    if not tried.jobs:
        if as_json:
            return print_json(tried)
        return desk.out.print(f"Nothing to move: what fits belongs to {goal} already.", highlight=False)
    what = f"give {counted(len(tried.jobs), 'job')} to {goal}"
    if as_json and dry_run:
        return print_json(tried)
    if not go_ahead(desk, what, dry_run=dry_run, yes=yes):
        return None
    done = move(only_try=False)
    if as_json:
        return print_json(done)
    desk.out.print(f"[green]Moved[/] {counted(len(done.jobs), 'job')} to {goal}.", highlight=False)
    return desk.note(f"[dim]{_next_step(back=back)}[/]")


def _next_step(*, back: bool) -> str:
    if back:
        return "What was due before is still run here; from now on it is the old scheduler's."
    return "What is due from now on is run here. Undo it with: floodmark migrate-jobs --back ..."


def _show_moves(desk: Desk, moved: "Moved") -> None:
    now = datetime.now(UTC)
    rows = [[Text(one.job, style="bold"), due(one.next_run, now)] for one in moved.jobs[:_LISTED]]
    desk.out.print(table("job", "next run here", rows=rows))
    if len(moved.jobs) > _LISTED:
        desk.out.print(f"... and {counted(len(moved.jobs) - _LISTED, 'more job')}", highlight=False)


# Importing


@importing.command()
def crontab(
    context: typer.Context,
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A crontab file.")],
    target: Annotated[
        str,
        typer.Option(metavar="MODULE:NAME", help="Your function that runs a command line, which it gets as `command`."),
    ],
    system: Annotated[
        bool | None,
        typer.Option("--system/--user", help="Whether lines name a user (default: if the file is in /etc)."),
    ] = None,
    tz: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Time zone of the crontab (default: that of this machine).")
    ] = None,
    prefix: Annotated[str, typer.Option(help="Prefix of the names of the jobs.")] = "cron",
    tag: Tags = None,
    take_over: TakeOver = False,
    skip_bad: SkipBad = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Import a crontab: one job per line.

    floodmark import crontab /etc/cron.d/reports --target myapp.commands:run --dry-run
    """
    desk = Desk.of(context)

    async def work(operations: "AsyncOperations") -> "tuple[Imports, list[NewJob], Sequence[LineError]]":
        from floodmark.importers.build_jobs import jobs_of_crontab  # noqa: PLC0415
        from floodmark.importers.crontab import read_crontab  # noqa: PLC0415

        is_system = system if system is not None else file.absolute().is_relative_to("/etc")
        found = read_crontab(_text_of(file), is_system=is_system, timezone=tz or _local_zone())
        made = jobs_of_crontab(found.entries, target=target, prefix=prefix, tags=tag or ())
        only_try = dry_run or bool(found.errors and not skip_bad)
        imports = await _import_all(desk, operations, made, take_over=take_over, dry_run=only_try, usual=True)
        return imports, made, found.errors

    imports, made, errors = desk.work(work)
    told = [(f"line {error.line}", error.text, error.error, error.hint) for error in errors]
    refused = bool(errors and not skip_bad)
    return _tell(desk, imports, made, told, refused=refused, take_over=take_over, dry_run=dry_run, as_json=as_json)


@importing.command("apscheduler")
def from_apscheduler(
    context: typer.Context,
    *,
    url: Annotated[str, typer.Argument(metavar="URL", help="Database of the SQLAlchemyJobStore.")],
    table_name: Annotated[
        str, typer.Option("--table", metavar="TABLE", help="Table of the job store.")
    ] = "apscheduler_jobs",
    tag: Tags = None,
    take_over: TakeOver = False,
    skip_bad: SkipBad = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Import the jobs of an APScheduler 3 job store. No code of the store is run.

    floodmark import apscheduler sqlite:///jobs.sqlite --dry-run
    """
    desk = Desk.of(context)

    async def work(operations: "AsyncOperations") -> "tuple[Imports, list[NewJob], list[tuple[str, ...]]]":
        from floodmark.importers.apscheduler import read_job  # noqa: PLC0415 - as above
        from floodmark.importers.apscheduler_store import stored_jobs  # noqa: PLC0415
        from floodmark.importers.build_jobs import build_jobs  # noqa: PLC0415

        found: list[ImportedJob] = []
        errors: list[tuple[str, ...]] = []
        for stored in await stored_jobs(url, table_name):
            try:
                found.append(read_job(stored.job_state, next_run=stored.next_run_time, now=datetime.now(UTC)))
            except FloodmarkError as error:
                errors.append((stored.id, "", str(error), error.hint))
        made = build_jobs(found, "apscheduler", tags=tag or ())
        only_try = dry_run or bool(errors and not skip_bad)
        return await _import_all(desk, operations, made, take_over=take_over, dry_run=only_try), made, errors

    imports, made, errors = desk.work(work)
    refused = bool(errors and not skip_bad)
    return _tell(desk, imports, made, errors, refused=refused, take_over=take_over, dry_run=dry_run, as_json=as_json)


@importing.command("celery")
def from_celery(
    context: typer.Context,
    *,
    what: Annotated[
        str,
        typer.Argument(
            metavar="SCHEDULE",
            help="module:beat_schedule, a .json file with one, or the schedule file of beat (celerybeat-schedule).",
        ),
    ],
    tz: Annotated[str, typer.Option(metavar="ZONE", help="`timezone` of the Celery app.")] = "UTC",
    tag: Tags = None,
    take_over: TakeOver = False,
    skip_bad: SkipBad = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Import the schedule of Celery beat: one job per entry, which calls the function of its task.

    floodmark import celery myapp.celeryconfig:beat_schedule --tz Europe/Berlin --dry-run
    """
    desk = Desk.of(context)

    async def work(operations: "AsyncOperations") -> "tuple[Imports, list[NewJob], list[tuple[str, ...]]]":
        from floodmark.importers.beat_files import read_beat  # noqa: PLC0415 - as above
        from floodmark.importers.build_jobs import build_jobs  # noqa: PLC0415

        found, wrong = read_beat(what, timezone=tz)
        errors: list[tuple[str, ...]] = [(name, "", error, hint) for name, error, hint in wrong]
        made = build_jobs(found, "celery", tags=tag or ())
        only_try = dry_run or bool(errors and not skip_bad)
        return (
            await _import_all(desk, operations, made, take_over=take_over, dry_run=only_try, usual=True),
            made,
            errors,
        )

    imports, made, errors = desk.work(work)
    refused = bool(errors and not skip_bad)
    return _tell(desk, imports, made, errors, refused=refused, take_over=take_over, dry_run=dry_run, as_json=as_json)


def _tell(
    desk: Desk,
    imports: "Imports",
    made: "Sequence[NewJob]",
    errors: Sequence[tuple[str, ...]],
    *,
    refused: bool,
    take_over: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """What was imported, what was not and why. The exit code is 2 when that kept everything from being imported."""
    if as_json:
        told = [{"where": where, "text": text, "error": error, "hint": hint} for where, text, error, hint in errors]
        print_json({"made": imports.made, "already": imports.already, "errors": told, "dry_run": dry_run or refused})
    else:
        _show_imports(desk, imports, made, errors, is_tried=dry_run or refused)
        if refused:
            desk.note("[dim]Nothing was changed. Correct what is wrong, or import the others with --skip-bad[/]")
        elif imports.made and not dry_run:
            desk.note(f"[dim]{_TAKEN if take_over else _COMPARE}[/]")
    if refused:
        raise typer.Exit(2)


def _show_imports(
    desk: Desk, imports: "Imports", made: "Sequence[NewJob]", errors: Sequence[tuple[str, ...]], *, is_tried: bool
) -> None:
    from floodmark.triggers.parsing import words_of  # noqa: PLC0415 - as above

    rows: list[list[object]] = [
        [Text(one.spec.name or "", style="bold"), words_of(one.spec.when), short(_work(one), 60)]
        for one in made
        if one.spec.name in imports.made
    ]
    if rows:
        desk.out.print(table("job", "when", "what", rows=rows[: None if is_tried else _LISTED]))
    for where, text, error, hint in errors:
        said = f" {plain(short(text, 60))}" if text else ""
        desk.out.print(f"[bold red]{plain(where)}[/]{said}: {plain(error)}", highlight=False)
        if hint:
            desk.note(f"  [dim]{plain(hint)}[/]")
    already = f", {len(imports.already)} there already" if imports.already else ""
    bad = f", {counted(len(errors), 'error')}" if errors else ""
    would = "Would have imported" if is_tried else "Imported"
    desk.out.print(f"{would} {counted(len(imports.made), 'job')}{already}{bad}.", highlight=False)


def _work(new: "NewJob") -> object:
    return new.spec.params.get("command", new.spec.target)


def _text_of(file: Path) -> str:
    hint = "name a file that you can read; that of a user is printed by: crontab -l"
    try:
        if file.stat().st_size > _LARGEST_FILE:
            raise InvalidInput(f"{file} is too large for a crontab", hint=hint)
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} cannot be read: {error}", hint=hint) from None


def _local_zone() -> str:
    """By which cron reads its lines: TZ, or where the clock of this machine is set to."""
    name = os.environ.get("TZ", "").removeprefix(":")
    where = str(Path("/etc/localtime").resolve())
    return name or (where.partition("zoneinfo/")[2] or "UTC")


async def _compare_with(
    desk: Desk, record: OldRunsTable, *, hours: float, tolerance: timedelta | None, jobs: Sequence[str]
) -> ParityReport:
    """Compare with another table. A server reads no table but that of its executions."""
    from floodmark.operations.handlers.handover import HandoverHandlers  # noqa: PLC0415 - loads the database

    from .session import open_here  # noqa: PLC0415 - as above

    if desk.url() is not None:
        raise InvalidInput(
            "a server compares with job_executions only, not with another table",
            hint="type it where the database is, or leave out --table and --job-column",
        )
    async with open_here(desk.overrides) as local:
        handlers = HandoverHandlers(local.resources, local.actor)
        return await handlers.shadow_report(hours=hours, tolerance=tolerance, jobs=jobs, record=record)


async def _import_all(
    desk: Desk,
    operations: "AsyncOperations",
    new: Sequence[NewJob],
    *,
    take_over: bool,
    dry_run: bool,
    usual: bool = False,
) -> Imports:
    """Import jobs. Those that do not fit into one request are all tried before any is made."""
    portions = list(_portions(new)) if desk.url() is not None else [list(new)]
    tries = [True, False] if len(portions) > 1 and not dry_run else [dry_run]
    parts = list[Imports]()
    for is_trial in tries:
        parts = [
            await operations.import_jobs(some, take_over=take_over, dry_run=is_trial, usual=usual) for some in portions
        ]
    return Imports(
        made=tuple(name for part in parts for name in part.made),
        already=tuple(name for part in parts for name in part.already),
    )


def _portions(new: Sequence[NewJob]) -> Iterator[list[NewJob]]:
    """Yield as many jobs at once as a request may hold."""
    some, size = list[NewJob](), 0
    for one in new:
        bytes_of = len(msgspec.json.encode(one))
        if some and (len(some) == _JOBS_AT_ONCE or size + bytes_of > _BYTES_AT_ONCE):
            yield some
            some, size = [], 0
        some.append(one)
        size += bytes_of
    if some:
        yield some
