"""The consequences of an outcome: next state, refunded attempts, and the effect of a request to cancel."""

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
# A wait that the source asked for, and unfinished work handed back, cost no attempt.
_REFUNDED = (Snooze, Released)
# In these states an execution runs again, unless someone asked to cancel it.
CONTINUING = (State.WAITING, State.QUEUED)
ENDING = (State.DONE, State.DEAD, State.CANCELLED)


class Consequence(Struct, frozen=True, kw_only=True, gc=False):
    """The next state of an execution. `refund` is the number of attempts it gets back, `after` how long it waits."""

    state: State
    refund: int
    after: timedelta | None
    reason: str | None
    error: str | None


_DONE = Consequence(state=State.DONE, refund=0, after=None, reason=None, error=None)


def state_of(outcome: Outcome) -> State:
    """Return the next state of an execution without a request to cancel it."""
    return _STATES[type(outcome)]


def consequence_of(outcome: Outcome, cancel_requested: str | None = None) -> Consequence:
    """Return the consequence of an outcome. `cancel_requested`: the reason of a request to cancel it while it ran.

    A request to cancel ends an execution that would have run again, with the reason of the request. Other outcomes
    stay as they are. The error of a failed attempt is always stored.
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
