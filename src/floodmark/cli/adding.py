"""`add`: from words on a command line to a job that is known to work."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.errors import FloodmarkError, InvalidInput
from floodmark.job import CatchUp, Job, Overlap
from floodmark.shapes import job_shape
from floodmark.signals.port import Topic
from floodmark.spec import JobSpec
from floodmark.triggers import zone_of
from floodmark.when import priority_of, when_of, words_of

from .parsing import duration, params_of
from .root import AppOption, AsJson, Desk
from .showing import facts, plain, print_json
from .times import due, upcoming

if TYPE_CHECKING:
    from floodmark.app import Floodmark

    from .session import Session

_WHEN, _HOW, _WHOSE = "When (none: on demand)", "How", "Whose"


def add(
    context: typer.Context,
    *,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The source: python, or one that a package brings.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="What to collect; for python: package.module:name.")],
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

    floodmark add python myapp.feeds:news --every 15m --key id --watermark id
    """
    desk = Desk.of(context)
    desk.set("FLOODMARK_APP", app)
    when = when_of(
        every=every, cron=cron, hourly=hourly, daily=daily, weekly=weekly, monthly=monthly, once=once, timezone=tz
    )
    params = params_of(param or ())
    params |= {field: value for field, value in (("key", key), ("watermark", watermark)) if value is not None}
    application = desk.application()
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
        depends_on=tuple(depends_on or ()),
        schedule_enabled=not disabled,
        tenant_id=tenant,
        user_id=user,
    )
    _check(application, spec)

    async def work(session: "Session") -> tuple[Job, bool]:
        job = await session.jobs.add(spec)
        await session.wake(Topic.JOBS)
        return job, await session.leader() is not None

    job, is_scheduled = desk.work(work)
    print_json(job_shape(job)) if as_json else _show(desk, job, is_scheduled=is_scheduled)


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
