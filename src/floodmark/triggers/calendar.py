"""Hourly, daily, weekly and monthly schedules: `frequency` and `time_config`.

| frequency | keys of `time_config` with their defaults |
|---|---|
| hourly | `minute` 0 |
| daily | `hour` 0, `minute` 0 |
| weekly | `day` "monday", `hour` 0, `minute` 0 |
| monthly | `day` 1, `hour` 0, `minute` 0; in a shorter month, its last day |

A weekday is its English name, in full or the first three letters. Numbers are refused: 0 is Sunday to cron
and Monday to Python.
"""

from calendar import monthrange
from collections.abc import Callable, Mapping
from datetime import date, datetime
from functools import partial
from typing import Any

from floodmark.errors import InvalidInput
from floodmark.model.job import Frequency, When

from .port import require_column
from .wall import WallClock
from .zones import zone_of

_KEYS = {
    Frequency.HOURLY: ("minute",),
    Frequency.DAILY: ("hour", "minute"),
    Frequency.WEEKLY: ("day", "hour", "minute"),
    Frequency.MONTHLY: ("day", "hour", "minute"),
}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def calendar(frequency: Frequency, time_config: Mapping[str, Any] | None, timezone: str) -> WallClock:
    """Return the trigger for one time per hour, day, week or month in `timezone`."""
    config = {} if time_config is None else time_config
    _check_keys(frequency, config)
    zone = zone_of(timezone)
    minute = _number(config, "minute", 0, 59)
    if frequency is Frequency.HOURLY:
        every_hour = tuple(range(minute, 24 * 60, 60))
        return WallClock(zone=zone, minutes=every_hour, days=_is_any_day, repeats=True)
    hour = _number(config, "hour", 0, 23)
    return WallClock(zone=zone, minutes=(hour * 60 + minute,), days=_days(frequency, config))


def calendar_trigger(when: When, _: datetime) -> WallClock:
    """Return a trigger that fires once per hour, day, week or month (`frequency`, `time_config`)."""
    frequency = require_column(when.frequency, "frequency", example=" or ".join(Frequency))
    return calendar(frequency, when.time_config, when.timezone)


def _check_keys(frequency: Frequency, config: Mapping[str, Any]) -> None:
    allowed = _KEYS[frequency]
    hint = f"{frequency} takes {', '.join(allowed)}"
    if not isinstance(config, Mapping):
        raise InvalidInput(f"time_config is {_shorten(config)}, not an object", hint=hint)
    for key in config:
        if key not in allowed:
            raise InvalidInput(f"time_config for {frequency} has no key {_shorten(key)}", hint=hint)


def _number(config: Mapping[str, Any], key: str, lowest: int, highest: int) -> int:
    value = config.get(key, lowest)
    # True is an int in Python, but not to the person who wrote it.
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        hint = f"{key} is a whole number from {lowest} to {highest}"
        raise InvalidInput(f"time_config: {key} is {_shorten(value)}", hint=hint)
    return value


def _weekday(config: Mapping[str, Any]) -> int:
    value = config.get("day", _WEEKDAYS[0])
    for number, name in enumerate(_WEEKDAYS):
        if str(value).strip().lower() in (name, name[:3]):
            return number
    raise InvalidInput(f"time_config: day is {_shorten(value)}", hint=f"day is one of {', '.join(_WEEKDAYS)}")


def _shorten(value: object) -> str:
    return repr(value)[:60]


def _days(frequency: Frequency, config: Mapping[str, Any]) -> Callable[[date], bool]:
    match frequency:
        case Frequency.WEEKLY:
            return partial(_is_weekday, _weekday(config))
        case Frequency.MONTHLY:
            return partial(_is_day_of_month, _number(config, "day", 1, 31))
        case _:
            return _is_any_day


def _is_any_day(_: date) -> bool:
    return True


def _is_weekday(weekday: int, day: date) -> bool:
    return day.weekday() == weekday


def _is_day_of_month(wanted: int, day: date) -> bool:
    return day.day == min(wanted, monthrange(day.year, day.month)[1])
