"""Metrics of the state in the database, measured by the leader."""

from floodmark.observability.events import (
    Events,
    EventsRelayed,
    GapsMeasured,
    ItemsIndexed,
    LeaderChanged,
    StateMeasured,
)

from .families import MetricMaker


class StateMetrics:
    """Exports the values that the leader measured. Other processes export 0, so use the maximum."""

    def __init__(self, make: MetricMaker) -> None:
        self._dead = make.gauge("floodmark_dead_letters")
        self._limits = make.gauge("floodmark_limits_in_force")
        self._parked = make.gauge("floodmark_accounts_parked")
        self._stale = make.gauge("floodmark_stale_sources")
        self._pending = make.gauge("floodmark_outbox_pending")
        self._lag = make.gauge("floodmark_outbox_lag_seconds")
        self._search_lag = make.gauge("floodmark_search_lag_seconds")
        self._gaps = make.gauges("floodmark_gaps")
        self._indexed = make.counter("floodmark_search_items_total")

    def attach(self, events: Events) -> None:
        """Start to export measured values."""
        events.listen(StateMeasured, self._set_state)
        events.listen(GapsMeasured, self._set_gaps)
        events.listen(EventsRelayed, lambda e: self._lag.set(e.lag))
        events.listen(ItemsIndexed, self._set_search)
        events.listen(LeaderChanged, self._reset_former_leader)

    def _set_state(self, event: StateMeasured) -> None:
        self._dead.set(event.dead_letters)
        self._limits.set(event.limits)
        self._parked.set(event.parked_accounts)
        self._stale.set(event.stale_sources)
        self._pending.set(event.outbox_pending)
        self._lag.set(event.outbox_lag)

    def _set_gaps(self, event: GapsMeasured) -> None:
        self._gaps.show_only({(source,): count for source, count in event.gaps.items()}, absent=0)

    def _set_search(self, event: ItemsIndexed) -> None:
        self._search_lag.set(event.lag)
        self._indexed.inc(event.count)

    def _reset_former_leader(self, event: LeaderChanged) -> None:
        if not event.is_leader:
            self._set_state(StateMeasured(0, 0, 0, 0, 0, 0.0))
            self._set_gaps(GapsMeasured())
            self._search_lag.set(0)
