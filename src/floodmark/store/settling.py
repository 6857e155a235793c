"""What an outcome means for the row of its execution: one rule for both databases."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import asdict, replace

from floodmark.model.execution import State
from floodmark.model.outcome import Cancelled, Dead, Done, Outcome, Released, Retry, Snooze

from .database import encode_json
from .item_rows import clean
from .port import Settlement

_STATES: dict[type[Outcome], State] = {
    Done: State.DONE,
    Snooze: State.WAITING,
    Retry: State.WAITING,
    Dead: State.DEAD,
    Cancelled: State.CANCELLED,
    Released: State.QUEUED,
}
# Waiting because we were told to, or handing back unfinished work, costs no attempt.
_REFUNDED = (Snooze, Released)


def state_of(outcome: Outcome) -> State:
    """The state an execution moves to."""
    return _STATES[type(outcome)]


def storable(settlements: Sequence[Settlement]) -> list[Settlement]:
    """The same, with every text as a database can hold it: sources raise what they read, NUL bytes included."""
    return [s if _is_bare(s.outcome) else replace(s, outcome=_storable(s.outcome)) for s in settlements]


def _is_bare(outcome: Outcome) -> bool:
    return type(outcome) is Done and outcome.result is None


def _storable(outcome: Outcome) -> Outcome:
    texts = {name: clean(value) for name, value in asdict(outcome).items() if isinstance(value, str | dict | list)}
    return replace(outcome, **texts)


def settled_row(settlement: Settlement) -> tuple[Any, ...]:
    """The new values: id, fence, stream, state, refund, after, reason, error, details, result, counts, duration."""
    lease, outcome = settlement.lease, settlement.outcome
    after = outcome.after.total_seconds() if isinstance(outcome, Snooze | Retry) else None
    error = outcome.error if isinstance(outcome, Retry | Dead) else None
    return (
        lease.execution_id,
        lease.fence,
        lease.job.stream,
        state_of(outcome).value,
        1 if isinstance(outcome, _REFUNDED) else 0,
        after,
        _reason(outcome),
        error,
        _details(settlement) if error is not None else None,
        encode_json(outcome.result) if outcome.result is not None else None,
        outcome.kept.new,
        outcome.kept.changed,
        outcome.kept.known,
        settlement.duration,
    )


def _reason(outcome: Outcome) -> str | None:
    if isinstance(outcome, Snooze | Cancelled | Released):
        return outcome.reason
    return outcome.error if isinstance(outcome, Retry) else None


def _details(settlement: Settlement) -> str:
    """One entry per failed attempt, so that the history tells them all."""
    outcome = settlement.outcome
    assert isinstance(outcome, Retry | Dead)
    return encode_json(
        {
            # By the clock of the worker: for people who read the history, and compared with nothing.
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "attempt": settlement.lease.attempt,
            "worker": settlement.lease.worker,
            "error": outcome.error,
            "details": outcome.details,
        }
    )
