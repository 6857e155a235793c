"""What follows an outcome: the next state of its execution, refunds, and what a request to cancel changes."""

from datetime import timedelta

from msgspec import Struct

from floodmark.model.execution import State
from floodmark.model.outcome import Cancelled, Dead, Done, Outcome, Released, Retry, Snooze

_STATES: dict[type[Outcome], State] = {
    Done: State.DONE,
    Snooze: State.WAITING,
    Retry: State.WAITING,
    Dead: State.DEAD,
    Cancelled: State.CANCELLED,
    Released: State.QUEUED,
}
# To wait because the source asked for it, or to hand back unfinished work, costs no attempt.
_REFUNDED = (Snooze, Released)
# An execution in one of these states would run again, unless someone asked to cancel it.
CONTINUING = (State.WAITING, State.QUEUED)
ENDING = (State.DONE, State.DEAD, State.CANCELLED)


class Consequence(Struct, frozen=True, kw_only=True, gc=False):
    """What becomes of an execution. `refund` is how many attempts it gets back, `after` how long it waits."""

    state: State
    refund: int
    after: timedelta | None
    reason: str | None
    error: str | None


_DONE = Consequence(state=State.DONE, refund=0, after=None, reason=None, error=None)


def state_of(outcome: Outcome) -> State:
    """Return the state an execution moves to, if nobody asked to cancel it."""
    return _STATES[type(outcome)]


def consequence_of(outcome: Outcome, cancel_requested: str | None = None) -> Consequence:
    """Return what becomes of an execution. `cancel_requested`: why someone asked to cancel it while it ran.

    A request to cancel ends what would have run again, and its reason is the one that people see. What has ended
    stays as it is. The error of a failed attempt is kept in every case.
    """
    if type(outcome) is Done:
        return _DONE
    state = state_of(outcome)
    if cancel_requested is not None and state in CONTINUING:
        state = State.CANCELLED
    return Consequence(
        state=state,
        refund=int(isinstance(outcome, _REFUNDED)),
        after=outcome.after if isinstance(outcome, Snooze | Retry) and state is State.WAITING else None,
        reason=cancel_requested if state is State.CANCELLED and cancel_requested is not None else _reason(outcome),
        error=outcome.error if isinstance(outcome, Retry | Dead) else None,
    )


def _reason(outcome: Outcome) -> str | None:
    if isinstance(outcome, Snooze | Cancelled | Released):
        return outcome.reason
    return outcome.error if isinstance(outcome, Retry) else None
