"""Cron expressions: five fields, parsed by cronsim, in the zone of the job."""

from datetime import UTC, datetime
from functools import lru_cache

from cronsim import CronSim, CronSimError

from floodmark.errors import InvalidInput
from floodmark.model.job import When

from .port import require_column
from .wall import WallClock
from .zones import zone_of

_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = (
    ("minute", "0-59"),
    ("hour", "0-23"),
    ("day of month", "1-31, L for the last day or LW for the last weekday"),
    ("month", "1-12 or JAN-DEC"),
    (
        "day of week",
        "0-7 or SUN-SAT (0 and 7 are Sunday), 5L for the last Friday, MON#2 for the second Monday",
    ),
)
_LONGEST = 200
_EXAMPLE = "write minute hour day month weekday, like '*/15 8-18 * * MON-FRI', or @hourly, @daily, @weekly"

# A start date for checks in which any date will do.
_SOME_DAY = datetime(2000, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=4096)
def cron(expression: str, timezone: str) -> WallClock:
    """Return the trigger of `expression` in `timezone`. Invalid expressions, and those that never fire, are refused.

    If neither day field begins with a star, either of them may match. If neither the minute nor the hour
    field does, the times are fixed and no clock change skips them; otherwise they repeat (see `wall`).
    """
    zone = zone_of(timezone)
    fields = _fields(expression)
    sim = _read(expression, fields)
    trigger = WallClock(
        zone=zone,
        minutes=tuple(hour * 60 + minute for hour in sorted(sim.hours) for minute in sorted(sim.minutes)),
        days=sim.match_day,
        months=frozenset(sim.months),
        repeats=fields[0].startswith("*") or fields[1].startswith("*"),
    )
    if trigger.after(_SOME_DAY) is None:
        raise _never(expression)
    return trigger


def cron_trigger(when: When, _: datetime) -> WallClock:
    """Return a trigger that fires when `cron_expression` matches the time in the zone of the job."""
    expression = require_column(when.cron_expression, "cron_expression", example="'*/15 * * * *'")
    return cron(expression, when.timezone)


def _fields(expression: str) -> list[str]:
    if len(expression) > _LONGEST:
        raise InvalidInput(
            f"a cron expression of {len(expression)} characters is too long",
            hint=f"use at most {_LONGEST} characters, or split it over several jobs",
        )
    fields = _ALIASES.get(expression.strip().lower(), expression).split()
    if len(fields) == 6:
        raise InvalidInput(
            f"cron expression {expression!r} has 6 fields: seconds are not supported",
            hint=f"drop the first ({' '.join(fields[1:])!r}), or use an interval for several runs a minute",
        )
    if len(fields) != 5:
        message = f"cron expression {expression!r} has {len(fields)} fields instead of 5"
        raise InvalidInput(message, hint=_EXAMPLE)
    return fields


def _read(expression: str, fields: list[str]) -> CronSim:
    try:
        return CronSim(" ".join(fields), _SOME_DAY)
    except CronSimError:
        raise _unreadable(expression, fields) from None


def _unreadable(expression: str, fields: list[str]) -> InvalidInput:
    for position, (value, (name, allowed)) in enumerate(zip(fields, _FIELDS, strict=True)):
        # Each field alone, with stars for the others: a field that fails alone is the wrong one.
        alone = ["*"] * 5
        alone[position] = value
        try:
            CronSim(" ".join(alone), _SOME_DAY)
        except CronSimError:
            message = f"cron expression {expression!r}: bad {name} {value!r}"
            return InvalidInput(message, hint=f"{name} is {allowed}")
    return _never(expression)


def _never(expression: str) -> InvalidInput:
    hint = "its days never come; L is the last day of any month"
    return InvalidInput(f"cron expression {expression!r} never fires", hint=hint)
