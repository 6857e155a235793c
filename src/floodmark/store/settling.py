"""The row of an execution after its outcome, for both databases."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import asdict, replace

from floodmark.model.clean_text import clean
from floodmark.model.outcome import Dead, Done, Outcome, Retry
from floodmark.rules.outcomes import Consequence

from .database import encode_json
from .port import Settlement


def clean_outcomes(settlements: Sequence[Settlement]) -> list[Settlement]:
    """Return settlements whose texts a database can store: errors of a source may contain NUL bytes."""
    return [s if _is_bare(s.outcome) else replace(s, outcome=_clean_outcome(s.outcome)) for s in settlements]


def _is_bare(outcome: Outcome) -> bool:
    return type(outcome) is Done and outcome.result is None


def _clean_outcome(outcome: Outcome) -> Outcome:
    texts = {name: clean(value) for name, value in asdict(outcome).items() if isinstance(value, str | dict | list)}
    return replace(outcome, **texts)


# The columns of a settled row.
SETTLED = (
    *("execution_id", "fence", "stream", "state", "refund", "after", "reason", "error", "details", "result"),
    *("new", "changed", "known", "duration"),
)


def settled_row(settlement: Settlement, follows: Consequence) -> tuple[Any, ...]:
    """Return the columns `SETTLED` of an execution."""
    lease, outcome = settlement.lease, settlement.outcome
    return (
        lease.execution_id,
        lease.fence,
        lease.job.stream,
        follows.state.value,
        follows.refund,
        None if follows.after is None else follows.after.total_seconds(),
        follows.reason,
        follows.error,
        _details(settlement) if follows.error is not None else None,
        encode_json(outcome.result) if outcome.result is not None else None,
        outcome.kept.new,
        outcome.kept.changed,
        outcome.kept.known,
        settlement.duration,
    )


def _details(settlement: Settlement) -> str:
    """Return the entry of a failed attempt in `error_details`."""
    outcome = settlement.outcome
    assert isinstance(outcome, Retry | Dead)
    return encode_json(
        {
            # The clock of the worker is good enough here: only people read it.
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "attempt": settlement.lease.attempt,
            "worker": settlement.lease.worker,
            "error": outcome.error,
            "details": outcome.details,
        }
    )
