"""Jobs from the SQLAlchemy job store of APScheduler 3. Without I/O, and without APScheduler itself.

Each row contains a pickle, and a pickle can call anything it names. So only names on a short list are accepted: times,
and substitutes for the triggers, which only store their arguments. Everything else is refused by name.
"""

import io
import pickle
import pickletools
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import Struct

from floodmark.errors import InvalidInput
from floodmark.model.job import CatchUp, Overlap, Policy, ScheduleType, When
from floodmark.sources.python import ARGS, KWARGS, RESERVED
from floodmark.triggers import trigger_of

# The size of one row. A job has a few hundred bytes; a much larger row is no schedule.
_LARGEST = 1_000_000
_MOST_VALUES, _DEEPEST = 10_000, 50
# The longest grace that a job can have, ten years: for APScheduler's "however late".
_ALWAYS = timedelta(seconds=315_360_000)
_REFUSED_HINT = "only schedules and plain arguments are read; add this job by hand: floodmark add python ..."
_DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")


class ImportedJob(Struct, frozen=True, kw_only=True):
    """A job of another scheduler in Floodmark's terms. `job_id` is its id there, if it has one besides its name.

    `anchor` is the start of an interval, or the time of a job that runs once; None if it does not matter.
    """

    name: str
    target: str
    when: When
    params: Mapping[str, Any]
    job_id: str | None = None
    policy: Policy = Policy()
    is_paused: bool = False
    anchor: datetime | None = None


def read_job(state: bytes, *, next_run: float | None, now: datetime) -> ImportedJob:
    """Read a row: the bytes of its `job_state` and its `next_run_time`.

    `InvalidInput` for a pickle that names anything unknown, and for features that Floodmark does not have.
    """
    try:
        return _read(unpickled(state), next_run, now)
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise InvalidInput(f"the job cannot be read: {error}", hint=_REFUSED_HINT) from error


def _read(job: Any, next_run: float | None, now: datetime) -> ImportedJob:
    if not isinstance(job, dict) or job.get("version") != 1:
        raise InvalidInput("this is no job of APScheduler 3", hint="name the table of its job store with --table")
    target = job.get("func")
    if not isinstance(target, str) or ":" not in target:
        raise InvalidInput("the job names no function", hint=_REFUSED_HINT)
    trigger = job.get("trigger")
    if not isinstance(trigger, _Piece):
        raise InvalidInput("the job has no trigger", hint=_REFUSED_HINT)
    when, anchor = _when(trigger, now)
    trigger_of(when, anchor=anchor or now)
    return ImportedJob(
        job_id=str(job.get("id")),
        name=_name(job),
        target=target,
        when=when,
        policy=_policy(job, trigger),
        params=params_of_call(job.get("args"), job.get("kwargs")),
        is_paused=next_run is None,
        anchor=anchor,
    )


# Reading the pickle


class _Piece:
    """Substitute for an object of APScheduler that only stores its state."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, dict):
            raise _refused(f"a {type(self).__name__} whose state is a {type(state).__name__}")
        self.state = state


class _Call:
    """A callable that a pickle may call. Unlike a function, a pickle cannot change it."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, *given: Any) -> Any:
        return self._make(*given)

    def __setstate__(self, state: Any) -> None:
        raise _refused("a pickle that changes what it calls")


def _zone(key: Any, *_: Any) -> tzinfo:
    if not isinstance(key, str):
        raise _refused("a time zone without a name")
    return ZoneInfo.no_cache(key)


def _attribute(thing: Any, name: Any) -> Any:
    """Return the one attribute that a pickle of `ZoneInfo` needs."""
    if thing is _ZONE_INFO and name == "_unpickle":
        return _ZONE
    raise _refused(f"getattr(..., {str(name)[:60]!r})")


def _bytes(text: Any, encoding: Any) -> bytes:
    """Return bytes as older pickles encode them, for example in a datetime."""
    if not isinstance(text, str) or encoding != "latin1":
        raise _refused("an encoding")
    return text.encode("latin1")


def _minutes(offset: Any) -> tzinfo:
    return timezone(timedelta(minutes=int(offset)))


