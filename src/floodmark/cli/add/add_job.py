"""Create a job from the options of an `add` command."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from floodmark.cli.job_options import JobOptions
from floodmark.cli.output import facts, plain, print_json
from floodmark.cli.parsing import params_of
from floodmark.cli.root import CliContext
from floodmark.cli.times import due, upcoming
from floodmark.errors import Conflict, FloodmarkError, InvalidInput
from floodmark.model.job import Job, When
from floodmark.model.job_fields import POLICY_COLUMNS, spec_from
from floodmark.model.shapes import job_shape
from floodmark.model.spec import JobSpec
from floodmark.operations.declared import AsyncOperations
from floodmark.operations.jobs import JobFilter, columns_to_send
from floodmark.rules.streams import stream_name
from floodmark.sources.validation import Validation
from floodmark.triggers import zone_of
from floodmark.triggers.parsing import words_of

if TYPE_CHECKING:
    from floodmark.app import Floodmark
    from floodmark.settings import Settings

Completion = Callable[[AsyncOperations, "Settings", JobSpec], Awaitable[tuple[JobSpec, str | None]]]
"""Completes a job, and returns advice on the next step, if any."""


def add_job(
    context: typer.Context,
    kind: str,
    target: str,
    options: JobOptions,
    *,
    params: Mapping[str, Any] | None = None,
    account: str | None = None,
    complete: Completion | None = None,
) -> None:
    """Create the job and show it. `params` that are None were not given."""
    cli = CliContext.of(context)
    cli.set("FLOODMARK_APP", options.app)
    settings = cli.local_settings()
    spec = _spec(settings, kind, target, options, params=params or {}, account=account)
    if cli.url() is None:
        # A server has collectors of its own and checks the job itself.
        _check(cli.application(), spec)

    async def work(operations: AsyncOperations) -> tuple[Job, bool, str | None]:
        wanted, advice = spec, None
        if complete is not None:
            wanted, advice = await complete(operations, settings, spec)
        job = await _send(operations, wanted, options, wanted.when if wanted.when == spec.when else None)
        return job, (await operations.fleet()).leader is not None, advice

    job, is_scheduled, advice = cli.work(work)
    if options.as_json:
        return print_json(job_shape(job))
    _show(cli, job, is_scheduled=is_scheduled)
    if advice is not None:
        cli.note(f"[yellow]{plain(advice)}[/]")
    return None


def _spec(
    settings: "Settings",
    kind: str,
    target: str,
    options: JobOptions,
    *,
    params: Mapping[str, Any],
    account: str | None,
) -> JobSpec:
    given = {name: value for name, value in params.items() if value is not None}
    columns = {
        "timeout_seconds": settings.scheduler_job_timeout,
        "retry_max": settings.parser_retry_max,
        **options.columns(),
        "source": kind,
        "target": target,
        "params": params_of(options.param or ()) | given,
        "account": account,
    }
    return spec_from(columns, when=options.when(), policy=settings.default_policy())


async def _send(operations: AsyncOperations, spec: JobSpec, options: JobOptions, when: When | None) -> Job:
    """Add a job without the columns that were not given: the installation or the server has defaults for them."""
    given = {*options.columns(), *(["schedule_type"] if when is not None else [])}
    missing = {"timeout_seconds", "retry_max", "schedule_type", *POLICY_COLUMNS} - given
    if "schedule_type" in missing:
        missing.add("interval_seconds")
    return await operations.add_job(columns_to_send(spec, missing))


async def refuse_second_job(operations: AsyncOperations, spec: JobSpec, *, needs: str = "a --name") -> None:
    """Refuse a second job without a name for the same target."""
    stream = stream_name(spec.stream, spec.source, spec.target)
    async for other in operations.each_job(JobFilter(source=spec.source, text=spec.target)):
        if other.stream == stream and spec.name is None:
            raise Conflict(
                f"{other.name} already collects {spec.target}",
                hint=f"see it with: floodmark show {other.name}; a second job for it needs {needs}",
            )


def _check(application: "Floodmark", spec: JobSpec) -> None:
    """Let the source check the job before anything is stored."""
    try:
        Validation(application.sources).complete(spec)
    except FloodmarkError:
        raise
    except Exception as error:
        # The import runs code of the user.
        raise InvalidInput(
            f"{spec.target!r} cannot be imported: {type(error).__name__}: {error}", hint="correct the module first"
        ) from error


def _show(cli: CliContext, job: Job, *, is_scheduled: bool) -> None:
    now = datetime.now(UTC)
    # A replaced job (JOB_REPLACE_EXISTING_INSTANCE) has a higher version.
    done = "Added" if job.version == 1 else "Replaced"
    cli.out.print(f"[green]{done}[/] [bold]{plain(job.name)}[/]")
    rows: list[tuple[str, Any]] = [
        ("  source", f"{job.source} {job.target}"),
        ("  when", words_of(job.when)),
        ("  stream", job.stream),
        ("  waits for", ", ".join(job.depends_on)),
    ]
    runs = upcoming(job, now, 3) if job.schedule_enabled else []
    zone = zone_of(job.when.timezone)
    rows += [("" if n else "  next runs", due(run, now, zone)) for n, run in enumerate(runs)]
    cli.out.print(facts(rows))
    if is_scheduled and runs:
        cli.note(f"[dim]See its state: floodmark show {plain(job.name)}[/]")
    elif is_scheduled:
        cli.note(f"[dim]Run it: floodmark run {plain(job.name)} --wait[/]")
    else:
        cli.note("[dim]No scheduler is running yet. Start it: floodmark up[/]")
