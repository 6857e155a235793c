"""Metrics of sinks."""

from floodmark.observability.events import Events, EventsDelivered, LeaderChanged, SinkFailed, SinksMeasured

from .families import MetricMaker


class SinkMetrics:
    """Counts delivered events and failures; exports what the leader reads about sinks."""

    def __init__(self, make: MetricMaker) -> None:
        self._delivered = make.counters("floodmark_sink_events_total")
        self._failures = make.counters("floodmark_sink_failures_total")
        self._lag_events = make.gauges("floodmark_sink_lag_events")
        self._lag_seconds = make.gauges("floodmark_sink_lag_seconds")
        self._letters = make.gauges("floodmark_sink_dead_letters")
        self._paused = make.gauges("floodmark_sink_paused")

    def attach(self, events: Events) -> None:
        """Start to count."""
        events.listen(EventsDelivered, lambda e: self._delivered.child(e.sink).inc(e.count))
        events.listen(SinkFailed, lambda e: self._failures.child(e.sink).inc())
        events.listen(SinksMeasured, self._set_sinks)
        events.listen(LeaderChanged, self._reset_former_leader)

    def _set_sinks(self, event: SinksMeasured) -> None:
        self._lag_events.show_only({(one.sink,): one.lag_events for one in event.sinks}, absent=0)
        self._lag_seconds.show_only({(one.sink,): one.lag_seconds for one in event.sinks}, absent=0)
        self._letters.show_only({(one.sink,): one.dead_letters for one in event.sinks}, absent=0)
        self._paused.show_only({(one.sink,): float(one.is_paused) for one in event.sinks}, absent=0)

    def _reset_former_leader(self, event: LeaderChanged) -> None:
        if not event.is_leader:
            self._set_sinks(SinksMeasured())
