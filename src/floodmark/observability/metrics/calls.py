"""Metrics of outgoing calls (F7): retries, limits, breakers, pages."""

from floodmark.observability.events import (
    BatchKept,
    BreakerMoved,
    BreakersInUse,
    CallRetried,
    Events,
    FetchTimed,
    RateLimited,
)

from .families import MetricMaker, word

BREAKER_STATES = {"closed": 0, "open": 1, "half-open": 2}
# Breakers of accounts are not domains.
_ACCOUNTS, _DOMAINS = "telegram:", "web:"


class CallMetrics:
    """Counts outgoing calls."""

    def __init__(self, make: MetricMaker) -> None:
        self._retries = make.counters("retries_total")
        self._delays = make.gauges("last_retry_delay_seconds")
        self._limited = make.counters("rate_limit_hits_total")
        self._breakers = make.gauges("breaker_state")
        self._trips = make.counters("breaker_open_total")
        self._domains = make.gauges("crawler_scheduler_circuit_breaker_state")
        self._domain_trips = make.counters("crawler_scheduler_circuit_breaker_trips_total")
        self._fetches = make.histograms("fetch_duration_seconds")
        self._lags = make.gauges("fetch_lag_seconds")
        self._duplicates = make.counters("deduplicated_messages_total")

    def attach(self, events: Events) -> None:
        """Start to count."""
        events.listen(CallRetried, self._count_retry)
        events.listen(RateLimited, lambda e: self._limited.child(e.source, word(e.reason)).inc())
        events.listen(BreakersInUse, self._show_closed)
        events.listen(BreakerMoved, self._set_breaker)
        events.listen(FetchTimed, self._count_fetch)
        events.listen(BatchKept, self._count_known)

    def _count_retry(self, event: CallRetried) -> None:
        self._retries.child(event.target, word(event.reason)).inc()
        self._delays.child(event.target).set(event.delay)

    def _show_closed(self, event: BreakersInUse) -> None:
        """Export 0 from the start, unless a state is already known."""
        for key in event.keys:
            self._breakers.child(key)
            if not key.startswith(_ACCOUNTS):
                self._domains.child(key.removeprefix(_DOMAINS))

    def _set_breaker(self, event: BreakerMoved) -> None:
        state = BREAKER_STATES[event.state]
        # Counted once for the fleet: by the process that moved it.
        has_opened = event.state == "open" and not event.elsewhere
        self._breakers.child(event.domain).set(state)
        if has_opened:
            self._trips.child(event.domain).inc()
        if not event.domain.startswith(_ACCOUNTS):
            domain = event.domain.removeprefix(_DOMAINS)
            self._domains.child(domain).set(state)
            if has_opened:
                self._domain_trips.child(domain).inc()

    def _count_fetch(self, event: FetchTimed) -> None:
        self._fetches.child(event.chat).observe(event.seconds)
        if event.lag is not None:
            self._lags.child(event.chat).set(event.lag)

    def _count_known(self, event: BatchKept) -> None:
        if event.known:
            self._duplicates.child(event.source or "none").inc(event.known)
