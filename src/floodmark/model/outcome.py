"""Outcomes of an execution. The executor returns one; one place stores it.

`result` is the report of the source; the history shows it for every outcome.
"""

from datetime import timedelta
from typing import Any

from msgspec import Struct

from .batch import Kept


class Done(Struct, frozen=True, kw_only=True, gc=False):
    """Everything was collected."""

    kept: Kept = Kept()
    result: Any = None


class Snooze(Struct, frozen=True, kw_only=True, gc=False):
    """The source asked to wait: costs no attempt. `key` names the limit for the whole fleet, if any."""

    after: timedelta
    reason: str
    key: str | None = None
    kept: Kept = Kept()
    result: Any = None


class Retry(Struct, frozen=True, kw_only=True, gc=False):
    """A failure that may be temporary: costs an attempt."""

    after: timedelta
    error: str
    details: Any = None
    kept: Kept = Kept()
    result: Any = None


class Dead(Struct, frozen=True, kw_only=True, gc=False):
    """A permanent failure. `pause` also pauses the job, with the error as the reason.

    The job is paused when its last `in_a_row` runs ended like this one.
    """

    error: str
    details: Any = None
    pause: bool = False
    in_a_row: int = 1
    kept: Kept = Kept()
    result: Any = None


class Cancelled(Struct, frozen=True, kw_only=True, gc=False):
    """Cancelled by a person, by a newer instant, or because the job was deleted."""

    reason: str
    kept: Kept = Kept()
    result: Any = None


class Released(Struct, frozen=True, kw_only=True, gc=False):
    """Handed back unfinished because the worker stops: costs no attempt."""

    reason: str = "handed back by a leaving worker"
    kept: Kept = Kept()
    result: Any = None


Outcome = Done | Snooze | Retry | Dead | Cancelled | Released
