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

from .families import DURATION_BUCKETS, Maker, word

HWM_AGE, CHECK_AGE = "parser_hwm_age_seconds", "incremental_watermark_age_seconds"
AGES = frozenset({HWM_AGE, CHECK_AGE})

_SOURCE = "telegram"
_CHECKED = ("done", "empty")


class ChannelMetrics:
    """Counts how channels are read."""

    def __init__(self, make: Maker) -> None:
        self._runs = make.counters("parser_runs", "Runs that ended.", "mode", "status")
        self._posts = make.counters("posts_parsed", "Posts collected.", "mode")
        self._durations = make.histograms(
            "parser_run_duration_seconds", "How long a run took.", "mode", buckets=DURATION_BUCKETS
        )
        self._hwm = make.ages(HWM_AGE, "Age of the newest post of a channel.", "channel_id")
        self._checked = make.ages(CHECK_AGE, "Time since a channel was last read to its end.", "channel_id")
        self._retries = make.counters("parser_retries", "Calls to Telegram made again.", "reason")
        self._waits = make.counters("parser_floodwait_seconds", "Seconds Telegram told us to wait.", "channel_id")
        self._forced = make.counters("parser_mode_forced", "Runs in another mode than the usual.", "reason")
        self._locks = make.counters("scheduler_lock_acquired", "Attempts to lead.", "status")
        self._ticked = make.newest("scheduler_last_tick_ts_seconds", "When the leader last looked for what is due.")
        for status in ("acquired", "busy"):
            self._locks.child(status)

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
