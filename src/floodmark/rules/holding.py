"""When held executions continue: those that wait for another execution, for a paused job, or for a dependency."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from floodmark.model.execution import Hold, State

from .starting import FORCED, holds_pause

# The reason of a new execution that waits for another execution of its job (`Hold.OVERLAP`).
WAITS_FOR_EXECUTION = "waits for execution {execution_id}, which is {state}"


class Unfinished(Struct, frozen=True, kw_only=True):
    """An unfinished execution of a job. `is_unmet`: a job it depends on has yet to succeed."""

    scheduled_for: datetime
    state: State
    trigger: str = "schedule"
    hold: Hold | None = None
    is_unmet: bool = False


def next_held(unfinished: Sequence[Unfinished], *, is_paused: bool) -> Unfinished | None:
    """Return the execution held by `Hold.OVERLAP` that continues now; None if there is none.

    It is the first by its instant, once no other execution of the job is queued, running or waiting for a time.
    A forced execution overtakes those that wait for the job to be resumed or for a dependency; others do not.
    """
    if any(one.hold is None for one in unfinished):
        return None
    waiting = [one for one in unfinished if one.hold is Hold.OVERLAP]
    startable = [one for one in waiting if not holds_pause(one.trigger, is_paused=is_paused)]
    first = min(startable, key=lambda one: one.scheduled_for, default=None)
    if first is None or first.trigger == FORCED:
        return first
    others = (one for one in unfinished if one.hold in (Hold.PAUSED, Hold.DEPENDENCY))
    is_passed = any(one.scheduled_for < first.scheduled_for for one in others)
    return None if is_passed or first.is_unmet else first


def is_freed(execution: Unfinished, *, is_paused: bool) -> bool:
    """Return whether an execution may continue that waits for its job to be resumed or for a dependency."""
    match execution.hold:
        case Hold.PAUSED:
            return not is_paused
        case Hold.DEPENDENCY:
            return not execution.is_unmet
    return False


def wait_for_execution(execution_id: str, state: str) -> str:
    """Return the reason of a new execution that waits for another execution of its job (`Hold.OVERLAP`)."""
    return WAITS_FOR_EXECUTION.format(execution_id=execution_id, state=state)


def wait_for_success(names: Sequence[str]) -> str:
    """Return the reason of an execution that waits for other jobs (`Hold.DEPENDENCY`)."""
    return f"waits for {', '.join(names)} to succeed"
