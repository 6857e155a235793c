"""Metrics of watches, notifications and pushed metrics."""

from floodmark.observability.events import Events, MetricsPushed, NotificationSent, WatchesEvaluated
from floodmark.version import __version__

from .families import MetricMaker, word

PUSHES = ("floodmark_pushes_total", "floodmark_last_push_timestamp_seconds")


class DeliveryMetrics:
    """Counts matches of watches, notifications and pushes, and exports the version."""

    def __init__(self, make: MetricMaker) -> None:
        self._sent = make.counters("floodmark_notifications_total")
        self._examined, self._watch_lag = (
            make.counter("floodmark_watch_events_total"),
            make.gauge("floodmark_watch_lag_seconds"),
        )
        matches = make.counters("floodmark_watch_matches_total")
        self._matched, self._suppressed = matches.child("matched"), matches.child("suppressed")
        pushes = make.counters("floodmark_pushes_total")
        self._pushed, self._failed = pushes.child("ok"), pushes.child("failed")
        self._last = make.gauge("floodmark_last_push_timestamp_seconds")
        make.gauges("floodmark_info").child(__version__).set(1)

    def attach(self, events: Events) -> None:
        """Start to count."""
        events.listen(NotificationSent, lambda e: self._sent.child(word(e.channel), word(e.result)).inc())
        events.listen(WatchesEvaluated, self._count_matches)
        events.listen(MetricsPushed, self._count_push)

    def _count_matches(self, event: WatchesEvaluated) -> None:
        self._examined.inc(event.events)
        self._matched.inc(event.matches)
        self._suppressed.inc(event.suppressed)
        self._watch_lag.set(event.lag)

    def _count_push(self, event: MetricsPushed) -> None:
        if event.error is not None:
            return self._failed.inc()
        self._pushed.inc()
        return self._last.set(event.at)
