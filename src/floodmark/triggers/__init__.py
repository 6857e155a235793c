"""When a job is due. `trigger_of` returns the trigger of the schedule columns of a job.

The entry points of `floodmark.triggers` name the functions that create triggers: one for each schedule type, and those
of other packages, which a job of the type `calendar` names in its `time_config`: `{"trigger": "sunrise", ...}`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache

from floodmark.errors import InvalidInput
from floodmark.model.job import ScheduleType, When
from floodmark.process.entry_points import load_extension

from .port import TRIGGERS, MakeTrigger, Trigger, between, instants
from .zones import zone_of

__all__ = ["Trigger", "between", "foreign_name", "instants", "trigger_of", "zone_of"]


def trigger_of(when: When, *, anchor: datetime) -> Trigger:
    """Return the trigger these columns describe; columns of other schedule types are ignored.

    `anchor` is the start of the grid of an interval, and when an immediate job fires. Raises InvalidInput,
    with a hint, for columns that are missing or invalid.
    """
    # Not every type uses the zone, but the times of every job are shown in it.
    zone_of(when.timezone)
    foreign = foreign_name(when)
    if foreign is None:
        return _maker(when.schedule_type)(when, anchor)
    with _named_errors(foreign):
        return ForeignTrigger(foreign, _maker(foreign)(when, anchor))


def foreign_name(when: When) -> str | None:
    """Return the name of the trigger of another package, if these columns name one."""
    if when.schedule_type is not ScheduleType.CALENDAR or when.frequency is not None:
        return None
    name = (when.time_config or {}).get("trigger")
    return name if isinstance(name, str) else None


class ForeignTrigger:
    """A trigger of another package. Its errors make the job invalid and leave other jobs alone."""

    def __init__(self, name: str, trigger: Trigger) -> None:
        self._name, self._trigger = name, trigger

    def after(self, instant: datetime) -> datetime | None:
        """Return the first instant strictly later than `instant`."""
        with _named_errors(self._name):
            return self._trigger.after(instant)

    def latest(self, until: datetime) -> datetime | None:
        """Return the newest instant at or before `until`."""
        with _named_errors(self._name):
            return self._trigger.latest(until)


@cache
def _maker(name: str) -> MakeTrigger:
    made: MakeTrigger = load_extension(TRIGGERS, name)
    return made


@contextmanager
def _named_errors(name: str) -> Iterator[None]:
    try:
        yield
    except InvalidInput:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        hint = "correct time_config, or update its package"
        raise InvalidInput(f"the trigger {name} failed: {reason}", hint=hint) from error
