"""`add`: create a job. The command of each source follows from its form, see `floodmark.sources.form`."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.main
from msgspec.structs import replace
from typer.core import TyperGroup

from floodmark.errors import Conflict, FloodmarkError, InvalidInput
from floodmark.importers.job_lists.columns import RowColumns
from floodmark.model.accounts import AccountRow
from floodmark.model.job import Job, ScheduleType
from floodmark.model.job_fields import POLICY_COLUMNS, spec_from
from floodmark.model.shapes import job_shape
from floodmark.model.spec import JobSpec
from floodmark.operations.declared import AsyncOperations
from floodmark.operations.jobs import JobFilter, columns_to_send
from floodmark.process.entry_points import find_extensions
from floodmark.rules.streams import stream_name
from floodmark.sources.form import FORMS, FoundTarget, JobForm, ParamOption, find_form
from floodmark.sources.validation import Validation
from floodmark.triggers import zone_of
from floodmark.triggers.parsing import words_of

from .add_many import PANEL, AddManyOptions, NewJobs, add_many, base_columns, read_targets, rows_of_found
from .job_options import JobOptions
from .option_groups import expand_options
from .output import facts, plain, print_json
from .parsing import params_of
from .root import CliContext
from .times import due, upcoming

if TYPE_CHECKING:
    from floodmark.app import Floodmark
    from floodmark.settings import Settings

# The name that the help shows for sources without a form.
_OTHER = "KIND"
_ACCOUNT = Annotated[str | None, typer.Option(metavar="NAME", help="Account to read with (default: any).")]
# The source whose targets are imported to check them.
_IMPORTED = "python"
# A param may have the name of an option of all jobs, such as `app`.
_PREFIX = "param_"


class _SourceCommands(TyperGroup):
    """One command per source."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*sorted(find_extensions(FORMS)), _OTHER]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return None if cmd_name.startswith("-") else _build_command(cmd_name)


add = typer.Typer(cls=_SourceCommands, help="Add a job.", no_args_is_help=True, rich_markup_mode="rich")


