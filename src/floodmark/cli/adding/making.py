"""From the options of an `add` command to a job that is known to work."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from floodmark.cli.parsing import params_of
from floodmark.cli.root import Desk
from floodmark.cli.showing import facts, plain, print_json
from floodmark.cli.times import due, upcoming
from floodmark.errors import FloodmarkError, InvalidInput
from floodmark.model.job import Job, When
from floodmark.model.job_fields import POLICY_COLUMNS, spec_from
from floodmark.model.shapes import job_shape
from floodmark.model.spec import JobSpec
from floodmark.triggers import zone_of
from floodmark.triggers.parsing import words_of

from .options import JobOptions

if TYPE_CHECKING:
    from floodmark.app import Floodmark
    from floodmark.operations.declared import AsyncOperations
    from floodmark.settings import Settings

Completing = Callable[["AsyncOperations", "Settings", JobSpec], Awaitable[tuple[JobSpec, str | None]]]
"""What a kind adds to a job once the operations is open, and what it advises the person to do next."""


def add_job(
    context: typer.Context,
    kind: str,
    target: str,
    options: JobOptions,
    *,
    params: Mapping[str, Any] | None = None,
    account: str | None = None,
    complete: Completing | None = None,
) -> None:
    """Make the job and show it. Those `params` that are None were not said."""
    desk = Desk.of(context)
    desk.set("FLOODMARK_APP", options.app)
    application = desk.maker()
    spec = _spec(application, kind, target, options, params=params or {}, account=account)
    if desk.url() is None:
        # A server has collectors of its own, and checks what it is asked for.
        _check(application, spec)

    async def work(operations: "AsyncOperations") -> tuple[Job, bool, str | None]:
        wanted, advice = spec, None
        if complete is not None:
            wanted, advice = await complete(operations, application.settings, spec)
        job = await _added(operations, wanted, options, wanted.when if wanted.when == spec.when else None)
        return job, (await operations.fleet()).leader is not None, advice

    job, is_scheduled, advice = desk.work(work)
    if options.as_json:
        return print_json(job_shape(job))
    _show(desk, job, is_scheduled=is_scheduled)
    if advice is not None:
        desk.note(f"[yellow]{plain(advice)}[/]")
    return None


def _spec(
    application: "Floodmark",
    kind: str,
    target: str,
    options: JobOptions,
    *,
    params: Mapping[str, Any],
    account: str | None,
) -> JobSpec:
    settings, given = application.settings, {name: value for name, value in params.items() if value is not None}
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


async def _added(operations: "AsyncOperations", spec: JobSpec, options: JobOptions, when: When | None) -> Job:
    """Add a job. The settings of the installation decide what was not said; a server has its own."""
    from floodmark.operations.jobs import columns_to_send  # noqa: PLC0415 - loaded with the operations

    said = {*options.columns(), *(["schedule_type"] if when is not None else [])}
    unsaid = {"timeout_seconds", "retry_max", "schedule_type", *POLICY_COLUMNS} - said
    if "schedule_type" in unsaid:
        unsaid.add("interval_seconds")
    return await operations.add_job(columns_to_send(spec, unsaid))


def _check(application: "Floodmark", spec: JobSpec) -> None:
    """Ask the source whether it could collect this, before anything is written down."""
    from floodmark.sources.validation import Validation  # noqa: PLC0415 - loaded with the application

    try:
        Validation(application.sources).complete(spec)
    except FloodmarkError:
        raise
    except Exception as error:
        # Code of the user's, run by importing it.
        raise InvalidInput(
            f"{spec.target!r} cannot be imported: {type(error).__name__}: {error}", hint="correct the module first"
        ) from error


def _show(desk: Desk, job: Job, *, is_scheduled: bool) -> None:
    now = datetime.now(UTC)
    # A job that was replaced (JOB_REPLACE_EXISTING_INSTANCE) counts its version on.
    done = "Added" if job.version == 1 else "Replaced"
    desk.out.print(f"[green]{done}[/] [bold]{plain(job.name)}[/]", highlight=False)
    rows: list[tuple[str, Any]] = [
        ("  source", f"{job.source} {job.target}"),
        ("  when", words_of(job.when)),
        ("  stream", job.stream),
        ("  waits for", ", ".join(job.depends_on)),
    ]
    runs = upcoming(job, now, 3) if job.schedule_enabled else []
    zone = zone_of(job.when.timezone)
    rows += [("" if n else "  next runs", due(run, now, zone)) for n, run in enumerate(runs)]
    desk.out.print(facts(rows))
    if is_scheduled and runs:
        desk.note(f"[dim]See how it goes: floodmark show {plain(job.name)}[/]")
    elif is_scheduled:
        desk.note(f"[dim]Run it: floodmark run {plain(job.name)} --wait[/]")
    else:
        desk.note("[dim]Nothing is running yet. Start it: floodmark up[/]")
