"""When to stop calling somebody who does not answer, and when to ask again: pure, so that every rule can be tested.

closed     calls go through; failures are remembered
open       nobody calls, until `open_until`
half-open  one call at a time goes through as a probe: its success closes the breaker, its failure opens it again
"""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

# Someone else is probing: long enough for most probes to come back.
_PROBING = timedelta(seconds=5)


class BreakerState(StrEnum):
    """Whether calls go through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Thresholds(Struct, frozen=True, kw_only=True, gc=False):
    """When a breaker opens and for how long.

    It opens when `failures` fall into one `window`; without a window, when so many come in a row.
    A probe that has not reported back after `probe` is forgotten.
    """

    failures: int = 5
    window: timedelta | None = timedelta(seconds=30)
    open_for: timedelta = timedelta(seconds=60)
    probe: timedelta = timedelta(seconds=60)


class Breaker(Struct, frozen=True, kw_only=True):
    """One breaker. `failed_at`: the newest failures, oldest first, never more than it takes to open.

    While a probe is under way `probe_until` says until when it is waited for; the same moment is its ticket.
    """

    state: BreakerState = BreakerState.CLOSED
    failed_at: tuple[datetime, ...] = ()
    open_until: datetime | None = None
    probe_until: datetime | None = None
    trips: int = 0
    reason: str | None = None


def refused_until(breaker: Breaker, now: datetime) -> datetime | None:
    """Until when nobody may call; None: a call, or a probe, may be made now."""
    if breaker.state is BreakerState.OPEN and breaker.open_until is not None and now < breaker.open_until:
        return breaker.open_until
    if breaker.state is BreakerState.HALF_OPEN and breaker.probe_until is not None and now < breaker.probe_until:
        return min(breaker.probe_until, now + _PROBING)
    return None


def admitted(breaker: Breaker, now: datetime, thresholds: Thresholds) -> Breaker:
    """The breaker after a call asked to be made. Unless it is closed, whoever finds `probe_until` moved may probe."""
    if breaker.state is BreakerState.CLOSED or refused_until(breaker, now) is not None:
        return breaker
    return replace(breaker, state=BreakerState.HALF_OPEN, open_until=None, probe_until=now + thresholds.probe)


def failed(
    breaker: Breaker, now: datetime, thresholds: Thresholds, *, reason: str, ticket: datetime | None = None
) -> Breaker:
    """The breaker after a call failed. Of calls begun before it opened it takes no notice."""
    if breaker.state is BreakerState.CLOSED:
        # A number of failures that was lowered meanwhile must not leave more of them than count.
        failures = (*recent(breaker, now, thresholds), now)[-thresholds.failures :]
        if len(failures) < thresholds.failures:
            return replace(breaker, failed_at=failures, reason=reason)
        return _opened(breaker, now, thresholds, reason)
    return _opened(breaker, now, thresholds, reason) if _is_probe(breaker, ticket) else breaker


def succeeded(breaker: Breaker, thresholds: Thresholds, *, ticket: datetime | None = None) -> Breaker:
    """The breaker after a call was answered."""
    if breaker.state is BreakerState.CLOSED:
        # Within a window failures count whatever happens between them; in a row they do not.
        return breaker if thresholds.window is not None else replace(breaker, failed_at=())
    return closed(breaker) if _is_probe(breaker, ticket) else breaker


def released(breaker: Breaker, *, ticket: datetime | None) -> Breaker:
    """The breaker after a call ended without telling anything: the next one may probe at once."""
    return replace(breaker, probe_until=None) if _is_probe(breaker, ticket) else breaker


def closed(breaker: Breaker) -> Breaker:
    """Calls go through again, and nothing is held against them."""
    return Breaker(trips=breaker.trips)


def refusal_of(key: str) -> str:
    """How every reason begins that a breaker gives to those it does not let through."""
    return f"breaker {key} is "


def recent(breaker: Breaker, now: datetime, thresholds: Thresholds) -> tuple[datetime, ...]:
    """The failures that count."""
    if thresholds.window is None:
        return breaker.failed_at
    since = now - thresholds.window
    return tuple(moment for moment in breaker.failed_at if moment > since)


def _opened(breaker: Breaker, now: datetime, thresholds: Thresholds, reason: str) -> Breaker:
    return Breaker(
        state=BreakerState.OPEN, open_until=now + thresholds.open_for, trips=breaker.trips + 1, reason=reason
    )


def _is_probe(breaker: Breaker, ticket: datetime | None) -> bool:
    return breaker.state is BreakerState.HALF_OPEN and ticket is not None and breaker.probe_until == ticket
