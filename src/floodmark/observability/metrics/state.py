"""Metrics of what stands in the database, counted by the leader."""

from floodmark.observability.events import Events, EventsRelayed, LeaderChanged, StateMeasured

from .families import Maker


class StateMetrics:
    """Shows what the leader has counted. Who does not lead shows 0: of several instances the largest value is true."""

    def __init__(self, make: Maker) -> None:
        self._dead = make.gauge("floodmark_dead_letters")
        self._limits = make.gauge("floodmark_limits_in_force")
        self._parked = make.gauge("floodmark_accounts_parked")
        self._stale = make.gauge("floodmark_stale_sources")
        self._pending = make.gauge("floodmark_outbox_pending")
        self._lag = make.gauge("floodmark_outbox_lag_seconds")

    def attach(self, events: Events) -> None:
        """Show what is measured from now on."""
        events.listen(StateMeasured, self._measured)
        events.listen(EventsRelayed, lambda e: self._lag.set(e.lag))
        events.listen(LeaderChanged, self._changed)

    def _measured(self, event: StateMeasured) -> None:
        self._dead.set(event.dead_letters)
        self._limits.set(event.limits)
        self._parked.set(event.parked_accounts)
        self._stale.set(event.stale_sources)
        self._pending.set(event.outbox_pending)
        self._lag.set(event.outbox_lag)

    def _changed(self, event: LeaderChanged) -> None:
        if not event.is_leader:
            self._measured(StateMeasured(0, 0, 0, 0, 0, 0.0))
