"""Parse schedules: `every="15m"`, `cron="0 6 * * *"`, `daily="02:00"`, `weekly="monday 02:00"`, ..."""

import re
from datetime import timedelta
from typing import Any

from floodmark.errors import InvalidInput
from floodmark.model.durations import format_duration, parse_every
from floodmark.model.job import Frequency, Priority, ScheduleType, When

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})")


def when_of(
    *,
    every: str | timedelta | None = None,
    cron: str | None = None,
    hourly: str | None = None,
    daily: str | None = None,
    weekly: str | None = None,
    monthly: str | None = None,
    once: bool = False,
    adaptive: bool = False,
    timezone: str = "UTC",
) -> When:
    """Return the schedule columns of one of these arguments; of none, those of an event job."""
    said: dict[str, Any] = {
        "every": every,
        "cron": cron,
        "hourly": hourly,
        "daily": daily,
        "weekly": weekly,
        "monthly": monthly,
        "once": once or None,
        "adaptive": adaptive or None,
    }
    given = {word: value for word, value in said.items() if value is not None}
    if len(given) > 1:
        raise InvalidInput(f"{' and '.join(given)} contradict each other", hint="Say only one of them")
    if not given:
        return When(schedule_type=ScheduleType.EVENT, timezone=timezone)
    [(word, value)] = given.items()
    if word == "cron":
        return When(schedule_type=ScheduleType.CRON, cron_expression=value, timezone=timezone)
    if word == "every":
        seconds = (value if isinstance(value, timedelta) else parse_every(value)).total_seconds()
        return When(schedule_type=ScheduleType.INTERVAL, interval_seconds=seconds, timezone=timezone)
    if word == "once":
        return When(schedule_type=ScheduleType.IMMEDIATE, timezone=timezone)
    if word == "adaptive":
        return When(schedule_type=ScheduleType.ADAPTIVE, timezone=timezone)
    return When(
        schedule_type=ScheduleType.CALENDAR,
        frequency=Frequency(word),
        time_config=_time_config(word, value),
        timezone=timezone,
    )


def _time_config(word: str, text: str) -> dict[str, Any]:
    """Parse `15` (hourly), `02:00` (daily), `monday 02:00` (weekly) or `1 02:00` (monthly)."""
    if word == "hourly":
        minute = text.removeprefix(":")
        if not minute.isdecimal():
            raise InvalidInput(f"hourly {text!r} is not a minute", hint="for example 15")
        return {"minute": int(minute)}
    *before, clock = text.split() or [""]
    found = _CLOCK.fullmatch(clock)
    example = {"daily": "02:00", "weekly": "'monday 02:00'", "monthly": "'1 02:00'"}[word]
    if found is None or len(before) != (word != "daily"):
        raise InvalidInput(f"{word} {text!r} is not a time", hint=f"for example {example}")
    config: dict[str, Any] = {"hour": int(found[1]), "minute": int(found[2])}
    if before:
        config["day"] = int(before[0]) if word == "monthly" and before[0].isdecimal() else before[0].lower()
    return config


def words_of(when: When) -> str:
    """Return the schedule in words: "every 15 min", "daily 02:00 Europe/Berlin", "on demand"."""
    match when.schedule_type:
        case ScheduleType.CRON:
            return f"{when.cron_expression} {when.timezone}"
        case ScheduleType.INTERVAL:
            return f"every {format_duration(timedelta(seconds=when.interval_seconds or 0))}"
        case ScheduleType.CALENDAR:
            return _calendar_words(when)
        case ScheduleType.IMMEDIATE:
            return "once"
        case ScheduleType.EVENT:
            return "on demand"
        case ScheduleType.ADAPTIVE:
            return "adaptive"


def _calendar_words(when: When) -> str:
    # With the defaults of `triggers.calendar`; a row edited by hand may hold any value.
    config = when.time_config or {}
    if when.frequency is None and "trigger" in config:
        return f"{config['trigger']} {when.timezone}"
    minute = str(config.get("minute", 0)).zfill(2)
    clock = f"{str(config.get('hour', 0)).zfill(2)}:{minute}"
    match when.frequency:
        case Frequency.HOURLY:
            return f"hourly :{minute} {when.timezone}"
        case Frequency.WEEKLY:
            return f"weekly {config.get('day', 'monday')} {clock} {when.timezone}"
        case Frequency.MONTHLY:
            return f"monthly {config.get('day', 1)} {clock} {when.timezone}"
        case _:
            return f"{when.frequency} {clock} {when.timezone}"


def priority_of(value: Priority | str | int) -> Priority:
    """Return the priority of `high`, `normal`, `low`, or 1, 2, 3."""
    names = {priority.name.lower(): priority for priority in Priority}
    text = str(int(value)) if isinstance(value, int) else value.lower()
    found = names.get(text) or next((p for p in Priority if str(p.value) == text), None)
    if found is None:
        raise InvalidInput(f"{value!r} is not a priority", hint="use high, normal or low (or 1, 2, 3)")
    return found
