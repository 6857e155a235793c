"""Metrics of Telegram channels and of the scheduler's freshness (T9)."""

import time

from floodmark.telemetry.events import (
    CallRetried,
    Events,
    LeaderElectionAttempted,
    ModeChosen,
    RateLimited,
    RunEnded,
    SchedulerTicked,
)

from .families import Maker, word

_SOURCE = "telegram"
_CHECKED = ("done", "empty")
_FORCED = ("stale_lpa", "feature_off", "override")


class ChannelMetrics:
    """Counts how channels are read."""

    def __init__(self, make: Maker) -> None:
        self._runs = make.counters("parser_runs_total")
        self._posts = make.counters("posts_parsed_total")
        self._durations = make.histograms("parser_run_duration_seconds")
        self._hwm = make.gauges("parser_hwm_age_seconds")
        self._checked = make.gauges("incremental_watermark_age_seconds")
        self._retries = make.counters("parser_retries_total")
        self._waits = make.counters("parser_floodwait_seconds_total")
        self._forced = make.counters("parser_mode_forced_total")
        self._locks = make.counters("scheduler_lock_acquired_total")
        self._ticked = make.gauge("scheduler_last_tick_ts_seconds")
        for status in ("acquired", "busy"):
            self._locks.child(status)
        for reason in _FORCED:
            # A series that starts at 0 shows its first one too as an increase.
            self._forced.child(reason)

    def attach(self, events: Events) -> None:
        """Count what happens from now on."""
        events.listen(RunEnded, self._ended)
        events.listen(ModeChosen, self._chosen)
        events.listen(CallRetried, self._retried)
        events.listen(RateLimited, self._limited)
        events.listen(LeaderElectionAttempted, lambda e: self._locks.child("acquired" if e.won else "busy").inc())
        events.listen(SchedulerTicked, lambda e: self._ticked.set(e.at.timestamp()))

    def _ended(self, event: RunEnded) -> None:
        self._runs.child(word(event.mode), word(event.status)).inc()
        self._posts.child(word(event.mode)).inc(event.parsed)
        self._durations.child(word(event.mode)).observe(event.seconds)
        if event.channel_id is None:
            return
        if event.hwm is not None:
            self._hwm.child(str(event.channel_id)).set(event.hwm.timestamp())
        if event.status in _CHECKED:
            self._checked.child(str(event.channel_id)).set(time.time())

    def _chosen(self, event: ModeChosen) -> None:
        if event.forced is not None:
            self._forced.child(word(event.forced)).inc()

    def _retried(self, event: CallRetried) -> None:
        if event.scope.partition(":")[0] == _SOURCE:
            self._retries.child(word(event.reason)).inc()

    def _limited(self, event: RateLimited) -> None:
        if event.source == _SOURCE:
            self._waits.child(event.target or "none").inc(event.seconds)