_ZONE, _ZONE_INFO = _Call(_zone), _Call(_zone)
_TRIGGERS = {
    "apscheduler.triggers.cron": ("CronTrigger",),
    "apscheduler.triggers.interval": ("IntervalTrigger",),
    "apscheduler.triggers.date": ("DateTrigger",),
    "apscheduler.triggers.cron.fields": ("BaseField", "MonthField", "DayOfMonthField", "WeekField", "DayOfWeekField"),
    "apscheduler.triggers.cron.expressions": (
        "AllExpression",
        "RangeExpression",
        "MonthRangeExpression",
        "WeekdayRangeExpression",
        "WeekdayPositionExpression",
        "LastDayOfMonthExpression",
    ),
}
# Times and zones, which are values.
PLAIN_TIMES: Mapping[tuple[str, str], Any] = {
    **{("datetime", kind.__name__): kind for kind in (datetime, date, timedelta, timezone)},
    ("builtins", "getattr"): _Call(_attribute),
    ("__builtin__", "getattr"): _Call(_attribute),
    ("_codecs", "encode"): _Call(_bytes),
    ("zoneinfo", "ZoneInfo"): _ZONE_INFO,
    ("zoneinfo", "ZoneInfo._unpickle"): _ZONE,
    ("backports.zoneinfo", "ZoneInfo"): _ZONE_INFO,
    ("backports.zoneinfo", "ZoneInfo._unpickle"): _ZONE,
    ("pytz", "_UTC"): _Call(lambda: UTC),
    ("pytz", "_p"): _ZONE,
    ("pytz", "FixedOffset"): _Call(_minutes),
}
_ADMITTED: Mapping[tuple[str, str], Any] = {
    **PLAIN_TIMES,
    **{(module, name): type(name, (_Piece,), {}) for module, names in _TRIGGERS.items() for name in names},
}


class _Unpickler(pickle.Unpickler):
    """Accepts only the names on the list."""

    def __init__(self, state: bytes, admitted: Mapping[tuple[str, str], Any]) -> None:
        super().__init__(io.BytesIO(state))
        self._admitted = admitted

    def find_class(self, module: str, name: str) -> Any:
        """Return the substitute for a name; refuse all other names."""
        found = self._admitted.get((module, name))
        if found is None:
            raise _refused(f"{module}.{name}"[:120])
        return found


def unpickled(state: bytes, admitted: Mapping[tuple[str, str], Any] = _ADMITTED) -> Any:
    """Return the content of a pickle that names only accepted objects."""
    if len(state) > _LARGEST:
        raise InvalidInput(f"the pickle has {len(state):,} bytes, more than a job needs", hint=_REFUSED_HINT)
    try:
        _check_memo(state)
        return _Unpickler(state, admitted).load()
    except InvalidInput:
        raise
    except Exception as error:
        # A pickle that was tampered with can fail in any way, but only within what is on the list.
        raise InvalidInput(f"the pickle cannot be read: {type(error).__name__}: {error}", hint=_REFUSED_HINT) from error


def _check_memo(state: bytes) -> None:
    """Refuse a memo index far beyond its length, for which the reader would allocate that much memory."""
    for code, place, _ in pickletools.genops(state):
        if code.name in ("PUT", "BINPUT", "LONG_BINPUT") and (not isinstance(place, int) or place > len(state)):
            raise _refused("a pickle whose memo is larger than itself")


def _refused(what: str) -> InvalidInput:
    return InvalidInput(f"the pickle names {what}, which is not read for safety", hint=_REFUSED_HINT)


# From its triggers to ours


def _when(trigger: _Piece, now: datetime) -> tuple[When, datetime | None]:
    match type(trigger).__name__:
        case "CronTrigger":
            return _cron(trigger.state, now), None
        case "IntervalTrigger":
            return _interval(trigger.state, now)
        case "DateTrigger":
            return _once(trigger.state, now)
        case other:
            raise InvalidInput(f"a {other} is no trigger of a job", hint=_REFUSED_HINT)


def _interval(state: Mapping[str, Any], now: datetime) -> tuple[When, datetime]:
    step, start = state.get("interval"), _moment(state.get("start_date"))
    if not isinstance(step, timedelta) or step <= timedelta() or start is None:
        raise InvalidInput("the interval cannot be read", hint=_REFUSED_HINT)
    _refuse_end(state)
    if start > now + step:
        raise _later(start)
    # Its first run may still be ahead: starting one step earlier gives the same instants.
    anchor = start - step if start > now else start
    zone, seconds = _zone_name(state.get("timezone")), step.total_seconds()
    when = When(schedule_type=ScheduleType.INTERVAL, interval_seconds=seconds, timezone=zone)
    return when, anchor.astimezone(UTC)


