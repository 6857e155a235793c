"""How an execution ended. The executor returns one of these; one place writes it down.

`result` is what the source reported: the history shows it, whatever the outcome.
"""

from datetime import timedelta
from typing import Any

from msgspec import Struct

from .batch import Kept


class Done(Struct, frozen=True, kw_only=True, gc=False):
    """Everything there was has been collected."""

    kept: Kept = Kept()
    result: Any = None


class Snooze(Struct, frozen=True, kw_only=True, gc=False):
    """Told to wait: costs no attempt. `key` names the limit that holds for the whole fleet, if any."""

    after: timedelta
    reason: str
    key: str | None = None
    kept: Kept = Kept()
    result: Any = None


class Retry(Struct, frozen=True, kw_only=True, gc=False):
    """It failed and may work later: costs an attempt."""

    after: timedelta
    error: str
    details: Any = None
    kept: Kept = Kept()
    result: Any = None


class Dead(Struct, frozen=True, kw_only=True, gc=False):
    """It failed for good. `pause` also stops the job, with the error as the reason.

    It does so at once, or when the last `in_a_row` runs of the job ended like this one.
    """

    error: str
    details: Any = None
    pause: bool = False
    in_a_row: int = 1
    kept: Kept = Kept()
    result: Any = None


class Cancelled(Struct, frozen=True, kw_only=True, gc=False):
    """A person, a replacement or a deleted job ended it."""

    reason: str
    kept: Kept = Kept()
    result: Any = None


class Released(Struct, frozen=True, kw_only=True, gc=False):
    """Handed back unfinished, because the worker is leaving: costs no attempt."""

    reason: str = "handed back by a leaving worker"
    kept: Kept = Kept()
    result: Any = None


Outcome = Done | Snooze | Retry | Dead | Cancelled | Released
