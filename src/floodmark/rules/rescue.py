"""What happens to an execution whose worker stopped responding: it is rescued, cancelled or given up.

It gets its attempt back: the death of a worker is not a failure of the source.
"""

from msgspec import Struct

from floodmark.model.execution import State

# Shown to people; `{worker}` and `{rescues}` are filled in here or by the database.
SILENT = "worker {worker} went silent"
GIVEN_UP = "its worker died {rescues} times in a row without progress"


class Rescue(Struct, frozen=True, kw_only=True):
    """The next state of an execution. `error` says why it was given up, None if it was not."""

    state: State
    reason: str
    error: str | None = None


def rescue_of(*, worker: str | None, rescues: int, cancel_requested: str | None, rescue_max: int) -> Rescue:
    """Return the next state of an execution at its rescue number `rescues` since its last progress."""
    if cancel_requested is not None:
        return Rescue(state=State.CANCELLED, reason=cancel_requested)
    silent = SILENT.format(worker=worker)
    if rescues > rescue_max:
        return Rescue(state=State.DEAD, reason=silent, error=GIVEN_UP.format(rescues=rescues))
    return Rescue(state=State.QUEUED, reason=silent)


def count_rescues(before: int, *, has_progress: bool) -> int:
    """Return the number of the next rescue; it starts again at 0 if the watermark moved in this run."""
    return 0 if has_progress else before + 1
