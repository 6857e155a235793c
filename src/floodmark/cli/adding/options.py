"""The options that every job has, whatever it collects."""

from dataclasses import dataclass
from typing import Annotated

import typer

from floodmark.cli.root import AppOption, AsJson
from floodmark.model.job import CatchUp, Overlap, When
from floodmark.triggers.parsing import when_of

_WHEN, _HOW, _WHOSE = "Schedule", "Policy", "Items"


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """What can be said of any job; None is what was not said."""

    name: Annotated[str | None, typer.Option(help="Name of the job (default: made from its target).")] = None
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="Interval, as in 90s, 15m, 1h30m, 2d.", rich_help_panel=_WHEN)
    ] = None
    cron: Annotated[
        str | None,
        typer.Option(metavar="EXPR", help="Cron expression, as in '*/15 8-18 * * MON-FRI'.", rich_help_panel=_WHEN),
    ] = None
    hourly: Annotated[
        str | None, typer.Option(metavar="MM", help="Minute of each hour, as in 15.", rich_help_panel=_WHEN)
    ] = None
    daily: Annotated[
        str | None, typer.Option(metavar="HH:MM", help="Time of each day, as in 02:00.", rich_help_panel=_WHEN)
    ] = None
    weekly: Annotated[
        str | None,
        typer.Option(
            metavar="'DAY HH:MM'", help="Day and time of each week, as in 'monday 02:00'.", rich_help_panel=_WHEN
        ),
    ] = None
    monthly: Annotated[
        str | None,
        typer.Option(metavar="'D HH:MM'", help="Day and time of each month, as in '1 02:00'.", rich_help_panel=_WHEN),
    ] = None
    once: Annotated[bool, typer.Option("--once", help="Run once, now.", rich_help_panel=_WHEN)] = False
    tz: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="Time zone, as in Europe/Berlin (default: UTC).", rich_help_panel=_WHEN),
    ] = None
    jitter: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Delay each run by a random time up to this.", rich_help_panel=_WHEN),
    ] = None
    disabled: Annotated[
        bool, typer.Option("--disabled", help="Create it with its schedule disabled.", rich_help_panel=_WHEN)
    ] = False
    priority: Annotated[str | None, typer.Option(help="high, normal or low (normal).", rich_help_panel=_HOW)] = None
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="Time-out of a run.", rich_help_panel=_HOW)] = None
    retries: Annotated[
        int | None, typer.Option(metavar="N", help="Number of retries of a failed run.", rich_help_panel=_HOW)
    ] = None
    overlap: Annotated[
        Overlap | None, typer.Option(help="What to do if the last run is unfinished.", rich_help_panel=_HOW)
    ] = None
    catch_up: Annotated[CatchUp | None, typer.Option(help="Which missed runs to run.", rich_help_panel=_HOW)] = None
    depends_on: Annotated[
        list[str] | None,
        typer.Option(metavar="JOB", help="Wait until this job has succeeded; can be repeated.", rich_help_panel=_HOW),
    ] = None
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Parameter of the source; can be repeated.", rich_help_panel=_HOW),
    ] = None
    limit_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Key of a rate limit that it shares with other jobs.", rich_help_panel=_HOW),
    ] = None
    stream: Annotated[
        str | None, typer.Option(help="Stream of its items (default: KIND:TARGET).", rich_help_panel=_WHOSE)
    ] = None
    tag: Annotated[list[str] | None, typer.Option(help="Tag; can be repeated.", rich_help_panel=_WHOSE)] = None
    tenant: Annotated[str | None, typer.Option(help="Tenant that owns the items.", rich_help_panel=_WHOSE)] = None
    user: Annotated[str | None, typer.Option(help="User who owns the items.", rich_help_panel=_WHOSE)] = None
    app: AppOption = None
    as_json: AsJson = False

    @property
    def says_when(self) -> bool:
        """Whether a schedule was named."""
        words = (self.every, self.cron, self.hourly, self.daily, self.weekly, self.monthly)
        return self.once or any(word is not None for word in words)

    def when(self, timezone: str = "UTC") -> When:
        """The schedule that was named, on demand if none was; `timezone` is for when no zone was named."""
        return when_of(
            every=self.every,
            cron=self.cron,
            hourly=self.hourly,
            daily=self.daily,
            weekly=self.weekly,
            monthly=self.monthly,
            once=self.once,
            timezone=self.tz or timezone,
        )