def _once(state: Mapping[str, Any], now: datetime) -> tuple[When, datetime]:
    run = _moment(state.get("run_date"))
    if run is None:
        raise InvalidInput("the date of the run cannot be read", hint=_REFUSED_HINT)
    if run <= now:
        raise InvalidInput(f"its only run was at {run.isoformat()}", hint="it needs no import")
    return When(schedule_type=ScheduleType.IMMEDIATE, timezone=_zone_name(run.tzinfo)), run.astimezone(UTC)


def _cron(state: Mapping[str, Any], now: datetime) -> When:
    start = _moment(state.get("start_date"))
    _refuse_end(state)
    if start is not None and start > now:
        raise _later(start)
    fields = {
        str(field.state.get("name")): _pieces(field.state.get("expressions")) for field in _pieces(state.get("fields"))
    }
    for name in ("year", "week"):
        if any(_text(piece, name) != "*" for piece in fields.get(name, ())):
            raise InvalidInput(f"the trigger chooses a {name}, which cron cannot", hint=_REFUSED_HINT)
    if [_text(piece, "second") for piece in fields.get("second", ())] != ["0"]:
        raise InvalidInput(
            "the trigger chooses seconds: a cron expression of Floodmark has minutes",
            hint="add it as an interval: floodmark add python ... --every 30s",
        )
    day, weekday = _days(fields.get("day", ()), fields.get("day_of_week", ()))
    minute, hour, month = (
        ",".join(_text(piece, name) for piece in fields.get(name, ())) for name in ("minute", "hour", "month")
    )
    return When(
        schedule_type=ScheduleType.CRON,
        cron_expression=f"{minute} {hour} {day} {month} {weekday}",
        timezone=_zone_name(state.get("timezone")),
    )


def _days(days: Sequence[_Piece], weekdays: Sequence[_Piece]) -> tuple[str, str]:
    """Return both day fields. APScheduler requires both to match; in cron either is enough."""
    placed = [piece for piece in days if type(piece).__name__ == "WeekdayPositionExpression"]
    day = ",".join(_text(piece, "day") for piece in days if piece not in placed) or "*"
    weekday = _weekdays(weekdays)
    if placed and len(placed) == len(days) and weekday == "*":
        return "*", ",".join(_placed(piece) for piece in placed)
    if placed or (not day.startswith("*") and weekday != "*"):
        raise InvalidInput(
            "the trigger wants a day of the month and a day of the week at once: cron runs on either of them",
            hint="add it by hand with one of them, and check the other one in the function",
        )
    return day, weekday


def _weekdays(pieces: Sequence[_Piece]) -> str:
    """Return weekdays by name, because APScheduler's 0 is Monday."""
    chosen = {number for piece in pieces for number in _weekday_numbers(piece)}
    return "*" if len(chosen) == len(_DAYS) else ",".join(_DAYS[number] for number in sorted(chosen))


def _placed(piece: _Piece) -> str:
    """Return expressions such as the second Monday or the last Friday."""
    place, weekday = _number(piece, "option_num"), _number(piece, "weekday")
    if weekday not in range(7) or place not in range(6):
        raise InvalidInput("the trigger has an unknown weekday", hint=_REFUSED_HINT)
    return f"{_DAYS[weekday]}#{place + 1}" if place < 5 else f"{(weekday + 1) % 7}L"


def _text(piece: _Piece, name: str) -> str:
    """Return one expression of a field in cron syntax."""
    step = piece.state.get("step")
    match type(piece).__name__:
        case "AllExpression":
            return "*" if step is None else f"*/{_number(piece, 'step')}"
        case "RangeExpression" | "MonthRangeExpression":
            first = _number(piece, "first")
            highest = {"minute": 59, "hour": 23, "day": 31, "month": 12}.get(name, 59)
            last = highest if piece.state.get("last") is None else _number(piece, "last")
            part = str(first) if last == first else f"{first}-{last}"
            return part if step is None or last == first else f"{part}/{_number(piece, 'step')}"
        case "LastDayOfMonthExpression":
            return "L"
        case other:
            raise InvalidInput(f"a {other} of the {name} cannot be written as cron", hint=_REFUSED_HINT)


