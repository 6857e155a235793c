"""The options that every job has, whatever it collects."""

from dataclasses import dataclass
from typing import Annotated

import typer

from floodmark.cli.root import AppOption, AsJson
from floodmark.model.job import CatchUp, Overlap, When
from floodmark.triggers.parsing import when_of

_WHEN, _HOW, _WHOSE = "When", "How", "Whose"


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """What can be said of any job; None is what was not said."""

    name: Annotated[str | None, typer.Option(help="What to call it (default: made from what it collects).")] = None
    every: Annotated[str | None, typer.Option(metavar="TIME", help="90s, 15m, 1h30m, 2d.", rich_help_panel=_WHEN)] = (
        None
    )
    cron: Annotated[
        str | None, typer.Option(metavar="EXPR", help="'*/15 8-18 * * MON-FRI'.", rich_help_panel=_WHEN)
    ] = None
    hourly: Annotated[str | None, typer.Option(metavar="MM", help="15", rich_help_panel=_WHEN)] = None
    daily: Annotated[str | None, typer.Option(metavar="HH:MM", help="02:00", rich_help_panel=_WHEN)] = None
    weekly: Annotated[str | None, typer.Option(metavar="'DAY HH:MM'", help="'monday 02:00'", rich_help_panel=_WHEN)] = (
        None
    )
    monthly: Annotated[str | None, typer.Option(metavar="'D HH:MM'", help="'1 02:00'", rich_help_panel=_WHEN)] = None
    once: Annotated[bool, typer.Option("--once", help="Now, and never again.", rich_help_panel=_WHEN)] = False
    tz: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="Europe/Berlin (UTC unless you say so).", rich_help_panel=_WHEN),
    ] = None
    jitter: Annotated[
        str | None, typer.Option(metavar="TIME", help="Spread each run over this time.", rich_help_panel=_WHEN)
    ] = None
    disabled: Annotated[bool, typer.Option("--disabled", help="Do not schedule it yet.", rich_help_panel=_WHEN)] = False
    priority: Annotated[str | None, typer.Option(help="high, normal or low (normal).", rich_help_panel=_HOW)] = None
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long a run may take.", rich_help_panel=_HOW)
    ] = None
    retries: Annotated[
        int | None, typer.Option(metavar="N", help="How often a failed run is tried again.", rich_help_panel=_HOW)
    ] = None
    overlap: Annotated[
        Overlap | None, typer.Option(help="What if the last run is unfinished.", rich_help_panel=_HOW)
    ] = None
    catch_up: Annotated[CatchUp | None, typer.Option(help="Which missed runs still run.", rich_help_panel=_HOW)] = None
    depends_on: Annotated[
        list[str] | None,
        typer.Option(metavar="JOB", help="Wait until this job has succeeded; can be repeated.", rich_help_panel=_HOW),
    ] = None
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Given to the source; can be repeated.", rich_help_panel=_HOW),
    ] = None
    limit_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="The limit it shares with others.", rich_help_panel=_HOW)
    ] = None
    stream: Annotated[
        str | None, typer.Option(help="Where its items go (default: KIND:TARGET).", rich_help_panel=_WHOSE)
    ] = None
    tag: Annotated[list[str] | None, typer.Option(help="Can be repeated.", rich_help_panel=_WHOSE)] = None
    tenant: Annotated[str | None, typer.Option(help="Whose items these are.", rich_help_panel=_WHOSE)] = None
    user: Annotated[str | None, typer.Option(help="Whose items these are.", rich_help_panel=_WHOSE)] = None
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
