"""The options of all jobs. Most of them follow from the field table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from inspect import Parameter
from typing import Annotated, Any

import typer

from floodmark.cli.option_groups import Options
from floodmark.cli.root import AppOption, AsJson
from floodmark.model.durations import parse_every
from floodmark.model.job import Priority, When
from floodmark.model.job_fields import SETTABLE, JobField
from floodmark.triggers.parsing import priority_of, when_of

_SCHEDULE, _POLICY = "Schedule", "Policy"
# Parsers of types that the command line does not know.
_PARSERS: Mapping[Any, Callable[[str], Any]] = {timedelta: parse_every, Priority: priority_of}

OPTION_FIELDS = tuple(field for field in SETTABLE if field.declared.option is not None)


def _parameter(field: JobField) -> Parameter:
    """Return the option that sets a field; None: not given."""
    option = field.declared.option
    assert option is not None
    kind: Any = str if field.kind in _PARSERS else list[str] if field.kind is tuple else field.kind
    words = option.help or field.declared.description
    info = typer.Option(
        option.name,
        metavar=option.metavar,
        help=f"{words.removesuffix('.')}; can be repeated." if field.kind is tuple else words,
        rich_help_panel=option.panel,
    )
    return Parameter(field.attribute, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, info])


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """The options of any job; None: not given."""

    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="Interval, as in 90s, 15m, 1h30m, 2d.", rich_help_panel=_SCHEDULE)
    ] = None
    cron: Annotated[
        str | None,
        typer.Option(metavar="EXPR", help="Cron expression, as in '*/15 8-18 * * MON-FRI'.", rich_help_panel=_SCHEDULE),
    ] = None
    hourly: Annotated[
        str | None, typer.Option(metavar="MM", help="Minute of each hour, as in 15.", rich_help_panel=_SCHEDULE)
    ] = None
    daily: Annotated[
        str | None, typer.Option(metavar="HH:MM", help="Time of each day, as in 02:00.", rich_help_panel=_SCHEDULE)
    ] = None
    weekly: Annotated[
        str | None,
        typer.Option(
            metavar="'DAY HH:MM'", help="Day and time of each week, as in 'monday 02:00'.", rich_help_panel=_SCHEDULE
        ),
    ] = None
    monthly: Annotated[
        str | None,
        typer.Option(
            metavar="'D HH:MM'", help="Day and time of each month, as in '1 02:00'.", rich_help_panel=_SCHEDULE
        ),
    ] = None
    once: Annotated[bool, typer.Option("--once", help="Run once, now.", rich_help_panel=_SCHEDULE)] = False
    adaptive: Annotated[
        bool,
        typer.Option(
            "--adaptive", help="Run when enough new items are expected, within its budget.", rich_help_panel=_SCHEDULE
        ),
    ] = False
    tz: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="Time zone, as in Europe/Berlin (default: UTC).", rich_help_panel=_SCHEDULE),
    ] = None
    disabled: Annotated[
        bool, typer.Option("--disabled", help="Create it with its schedule disabled.", rich_help_panel=_SCHEDULE)
    ] = False
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Parameter of the source; can be repeated.", rich_help_panel=_POLICY),
    ] = None
    fields: Annotated[Mapping[str, Any], Options({field.name: _parameter(field) for field in OPTION_FIELDS})]
    app: AppOption = None
    as_json: AsJson = False

    def columns(self) -> dict[str, Any]:
        """Return the given fields by column."""
        given: dict[str, Any] = {"schedule_enabled": False} if self.disabled else {}
        for field in OPTION_FIELDS:
            value = self.fields[field.attribute]
            if value is not None:
                given[field.name] = _PARSERS[field.kind](value) if field.kind in _PARSERS else value
        return given

    @property
    def has_schedule(self) -> bool:
        """Whether a schedule is given."""
        words = (self.every, self.cron, self.hourly, self.daily, self.weekly, self.monthly)
        return self.once or self.adaptive or any(word is not None for word in words)

    def when(self, timezone: str = "UTC") -> When:
        """Return the schedule (default: on demand); `timezone` is used if no zone is given."""
        return when_of(
            every=self.every,
            cron=self.cron,
            hourly=self.hourly,
            daily=self.daily,
            weekly=self.weekly,
            monthly=self.monthly,
            once=self.once,
            adaptive=self.adaptive,
            timezone=self.tz or timezone,
        )