def _build_command(source: str) -> Any:
    form = find_form(source, plain)

    def command(
        context: typer.Context,
        *,
        targets: list[str] | None,
        job: JobOptions,
        many: AddManyOptions,
        account: str | None = None,
        listed: str | None = None,
        with_extra: bool = False,
        **params: Any,
    ) -> None:
        cli, named = CliContext.of(context), targets or []
        cli.set("FLOODMARK_APP", job.app)
        typed = {name.removeprefix(_PREFIX): value for name, value in params.items() if value not in (None, [])}
        given = _read_files(form, typed)
        if len(named) == 1 and many == AddManyOptions() and listed is None:
            columns = {"source": source, "target": named[0], "params": given, "account": account}
            return _add_job(cli, form, columns, job)
        new = NewJobs(source=source, form=form, base=base_columns(job, given, account), check=_checks(cli, source))
        if listed is None:
            found = read_targets(named, many, RowColumns(form.options))
        else:
            found = rows_of_found(_list_targets(cli, form, listed), many, with_extra=with_extra)
        return add_many(cli, new, found, many, as_json=job.as_json, ask=listed is not None)

    argument = typer.Argument(metavar=form.metavar, help=form.target_help)
    parameters = [
        _parameter("context", typer.Context),
        _parameter("targets", Annotated[list[str] | None, argument], default=None),
        *(_option(option) for option in form.options),
        *([_parameter("account", _ACCOUNT, default=None)] if form.uses_account else []),
        *_listing_options(form),
        _parameter("many", AddManyOptions),
        _parameter("job", JobOptions),
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__doc__ = form.help
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    app.command(source)(expand_options(command))
    return typer.main.get_command(app)


def _read_files(form: JobForm, typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params with the texts of the files that options name."""
    files = {option.param: option for option in form.options if option.is_file}
    return {name: _read_text(files[name], value) if name in files else value for name, value in typed.items()}


def _read_text(option: ParamOption, name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidInput(
            f"{option.flags or option.param}: cannot read {name}: {why}", hint="name a text file that you may read"
        ) from None


def _listing_options(form: JobForm) -> list[inspect.Parameter]:
    listing = form.listing
    if listing is None:
        return []
    value = typer.Option(listing.flags, metavar=listing.metavar, help=listing.help, rich_help_panel=PANEL)
    extra = typer.Option(listing.extra, help=listing.extra_help, rich_help_panel=PANEL)
    return [
        _parameter("listed", Annotated[str | None, value], default=None),
        _parameter("with_extra", Annotated[bool, extra], default=False),
    ]


def _list_targets(cli: CliContext, form: JobForm, value: str) -> Sequence[FoundTarget]:
    listing = form.listing
    assert listing is not None

    async def find(operations: AsyncOperations) -> Sequence[FoundTarget]:
        return await listing.find(operations, value)

    with cli.busy(f"listing {value}"):
        return cli.work(find)


def _checks(cli: CliContext, source: str) -> Callable[[JobSpec], None] | None:
    """Return the check of a source whose code only this process may have; a server checks jobs itself."""
    if source != _IMPORTED or cli.url() is not None:
        return None
    application = cli.application()
    return lambda spec: _check(application, spec)


def _option(option: ParamOption) -> inspect.Parameter:
    info = typer.Option(
        option.flags or f"--{option.param.replace('_', '-')}",
        metavar=option.metavar,
        help=option.help,
        min=option.min,
        show_default=option.default or True,
    )
    return _parameter(f"{_PREFIX}{option.param}", Annotated[option.kind | None, info], default=None)


def _parameter(name: str, annotation: Any, *, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _add_job(cli: CliContext, form: JobForm, columns: Mapping[str, Any], options: JobOptions) -> None:
    """Create the job and show it."""
    settings = cli.local_settings()
    spec = _spec(settings, columns, options)
    if cli.url() is None:
        # A server has collectors of its own and checks the job itself.
        _check(cli.application(), spec)

    async def work(operations: AsyncOperations) -> tuple[Job, bool, str | None]:
        accounts = [row async for row in operations.each_account()] if form.uses_account else []
        wanted = _use_tenant(spec, accounts)
        if form.complete is not None:
            wanted = form.complete(wanted, settings)
            await _refuse_second_job(operations, wanted, form.second_job_needs)
        advice = None if form.find_missing is None else form.find_missing(wanted, settings, accounts)
        missing = {"timeout_seconds", "retry_max", *POLICY_COLUMNS} - options.columns().keys()
        if wanted.when != spec.when:
            missing |= {"schedule_type", "interval_seconds"}
        # The installation or the server has defaults for the columns that were not given.
        job = await operations.add_job(columns_to_send(wanted, missing))
        return job, (await operations.fleet()).leader is not None, advice

    job, is_scheduled, advice = cli.work(work)
    if options.as_json:
        return print_json(job_shape(job))
    _show(cli, job, is_scheduled=is_scheduled)
    if advice is not None:
        cli.note(f"[yellow]{plain(advice)}[/]")
    return None


def _spec(settings: "Settings", columns: Mapping[str, Any], options: JobOptions) -> JobSpec:
    defaults = {"timeout_seconds": settings.scheduler_job_timeout, "retry_max": settings.parser_retry_max}
    params = params_of(options.param or ()) | columns["params"]
    return spec_from(
        {**defaults, **options.columns(), **columns, "params": params},
        when=options.when(),
        policy=settings.default_policy(),
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


def _use_tenant(spec: JobSpec, accounts: Sequence[AccountRow]) -> JobSpec:
    """Return the job with the tenant of its account, unless it has a tenant."""
    tenants = [account.tenant_id for account in accounts if account.name == spec.account]
    return replace(spec, tenant_id=tenants[0]) if tenants and spec.tenant_id is None else spec


async def _refuse_second_job(operations: AsyncOperations, spec: JobSpec, needs: str) -> None:
    """Refuse a second job without a name for the same target."""
    stream = stream_name(spec.stream, spec.source, spec.target)
    async for other in operations.each_job(JobFilter(source=spec.source, text=spec.target)):
        if other.stream == stream and spec.name is None:
            raise Conflict(
                f"{other.name} already collects {spec.target}",
                hint=f"see it with: floodmark show {other.name}; a second job for it needs {needs}",
            )


def _show(cli: CliContext, job: Job, *, is_scheduled: bool) -> None:
    now = datetime.now(UTC)
    # A replaced job (JOB_REPLACE_EXISTING_INSTANCE) has a higher version.
    done = "Added" if job.version == 1 else "Replaced"
    cli.out.print(f"[green]{done}[/] [bold]{plain(job.name)}[/]")
    rows: list[tuple[str, Any]] = [
        ("  source", f"{job.source} {job.target}"),
        ("  when", words_of(job.when)),
        ("  budget", job.budget),
        ("  stream", job.stream),
        ("  waits for", ", ".join(job.depends_on)),
    ]
    runs = upcoming(job, now, 3) if job.schedule_enabled else []
    zone = zone_of(job.when.timezone)
    rows += [("" if n else "  next runs", due(run, now, zone)) for n, run in enumerate(runs)]
    cli.out.print(facts(rows))
    if is_scheduled and (runs or job.when.schedule_type is ScheduleType.ADAPTIVE):
        cli.note(f"[dim]See its state: floodmark show {plain(job.name)}[/]")
    elif is_scheduled:
        cli.note(f"[dim]Run it: floodmark run {plain(job.name)} --wait[/]")
    else:
        cli.note("[dim]No scheduler is running yet. Start it: floodmark up[/]")
