"""When a job is due. `trigger_of` turns the when-columns of a job into its trigger."""

from datetime import UTC, datetime
from typing import TypeVar

from floodmark.errors import InvalidInput
from floodmark.model.job import Frequency, ScheduleType, When

from .calendar import calendar
from .cron import cron
from .event import Event
from .interval import interval
from .once import Once
from .port import Trigger, between, instants
from .zones import zone_of

__all__ = ["Trigger", "between", "instants", "trigger_of", "zone_of"]

T = TypeVar("T")


def trigger_of(when: When, *, anchor: datetime) -> Trigger:
    """The trigger these columns describe; columns of other schedule types are ignored.

    `anchor` is where the grid of an interval begins and when an immediate job fires. Raises InvalidInput,
    with a hint, for columns that are missing or make no sense.
    """
    # Not every type reads the clock on the wall, but the times of every job are shown in its zone.
    zone_of(when.timezone)
    match when.schedule_type:
        case ScheduleType.CRON:
            expression = _given(when.cron_expression, "cron_expression", example="'*/15 * * * *'")
            return cron(expression, when.timezone)
        case ScheduleType.INTERVAL:
            return interval(_given(when.interval_seconds, "interval_seconds", example="900"), anchor)
        case ScheduleType.CALENDAR:
            frequency = _given(when.frequency, "frequency", example=" or ".join(Frequency))
            return calendar(frequency, when.time_config, when.timezone)
        case ScheduleType.IMMEDIATE:
            return Once(anchor.astimezone(UTC))
        case ScheduleType.EVENT:
            return Event()


def _given(value: T | None, column: str, *, example: str) -> T:
    if value is None:
        hint = f"set {column}, for example {example}, or choose another schedule_type"
        raise InvalidInput(f"{column} is missing", hint=hint)
    return value
