"""Decisions about sinks: their state, how long a failing one rests, and which receivers are stuck."""

from datetime import timedelta

from floodmark.model.sinks import SinkRow, SinkState

from .backoff import backoff_bound

# Alerts use the same time.
STUCK_AFTER = timedelta(minutes=5)
_FIRST_REST, _LONGEST_REST = timedelta(seconds=1), timedelta(minutes=5)


def sink_state(*, is_configured: bool, is_paused: bool, is_failing: bool, is_filling: bool) -> SinkState:
    """Return the state of a sink; the first that applies."""
    if not is_configured:
        return "removed"
    if is_paused:
        return "paused"
    if is_failing:
        return "failing"
    return "filling" if is_filling else "ok"


def is_stuck(sink: SinkRow) -> bool:
    """Return whether events have been waiting for a sink for too long. One that is paused is not stuck."""
    return sink.state in ("ok", "failing") and sink.lag_seconds > STUCK_AFTER.total_seconds()


def rest_after(failures: int) -> timedelta:
    """Return how long a sink rests after this many failures in a row. No jitter: only the leader sends."""
    return backoff_bound(failures, base=_FIRST_REST, longest=_LONGEST_REST)
