"""Circuit breakers: when to stop calling a service that fails, and when to try again.

closed     calls go through; failures are counted
open       no calls, until `open_until`
half-open  one call at a time goes through as a probe: its success closes the breaker, its failure opens it again
"""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

# How long to wait while another process probes: most probes end within this time.
_PROBING = timedelta(seconds=5)


class BreakerState(StrEnum):
    """The state of a breaker: whether calls go through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Thresholds(Struct, frozen=True, kw_only=True, gc=False):
    """When a breaker opens and for how long.

    It opens after this many `failures` within one `window`; without a window, after this many in a row.
    A probe without a result after `probe` is ignored.
    """

    failures: int = 5
    window: timedelta | None = timedelta(seconds=30)
    open_for: timedelta = timedelta(seconds=60)
    probe: timedelta = timedelta(seconds=60)


class Breaker(Struct, frozen=True, kw_only=True):
    """One breaker. `failed_at`: the newest failures, oldest first, at most as many as open it.

    During a probe `probe_until` is its deadline, which also identifies the probe (`ticket`).
    """

    state: BreakerState = BreakerState.CLOSED
    failed_at: tuple[datetime, ...] = ()
    open_until: datetime | None = None
    probe_until: datetime | None = None
    trips: int = 0
    reason: str | None = None


def refused_until(breaker: Breaker, now: datetime) -> datetime | None:
    """Return until when calls are refused; None: a call, or a probe, may be made now."""
    if breaker.state is BreakerState.OPEN and breaker.open_until is not None and now < breaker.open_until:
        return breaker.open_until
    if breaker.state is BreakerState.HALF_OPEN and breaker.probe_until is not None and now < breaker.probe_until:
        return min(breaker.probe_until, now + _PROBING)
    return None


def admit_call(breaker: Breaker, now: datetime, thresholds: Thresholds) -> Breaker:
    """Return the breaker after a request to call. A changed `probe_until` makes that call a probe."""
    if breaker.state is BreakerState.CLOSED or refused_until(breaker, now) is not None:
        return breaker
    return replace(breaker, state=BreakerState.HALF_OPEN, open_until=None, probe_until=now + thresholds.probe)


def record_failure(
    breaker: Breaker, now: datetime, thresholds: Thresholds, *, reason: str, ticket: datetime | None = None
) -> Breaker:
    """Return the breaker after a failed call. Failures of calls that began before it opened are ignored."""
    if breaker.state is BreakerState.CLOSED:
        # The threshold may have been lowered since: keep no more failures than count.
        failures = (*recent_failures(breaker, now, thresholds), now)[-thresholds.failures :]
        if len(failures) < thresholds.failures:
            return replace(breaker, failed_at=failures, reason=reason)
        return _open_breaker(breaker, now, thresholds, reason)
    return _open_breaker(breaker, now, thresholds, reason) if _is_probe(breaker, ticket) else breaker


def record_success(breaker: Breaker, thresholds: Thresholds, *, ticket: datetime | None = None) -> Breaker:
    """Return the breaker after a successful call."""
    if breaker.state is BreakerState.CLOSED:
        # With a window a success between failures changes nothing; without one it starts the count again.
        return breaker if thresholds.window is not None else replace(breaker, failed_at=())
    return close_breaker(breaker) if _is_probe(breaker, ticket) else breaker


def release_probe(breaker: Breaker, *, ticket: datetime | None) -> Breaker:
    """Return the breaker after a call that ended without a result: the next call may probe at once."""
    return replace(breaker, probe_until=None) if _is_probe(breaker, ticket) else breaker


def close_breaker(breaker: Breaker) -> Breaker:
    """Return the closed breaker, without failures."""
    return Breaker(trips=breaker.trips)


def refusal_of(key: str) -> str:
    """Return the beginning of every reason for calls that a breaker refuses."""
    return f"breaker {key} is "


def recent_failures(breaker: Breaker, now: datetime, thresholds: Thresholds) -> tuple[datetime, ...]:
    """Return the failures that count."""
    if thresholds.window is None:
        return breaker.failed_at
    since = now - thresholds.window
    return tuple(moment for moment in breaker.failed_at if moment > since)


def _open_breaker(breaker: Breaker, now: datetime, thresholds: Thresholds, reason: str) -> Breaker:
    return Breaker(
        state=BreakerState.OPEN, open_until=now + thresholds.open_for, trips=breaker.trips + 1, reason=reason
    )


def _is_probe(breaker: Breaker, ticket: datetime | None) -> bool:
    return breaker.state is BreakerState.HALF_OPEN and ticket is not None and breaker.probe_until == ticket
