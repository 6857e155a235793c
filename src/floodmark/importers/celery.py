"""Entries of Celery beat: a `beat_schedule`, or the schedule file of beat. Celery does not need to be installed.

The file is a shelf of pickles, and a pickle can call anything it names. It is read like the job store of APScheduler:
only substitutes that store their arguments are accepted, and everything else is refused by name.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

from floodmark.errors import InvalidInput
from floodmark.model.job import ScheduleType, When

from .apscheduler import PLAIN_TIMES, ImportedJob, params_of_call, printable_name, unpickled

_HINT = "add this entry by hand: floodmark add python module:function --every 5m, or --cron '...'"
_FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
# How crontab schedules are pickled up to this version. Later ones may have the days and months in another order.
_KNOWN_ORDER = ("minute", "hour", "day_of_week", "day_of_month", "month_of_year")
_KNOWN_BEFORE = (5, 3)
_NAMES = re.compile(r"[a-z]{3,}", re.IGNORECASE)


Entries = tuple[list[ImportedJob], list[tuple[str, str, str]]]
"""The entries, and the unreadable ones with name, reason and hint."""


class _HeldObject:
    """Substitute for an object of Celery that only stores its arguments."""

    def __init__(self, *given: Any) -> None:
        self.given = given

    def __setstate__(self, state: Any) -> None:
        """Ignore options of a schedule, such as its app, which a job does not have."""


_ADMITTED = {
    **PLAIN_TIMES,
    **{
        (module, name): type(name, (_HeldObject,), {})
        for module, name in (
            ("celery.beat", "ScheduleEntry"),
            ("celery.schedules", "crontab"),
            ("celery.schedules", "schedule"),
        )
    },
}


def read_schedule(schedule: Mapping[Any, Any], *, timezone: str) -> Entries:
    """Read a `beat_schedule`."""
    return _read_each(schedule.items(), lambda name, entry: read_entry(name, entry, timezone=timezone))


def read_entry(name: str, entry: Any, *, timezone: str) -> ImportedJob:
    """Read an entry of a `beat_schedule`: a mapping with `task`, `schedule`, `args` and `kwargs`."""
    if not isinstance(entry, Mapping):
        raise InvalidInput(f"{name[:80]} is no entry of a beat_schedule", hint=_HINT)
    return _entry(name, entry.get("task"), entry.get("schedule"), (entry.get("args"), entry.get("kwargs")), timezone)


def read_shelf(stored: Mapping[str, bytes], *, timezone: str) -> Entries:
    """Read the schedule file of beat by its keys."""
    if "entries" not in stored:
        raise InvalidInput("this file holds no schedule of Celery beat", hint="name its celerybeat-schedule file")
    entries = unpickled(stored["entries"], _ADMITTED)
    version = _version(unpickled(stored["__version__"], _ADMITTED)) if "__version__" in stored else None
    if not isinstance(entries, dict):
        raise InvalidInput("the schedule of Celery beat cannot be read", hint=_HINT)
    by_name = sorted(entries.items(), key=lambda pair: str(pair[0]))
    return _read_each(by_name, lambda name, entry: _from_shelf(name, entry, version, timezone))


def _read_each(entries: Iterable[tuple[Any, Any]], read: Callable[[str, Any], ImportedJob]) -> Entries:
    found: list[ImportedJob] = []
    errors: list[tuple[str, str, str]] = []
    for name, entry in entries:
        try:
            found.append(read(str(name), entry))
        except InvalidInput as error:
            errors.append((str(name)[:80], str(error), error.hint))
    return found, errors


def _from_shelf(name: str, entry: Any, version: tuple[int, ...] | None, timezone: str) -> ImportedJob:
    if type(entry).__name__ != "ScheduleEntry" or len(entry.given) < 7:
        raise InvalidInput(f"{name[:80]} is no entry of Celery beat", hint=_HINT)
    _, task, _, _, schedule, args, kwargs, *_ = entry.given
    if isinstance(schedule, _HeldObject):
        schedule = _unfolded(schedule, version)
    return _entry(name, task, schedule, (args, kwargs), timezone)


def _unfolded(schedule: _HeldObject, version: tuple[int, ...] | None) -> Any:
    if type(schedule).__name__ == "schedule":
        return schedule.given[0] if schedule.given else None
    fields = dict(zip(_KNOWN_ORDER, schedule.given, strict=False))
    is_known = version is not None and version < _KNOWN_BEFORE
    if not is_known and any(fields.get(name, "*") != "*" for name in _KNOWN_ORDER[2:]):
        raise InvalidInput(
            "this version of Celery does not say in its file which field is the day and which the month",
            hint="import the beat_schedule of your module: floodmark import celery package.module:beat_schedule",
        )
    return {"crontab": fields}


def _version(text: Any) -> tuple[int, ...] | None:
    found = re.match(r"(\d{1,4})\.(\d{1,4})", text) if isinstance(text, str) else None
    return None if found is None else (int(found[1]), int(found[2]))


def _entry(name: str, task: Any, schedule: Any, call: tuple[Any, Any], timezone: str) -> ImportedJob:
    module, dot, function = task.rpartition(".") if isinstance(task, str) else ("", "", "")
    if not dot or not module or not function.isidentifier():
        raise InvalidInput(f"the task {str(task)[:80]!r} is not named after its function", hint=_HINT)
    return ImportedJob(
        name=printable_name(name),
        target=f"{module}:{function}",
        when=_when(schedule, timezone),
        params=params_of_call(*call),
    )


def _when(schedule: Any, timezone: str) -> When:
    seconds = _seconds(schedule)
    if seconds is not None:
        if not 0 < seconds <= 315_360_000:
            raise InvalidInput(f"{seconds:g} is not a number of seconds between two runs", hint=_HINT)
        return When(schedule_type=ScheduleType.INTERVAL, interval_seconds=seconds, timezone=timezone)
    expression = schedule if isinstance(schedule, str) else _expression(_fields(schedule))
    return When(schedule_type=ScheduleType.CRON, cron_expression=expression, timezone=timezone)


def _seconds(schedule: Any) -> float | None:
    """Return the seconds of a number, a timedelta, or a Celery object with `run_every`."""
    every = getattr(schedule, "run_every", schedule)
    if hasattr(schedule, "_orig_minute"):
        return None
    if isinstance(every, timedelta):
        return every.total_seconds()
    return float(every) if isinstance(every, int | float) and not isinstance(every, bool) else None


def _fields(schedule: Any) -> dict[str, Any]:
    if hasattr(schedule, "_orig_minute"):
        return {name: getattr(schedule, f"_orig_{name}") for name in _FIELDS}
    given = schedule.get("crontab", schedule) if isinstance(schedule, Mapping) else None
    if not isinstance(given, Mapping) or not set(given) <= set(_FIELDS) or not given:
        raise InvalidInput(f"the schedule {str(schedule)[:80]!r} is neither a time nor a crontab", hint=_HINT)
    return {name: given.get(name, "*") for name in _FIELDS}


def _expression(fields: Mapping[str, Any]) -> str:
    words = {name: _word(value) for name, value in fields.items()}
    if words["day_of_month"] != "*" and words["day_of_week"] != "*":
        raise InvalidInput(
            "the crontab wants a day of the month and a day of the week at once: cron runs on either of them",
            hint=_HINT,
        )
    return " ".join(words[name] for name in _FIELDS)


def _word(value: Any) -> str:
    if isinstance(value, set | frozenset | list | tuple):
        return ",".join(str(part) for part in sorted(value))
    # Celery takes whole names of days and months, cron three letters.
    return _NAMES.sub(lambda found: found[0][:3].upper(), re.sub(r"\s", "", str(value)))
