"""The part of a form that says when a job runs: as people choose it, and as the columns of a job. Pure."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from floodmark.errors import FloodmarkError
from floodmark.model.durations import parse_every
from floodmark.model.job import Frequency, ScheduleType, When
from floodmark.triggers import instants, trigger_of, zone_of
from floodmark.triggers.parsing import when_of, words_of
from floodmark.triggers.upcoming import runs_shape

from .field_texts import duration_text
from .refusals import PageRefusals

WAYS = (
    ("every", "Every"),
    ("hourly", "Hourly"),
    ("daily", "Daily"),
    ("weekly", "Weekly"),
    ("monthly", "Monthly"),
    ("cron", "Cron"),
    ("adaptive", "Adaptive"),
    ("once", "Once"),
    ("demand", "On demand"),
)
# A schedule that the form cannot show, such as the trigger of a package: it stays as it is.
KEPT = "kept"
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_RUNS = 5
_MOMENT = timedelta(microseconds=1)


class WhenForm(Struct, frozen=True, kw_only=True):
    """What was typed about the schedule. `way` is the chosen kind; the texts of the others are kept too."""

    way: str = "every"
    every: str = "15m"
    hourly: str = "0"
    daily: str = "06:00"
    weekly_day: str = "monday"
    weekly: str = "06:00"
    monthly_day: str = "1"
    monthly: str = "06:00"
    cron: str = "*/15 8-18 * * MON-FRI"
    timezone: str = "UTC"

    @classmethod
    def read(cls, fields: Mapping[str, list[str]], **defaults: str) -> "WhenForm":
        """Return what a form contains; missing fields get the defaults."""
        given = {name: fields[name][0].strip() for name in cls.__struct_fields__ if fields.get(name)}
        return cls(**{**defaults, **given})

    @classmethod
    def of(cls, when: When) -> "WhenForm":
        """Return the form of a schedule."""
        config, zone = dict(when.time_config or {}), when.timezone
        clock = f"{_two(config.get('hour', 0))}:{_two(config.get('minute', 0))}"
        match when.schedule_type:
            case ScheduleType.CRON:
                return cls(way="cron", cron=when.cron_expression or "", timezone=zone)
            case ScheduleType.INTERVAL:
                every = duration_text(timedelta(seconds=when.interval_seconds or 0))
                # A fraction of a second cannot be typed.
                way = "every" if (when.interval_seconds or 0.5).is_integer() else KEPT
                return cls(way=way, every=every, timezone=zone)
            case ScheduleType.CALENDAR:
                return cls._of_calendar(when, config, clock)
        ways = {ScheduleType.IMMEDIATE: "once", ScheduleType.ADAPTIVE: "adaptive", ScheduleType.EVENT: "demand"}
        return cls(way=ways[when.schedule_type], timezone=zone)

    @classmethod
    def _of_calendar(cls, when: When, config: Mapping[str, Any], clock: str) -> "WhenForm":
        zone, day = when.timezone, str(config.get("day", ""))
        match when.frequency:
            case Frequency.HOURLY:
                return cls(way="hourly", hourly=str(config.get("minute", 0)), timezone=zone)
            case Frequency.DAILY:
                return cls(way="daily", daily=clock, timezone=zone)
            case Frequency.WEEKLY:
                full = next((one for one in DAYS if one[:3] == day[:3].lower()), "monday")
                return cls(way="weekly", weekly=clock, weekly_day=full, timezone=zone)
            case Frequency.MONTHLY:
                return cls(way="monthly", monthly=clock, monthly_day=day or "1", timezone=zone)
        return cls(way=KEPT, timezone=zone)

    @property
    def field(self) -> str:
        """The field that an error of the schedule belongs to."""
        return self.way if self.way in self.__struct_fields__ else "way"

    def when(self) -> When:
        """Return the schedule; raise `InvalidInput` if it makes no sense."""
        weekly, monthly = f"{self.weekly_day} {self.weekly}", f"{self.monthly_day} {self.monthly}"
        texts = {**asdict(self), "weekly": weekly, "monthly": monthly}
        if self.way in ("once", "adaptive"):
            return when_of(**{self.way: True}, timezone=self.timezone)  # type: ignore[arg-type] # a flag
        if self.way not in dict(WAYS) or self.way == "demand":
            return when_of(timezone=self.timezone)
        if self.way == "every":
            return when_of(every=parse_every(self.every), timezone=self.timezone)
        return when_of(**{self.way: texts[self.way]}, timezone=self.timezone)


class PlannedRuns(Struct, frozen=True, kw_only=True):
    """A schedule with its next runs."""

    when: When
    words: str
    runs: list[dict[str, Any]]


def plan_runs(
    form: WhenForm, now: datetime, refusals: PageRefusals, *, anchor: datetime | None = None
) -> PlannedRuns | None:
    """Return the schedule and its next runs; None if it was refused.

    `anchor` is the time at which a job was created; without it, it would be created now, and may run at once.
    """
    try:
        zone_of(form.timezone)
    except FloodmarkError as error:
        refusals.add("timezone", error)
        return None
    try:
        when = form.when()
        since = now - _MOMENT if anchor is None else now
        found = islice(instants(trigger_of(when, anchor=anchor or now), since), _RUNS)
        runs = runs_shape(list(found), now, when.timezone)
    except FloodmarkError as error:
        refusals.add(form.field, error)
        return None
    return PlannedRuns(when=when, words=words_of(when), runs=runs)


def columns_of_when(when: When) -> dict[str, Any]:
    """Return all columns of a schedule, so that none of another kind of schedule is left."""
    return asdict(when)


def _two(value: Any) -> str:
    return str(value).zfill(2)