def _weekday_numbers(piece: _Piece) -> range:
    is_all = type(piece).__name__ == "AllExpression"
    first = 0 if is_all else _number(piece, "first")
    last = 6 if is_all or piece.state.get("last") is None else _number(piece, "last")
    if not 0 <= first <= last <= 6:
        raise InvalidInput("the trigger has an unknown weekday", hint=_REFUSED_HINT)
    return range(first, last + 1, 1 if piece.state.get("step") is None else _number(piece, "step"))


def _number(piece: _Piece, name: str) -> int:
    value = piece.state.get(name)
    least = 1 if name == "step" else 0
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= 9999:
        raise InvalidInput(f"the {name} of an expression is not a number", hint=_REFUSED_HINT)
    return value


def _pieces(value: Any) -> list[_Piece]:
    if not isinstance(value, list) or len(value) > 1000 or not all(isinstance(piece, _Piece) for piece in value):
        raise InvalidInput("the trigger cannot be read", hint=_REFUSED_HINT)
    return value


def _moment(value: Any) -> datetime | None:
    return value if isinstance(value, datetime) and value.tzinfo is not None else None


def _refuse_end(state: Mapping[str, Any]) -> None:
    if state.get("end_date") is not None:
        raise InvalidInput(
            f"the trigger ends on {str(state['end_date'])[:40]}: a job of Floodmark has no end",
            hint="add it by hand, and remove it in time",
        )


def _later(start: datetime) -> InvalidInput:
    return InvalidInput(
        f"the trigger does not begin before {start.isoformat()}: a job of Floodmark begins at once",
        hint="import it then, or add it with --disabled",
    )


def _zone_name(zone: Any) -> str:
    if isinstance(zone, ZoneInfo) and zone.key:
        return zone.key
    if isinstance(zone, timezone) and zone.utcoffset(None) == timedelta():
        return "UTC"
    raise InvalidInput(f"the time zone {str(zone)[:60]} has no name", hint="give the job one such as Europe/Berlin")


# The rest of the job


def _policy(job: Mapping[str, Any], trigger: _Piece) -> Policy:
    """Return the policy: APScheduler drops runs after the grace, and skips runs beyond `max_instances`."""
    grace, most, jitter = job.get("misfire_grace_time"), job.get("max_instances"), trigger.state.get("jitter")
    return Policy(
        overlap=Overlap.SKIP,
        max_instances=most if isinstance(most, int) else 1,
        coalesce=bool(job.get("coalesce")),
        misfire_grace=_ALWAYS if grace is None else min(timedelta(seconds=_seconds(grace)), _ALWAYS),
        catch_up=CatchUp.NONE,
        jitter=timedelta() if jitter is None else timedelta(seconds=_seconds(jitter)),
    )


def _seconds(value: Any) -> float:
    if not isinstance(value, int | float) or not 0 <= value <= 1e9:
        raise InvalidInput(f"{str(value)[:40]!r} is not a number of seconds", hint=_REFUSED_HINT)
    return float(value)


def params_of_call(args: Any, kwargs: Any) -> dict[str, Any]:
    """Return the params with which the source `python` makes the same call."""
    budget = [_MOST_VALUES]
    places = plain_value(list(args or ()), budget, 0)
    names = plain_value(dict(kwargs or {}), budget, 0)
    apart = {name: value for name, value in names.items() if name in RESERVED}
    params = {name: value for name, value in names.items() if name not in RESERVED}
    return params | ({ARGS: places} if places else {}) | ({KWARGS: apart} if apart else {})


def plain_value(value: Any, budget: list[int], depth: int) -> Any:
    """Return the value as JSON types. The size is limited: a few bytes of pickle can expand to more than the memory."""
    budget[0] -= 1
    if budget[0] < 0 or depth > _DEEPEST:
        raise InvalidInput("the arguments are too many, or nested too deeply", hint=_REFUSED_HINT)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [plain_value(entry, budget, depth + 1) for entry in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: plain_value(entry, budget, depth + 1) for key, entry in value.items()}
    raise InvalidInput(f"an argument is a {type(value).__name__}, which JSON does not have", hint=_REFUSED_HINT)


def _name(job: Mapping[str, Any]) -> str:
    """Return the id if a person chose it, otherwise the name, which is that of the function."""
    given, name = str(job.get("id") or ""), str(job.get("name") or "")
    is_random = len(given) == 32 and all(letter in "0123456789abcdef" for letter in given)
    return printable_name(name if is_random and name else given)


def printable_name(text: str) -> str:
    """Return a name for a job, without control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()[:180] or "job"
