"""Decide whether a queued execution may start, and if not, its next state and the reason that people see."""

from datetime import datetime

from msgspec import Struct

from floodmark.model.execution import Hold, State

# The trigger of an execution that a person forced. It runs even if its job is paused.
FORCED = "manual"
# The trigger of an execution that fills the gaps of its target, and then collects as always.
FILL = "fill"
JOB_DELETED = "the job was deleted"
# Why an execution waits that only the preferred worker may start now.
OFFERED = "offered to worker {worker}, which is preferred for it"


class Obstacle(Struct, frozen=True, kw_only=True):
    """Why a queued execution may not start, and its next state: it is parked.

    `reason` may name the `{stream}` and the `{limit}` (the reason of the limit). With `is_timed` the execution waits
    until the limit ends.
    """

    state: State
    reason: str
    hold: Hold | None = None
    is_timed: bool = False


DELETED = Obstacle(state=State.CANCELLED, reason=JOB_DELETED)
LIMITED = Obstacle(state=State.WAITING, reason="{limit}", is_timed=True)
PAUSED = Obstacle(state=State.WAITING, hold=Hold.PAUSED, reason="the job is paused")
BUSY = Obstacle(state=State.WAITING, hold=Hold.OVERLAP, reason="another execution is collecting {stream}")

# In the order in which they are checked: the most lasting first.
OBSTACLES = (DELETED, LIMITED, PAUSED, BUSY)


def find_obstacle(
    *, is_deleted: bool, is_limited: bool, is_paused: bool, trigger: str, is_busy: bool
) -> Obstacle | None:
    """Return why an execution may not start now; None if it may.

    `is_limited`: its key has a rate limit. `is_busy`: another execution has a lease on its stream.
    """
    if is_deleted:
        return DELETED
    if is_limited:
        return LIMITED
    if holds_pause(trigger, is_paused=is_paused):
        return PAUSED
    return BUSY if is_busy else None


def holds_pause(trigger: str, *, is_paused: bool) -> bool:
    """Return whether a pause of the job keeps an execution from starting."""
    return is_paused and trigger != FORCED


def wakes_to(not_before: datetime | None, now: datetime) -> State:
    """Return the state of a waiting execution after its hold: queued, or waiting until its jitter is over."""
    return State.WAITING if not_before is not None and not_before > now else State.QUEUED
