"""`add`: from words on a command line to a job that is known to work."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from floodmark.errors import Conflict, FloodmarkError, InvalidInput
from floodmark.job import CatchUp, Job, Overlap
from floodmark.shapes import job_shape
from floodmark.spec import JobSpec
from floodmark.triggers import zone_of
from floodmark.when import priority_of, when_of, words_of

from .parsing import duration, params_of
from .root import AppOption, AsJson, Desk
from .showing import facts, plain, print_json
from .times import due, upcoming

if TYPE_CHECKING:
    from floodmark.app import Floodmark
    from floodmark.office.port import Office
    from floodmark.settings import Settings

_WHEN, _HOW, _WHOSE = "When (none: on demand; telegram: every 5 min)", "How", "Whose"
_TELEGRAM = "Telegram"


def add(
    context: typer.Context,
    *,
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="The source: telegram, python, or one that a package brings.")
    ],
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="What to collect: @channel or a t.me link; package.module:name."),
    ],
    name: Annotated[str | None, typer.Option(help="What to call it (default: made from KIND and TARGET).")] = None,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="90s, 15m, 1h30m, 2d.", rich_help_panel=_WHEN)
    ] = None,
    cron: Annotated[
        str | None, typer.Option(metavar="EXPR", help="'*/15 8-18 * * MON-FRI'.", rich_help_panel=_WHEN)
    ] = None,
    hourly: Annotated[str | None, typer.Option(metavar="MM", help="15", rich_help_panel=_WHEN)] = None,
    daily: Annotated[str | None, typer.Option(metavar="HH:MM", help="02:00", rich_help_panel=_WHEN)] = None,
    weekly: Annotated[
        str | None, typer.Option(metavar="'DAY HH:MM'", help="'monday 02:00'", rich_help_panel=_WHEN)
    ] = None,
    monthly: Annotated[str | None, typer.Option(metavar="'D HH:MM'", help="'1 02:00'", rich_help_panel=_WHEN)] = None,
    once: Annotated[bool, typer.Option("--once", help="Now, and never again.", rich_help_panel=_WHEN)] = False,
    tz: Annotated[str, typer.Option(metavar="ZONE", help="Europe/Berlin", rich_help_panel=_WHEN)] = "UTC",
    jitter: Annotated[
        str | None, typer.Option(metavar="TIME", help="Spread each run over this time.", rich_help_panel=_WHEN)
    ] = None,
    disabled: Annotated[
        bool, typer.Option("--disabled", help="Do not schedule it yet.", rich_help_panel=_WHEN)
    ] = False,
    priority: Annotated[str, typer.Option(help="high, normal or low.", rich_help_panel=_HOW)] = "normal",
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long a run may take.", rich_help_panel=_HOW)
    ] = None,
    retries: Annotated[
        int | None, typer.Option(metavar="N", help="How often a failed run is tried again.", rich_help_panel=_HOW)
    ] = None,
    overlap: Annotated[
        Overlap | None, typer.Option(help="What if the last run is unfinished.", rich_help_panel=_HOW)
    ] = None,
    catch_up: Annotated[CatchUp | None, typer.Option(help="Which missed runs still run.", rich_help_panel=_HOW)] = None,
    depends_on: Annotated[
        list[str] | None,
        typer.Option(metavar="JOB", help="Wait until this job has succeeded; can be repeated.", rich_help_panel=_HOW),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Given to the source; can be repeated.", rich_help_panel=_HOW),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="FIELD", help="What identifies an item (python).", rich_help_panel=_HOW)
    ] = None,
    watermark: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="What becomes `since` of the next run (python).", rich_help_panel=_HOW),
    ] = None,
    history: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="How many of the newest posts to begin with, or all (1000).", rich_help_panel=_TELEGRAM
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="DATE", help="Begin with the posts of this day.", rich_help_panel=_TELEGRAM)
    ] = None,
    revisit: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Read posts younger than this again, for edits and deletions.",
            rich_help_panel=_TELEGRAM,
        ),
    ] = None,
    account: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The account to read with (default: any).", rich_help_panel=_TELEGRAM),
    ] = None,
    limit_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="The limit it shares with others.", rich_help_panel=_HOW)
    ] = None,
    stream: Annotated[
        str | None, typer.Option(help="Where its items go (default: KIND:TARGET).", rich_help_panel=_WHOSE)
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Can be repeated.", rich_help_panel=_WHOSE)] = None,
    tenant: Annotated[str | None, typer.Option(help="Whose items these are.", rich_help_panel=_WHOSE)] = None,
    user: Annotated[str | None, typer.Option(help="Whose items these are.", rich_help_panel=_WHOSE)] = None,
    app: AppOption = None,
    as_json: AsJson = False,
) -> None:
    """Add a job.

    floodmark add telegram @channel --every 5m

    floodmark add python myapp.feeds:news --every 15m --key id --watermark id
    """
    desk = Desk.of(context)
    desk.set("FLOODMARK_APP", app)
    when = when_of(
        every=every, cron=cron, hourly=hourly, daily=daily, weekly=weekly, monthly=monthly, once=once, timezone=tz
    )
    params = params_of(param or ())
    given = {"key": key, "watermark": watermark, "history": history, "since": since, "revisit": revisit}
    params |= {field: value for field, value in given.items() if value is not None}
    _refuse_strangers(kind, {"history": history, "since": since, "revisit": revisit, "account": account})
    application = desk.maker()
    settings = application.settings
    spec = JobSpec(
        source=kind,
        target=target,
        when=when,
        name=name,
        stream=stream,
        policy=application.policy(overlap=overlap, catch_up=catch_up, jitter=duration(jitter) or timedelta()),
        params=params,
        tags=tuple(tag or ()),
        priority=priority_of(priority),
        timeout=duration(timeout) or settings.scheduler_job_timeout,
        retry_max=settings.parser_retry_max if retries is None else retries,
        limit_key=limit_key,
        account=account,
        depends_on=tuple(depends_on or ()),
        schedule_enabled=not disabled,
        tenant_id=tenant,
        user_id=user,
    )
    if desk.url() is None:
        # A server has collectors of its own, and checks what it is asked for.
        _check(application, spec)

    async def work(office: "Office") -> tuple[Job, bool, str | None]:
        wanted, advice = spec, None
        if kind == "telegram":
            wanted, advice = await _channel(office, settings, spec)
        said = {"timeout_seconds": timeout, "retry_max": retries, "overlap": overlap, "catch_up": catch_up}
        job = await _added(office, wanted, {**said, "schedule_type": None if spec.when != wanted.when else when})
        return job, await office.leader() is not None, advice

    job, is_scheduled, advice = desk.work(work)
    if as_json:
        return print_json(job_shape(job))
    _show(desk, job, is_scheduled=is_scheduled)
    if advice is not None:
        desk.note(f"[yellow]{plain(advice)}[/]")
    return None


async def _added(office: "Office", spec: JobSpec, said: dict[str, Any]) -> Job:
    """The job that was made. A server has settings of its own for what was not said."""
    from floodmark.office.remote import RemoteOffice  # noqa: PLC0415 - loaded with the office

    if not isinstance(office, RemoteOffice):
        return await office.add_job(spec)
    unsaid = {"max_instances", "coalesce", "misfire_grace_seconds"} | {name for name, v in said.items() if v is None}
    if "schedule_type" in unsaid:
        unsaid.add("interval_seconds")
    return await office.add_job(spec, unsaid=unsaid)


def _refuse_strangers(kind: str, given: dict[str, str | None]) -> None:
    """Options of one source mean nothing to another: better told than ignored."""
    said = [name for name, value in given.items() if value is not None]
    if said and kind != "telegram":
        raise InvalidInput(f"--{said[0]} is for telegram, not for {kind[:60]}", hint="leave it out")


async def _channel(office: "Office", settings: "Settings", spec: JobSpec) -> tuple[JobSpec, str | None]:
    """A job for a channel in its one form, and what is still missing before it can run."""
    # Opened for this source alone: the others need none of it.
    from floodmark.office.port import JobFilter  # noqa: PLC0415
    from floodmark.sources.telegram.targets import completed  # noqa: PLC0415

    rows = {row.name: row for row in await office.accounts(limit=500)}
    named = rows.get(spec.account or "")
    if named is not None and spec.tenant_id is None:
        spec = replace(spec, tenant_id=named.tenant_id)
    spec = completed(spec, every=timedelta(seconds=settings.parser_scheduler_interval_sec))
    stream = spec.stream or f"telegram:{spec.target}"
    for other in await office.jobs(JobFilter(source="telegram", text=spec.target), limit=500):
        if other.stream == stream and spec.name is None:
            raise Conflict(
                f"{other.name} collects {spec.target} already",
                hint=f"see it with: floodmark show {other.name}; a second job for it needs a --name",
            )
    return spec, _missing_account(spec.account, named is not None, any(row.state == "active" for row in rows.values()))


def _missing_account(name: str | None, is_known: bool, is_any: bool) -> str | None:
    if name is not None and not is_known:
        return f"There is no account {name} yet. Add it: floodmark accounts add {name} --phone +..."
    if name is None and not is_any:
        return "No Telegram account is set up yet. Add one: floodmark accounts add NAME --phone +..."
    return None


def _check(application: "Floodmark", spec: JobSpec) -> None:
    """Ask the source whether it could collect this, before anything is written down."""
    with ThreadPoolExecutor(1) as threads:
        sources = application.sources(threads)
        source = sources.get(spec.source)
        if source is None:
            kinds = ", ".join(sorted(sources))
            raise InvalidInput(f"there is no source {spec.source[:60]!r}", hint=f"the sources here are: {kinds}")
        try:
            source.check(spec.target, spec.params)
        except FloodmarkError:
            raise
        except Exception as error:
            # Code of the user's, run by importing it.
            raise InvalidInput(
                f"{spec.target!r} cannot be imported: {type(error).__name__}: {error}", hint="correct the module first"
            ) from error


def _show(desk: Desk, job: Job, *, is_scheduled: bool) -> None:
    now = datetime.now(UTC)
    desk.out.print(f"[green]Added[/] [bold]{plain(job.name)}[/]", highlight=False)
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
