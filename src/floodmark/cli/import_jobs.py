"""Import jobs from crontab, APScheduler or Celery beat."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.text import Text

from floodmark.model.handover import Imports, NewJob
from floodmark.operations.declared import AsyncOperations
from floodmark.triggers.parsing import words_of

from .option_groups import expand_options
from .output import counted, plain, print_json, short, table
from .root import AsJson, CliContext, DryRun

if TYPE_CHECKING:
    from .import_readers import ImportProblem, JobsFound

_LISTED = 20
# Half of what a request may contain (API_BODY_MAX, and the maximum number of jobs).
_BYTES_AT_ONCE, _JOBS_AT_ONCE = 500_000, 250
_COMPARE = "Compare first: floodmark shadow start. Then move them: floodmark migrate-jobs ..."
_MOVED = "Floodmark schedules them from now on: remove them from the old scheduler."

importing = typer.Typer(help="Import jobs from another scheduler.", no_args_is_help=True)


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """The options of all imports."""

    tag: Annotated[list[str] | None, typer.Option("--tag", help="Tag for the jobs; can be repeated.")] = None
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="Let Floodmark schedule them at once; default: they still belong to the old scheduler."
        ),
    ] = False
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip jobs that cannot be imported.")] = False
    dry_run: DryRun = False
    as_json: AsJson = False


@importing.command()
@expand_options
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
    options: ImportOptions,
) -> None:
    """Import a crontab: one job per line.

    floodmark import crontab /etc/cron.d/reports --target myapp.commands:run --dry-run
    """
    from .import_readers import read_crontab_jobs  # noqa: PLC0415 - loads the database library

    def read() -> "Awaitable[JobsFound]":
        tags = options.tag or ()
        return read_crontab_jobs(file, target=target, is_system=system, timezone=tz, prefix=prefix, tags=tags)

    _import(context, options, read, usual=True)


@importing.command("apscheduler")
@expand_options
def from_apscheduler(
    context: typer.Context,
    *,
    url: Annotated[str, typer.Argument(metavar="URL", help="Database of the SQLAlchemyJobStore.")],
    table_name: Annotated[
        str, typer.Option("--table", metavar="TABLE", help="Table of the job store.")
    ] = "apscheduler_jobs",
    options: ImportOptions,
) -> None:
    """Import the jobs of an APScheduler 3 job store. No code of the store is run.

    floodmark import apscheduler sqlite:///jobs.sqlite --dry-run
    """
    from .import_readers import read_apscheduler_jobs  # noqa: PLC0415 - loads the database library

    _import(context, options, lambda: read_apscheduler_jobs(url, table_name, tags=options.tag or ()))


@importing.command("celery")
@expand_options
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
    options: ImportOptions,
) -> None:
    """Import the schedule of Celery beat: one job per entry, which calls the function of its task.

    floodmark import celery myapp.celeryconfig:beat_schedule --tz Europe/Berlin --dry-run
    """
    from .import_readers import read_celery_jobs  # noqa: PLC0415 - loads the database library

    _import(context, options, lambda: read_celery_jobs(what, timezone=tz, tags=options.tag or ()), usual=True)


def _import(
    context: typer.Context, options: ImportOptions, read: "Callable[[], Awaitable[JobsFound]]", *, usual: bool = False
) -> None:
    """Import the jobs, and print the result. If one of them is bad, nothing is imported and the exit code is 2."""
    cli = CliContext.of(context)

    async def work(operations: AsyncOperations) -> "tuple[Imports, list[NewJob], list[ImportProblem], bool]":
        jobs, problems = await read()
        is_refused = bool(problems and not options.skip_bad)
        only_try = options.dry_run or is_refused
        imports = await _import_all(cli, operations, jobs, take_over=options.take_over, dry_run=only_try, usual=usual)
        return imports, jobs, problems, is_refused

    imports, jobs, problems, is_refused = cli.work(work)
    is_tried = options.dry_run or is_refused
    if options.as_json:
        errors = [problem._asdict() for problem in problems]
        print_json({"made": imports.made, "already": imports.already, "errors": errors, "dry_run": is_tried})
    else:
        _print_imports(cli, imports, jobs, problems, is_tried=is_tried)
        if is_refused:
            cli.note("[dim]Nothing was changed. Correct the errors, or import the other jobs with --skip-bad[/]")
        elif imports.made and not options.dry_run:
            cli.note(f"[dim]{_MOVED if options.take_over else _COMPARE}[/]")
    if is_refused:
        raise typer.Exit(2)


def _print_imports(
    cli: CliContext, imports: Imports, jobs: Sequence[NewJob], problems: "Sequence[ImportProblem]", *, is_tried: bool
) -> None:
    rows: list[list[object]] = [
        [Text(job.spec.name or "", style="bold"), words_of(job.spec.when), short(_work(job), 60)]
        for job in jobs
        if job.spec.name in imports.made
    ]
    if rows:
        cli.out.print(table("job", "when", "what", rows=rows[: None if is_tried else _LISTED]))
    for where, text, error, hint in problems:
        quoted = f" {plain(short(text, 60))}" if text else ""
        cli.out.print(f"[bold red]{plain(where)}[/]{quoted}: {plain(error)}")
        if hint:
            cli.note(f"  [dim]{plain(hint)}[/]")
    already = f", {len(imports.already)} already exist" if imports.already else ""
    bad = f", {counted(len(problems), 'error')}" if problems else ""
    verb = "Would import" if is_tried else "Imported"
    cli.out.print(f"{verb} {counted(len(imports.made), 'job')}{already}{bad}.")


def _work(new: NewJob) -> object:
    return new.spec.params.get("command", new.spec.target)


async def _import_all(
    cli: CliContext,
    operations: AsyncOperations,
    new: Sequence[NewJob],
    *,
    take_over: bool,
    dry_run: bool,
    usual: bool = False,
) -> Imports:
    """Import jobs. If they need several requests, all of them are tried before any job is created."""
    portions = list(_portions(new)) if cli.url() is not None else [list(new)]
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
    """Yield the jobs in portions that fit into a request."""
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
