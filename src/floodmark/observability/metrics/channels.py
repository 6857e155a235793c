"""Metrics of Telegram channels and of the scheduler's freshness (T9)."""

import math
import time

from floodmark.observability.events import (
    CallRetried,
    Events,
    LeaderChanged,
    LeaderElectionAttempted,
    MediaStored,
    ModeChosen,
    RateLimited,
    RunEnded,
    SchedulerStarted,
    SchedulerTicked,
    UnfinishedChannel,
    UnfinishedChannelsMeasured,
)

from .families import MetricMaker, word

_SOURCE = "telegram"
_CHECKED = ("done", "empty")
_FORCED = ("stale_lpa", "feature_off", "override")


class ChannelMetrics:
    """Counts runs of channels."""

    def __init__(self, make: MetricMaker) -> None:
        self._runs = make.counters("parser_runs_total")
        self._posts = make.counters("posts_parsed_total")
        self._durations = make.histograms("parser_run_duration_seconds")
        self._hwm = make.gauges("parser_hwm_age_seconds")
        self._names = make.gauges("floodmark_channel_info")
        self._checked = make.gauges("incremental_watermark_age_seconds")
        self._retries = make.counters("parser_retries_total")
        self._waits = make.counters("parser_floodwait_seconds_total")
        self._forced = make.counters("parser_mode_forced_total")
        self._locks = make.counters("scheduler_lock_acquired_total")
        self._ticked = make.gauge("scheduler_last_tick_ts_seconds")
        self._files, self._bytes = (
            make.counters("floodmark_media_files_total"),
            make.counter("floodmark_media_bytes_total"),
        )
        self._interval = make.gauge("scheduler_interval_seconds")
        for status in ("acquired", "busy"):
            self._locks.child(status)
        for reason in _FORCED:
            # A series that starts at 0 also shows the first one as an increase.
            self._forced.child(reason)

    def attach(self, events: Events) -> None:
        """Start to count."""
        events.listen(RunEnded, self._count_run)
        events.listen(MediaStored, self._count_file)
        events.listen(UnfinishedChannelsMeasured, self._show_unfinished)
        events.listen(LeaderChanged, self._reset_former_leader)
        events.listen(ModeChosen, self._count_mode)
        events.listen(CallRetried, self._count_retry)
        events.listen(RateLimited, self._count_wait)
        events.listen(LeaderElectionAttempted, lambda e: self._locks.child("acquired" if e.won else "busy").inc())
        events.listen(SchedulerStarted, lambda e: self._interval.set(e.interval))
        events.listen(SchedulerTicked, lambda e: self._ticked.set(e.at.timestamp()))

    def _count_file(self, event: MediaStored) -> None:
        self._files.child(word(event.kind)).inc()
        self._bytes.inc(event.size)

    def _count_run(self, event: RunEnded) -> None:
        self._runs.child(word(event.mode), word(event.status)).inc()
        self._posts.child(word(event.mode)).inc(event.parsed)
        self._durations.child(word(event.mode)).observe(event.seconds)
        if event.channel_id is not None and event.status in _CHECKED:
            self._checked.child(str(event.channel_id)).set(time.time())

    def _show_unfinished(self, event: UnfinishedChannelsMeasured) -> None:
        """Export the unfinished channels on the leader; a former leader exports none."""
        # If two jobs read a channel, the one that is behind for longer.
        longest: dict[str, UnfinishedChannel] = {}
        for channel in event.channels:
            longest.setdefault(channel.channel_id, channel)
        self._hwm.show_only(
            {(number,): channel.moved_at.timestamp() for number, channel in longest.items()}, absent=math.inf
        )
        self._names.show_only({(number, channel.name): 1 for number, channel in longest.items()}, absent=1)

    def _reset_former_leader(self, event: LeaderChanged) -> None:
        if not event.is_leader:
            self._show_unfinished(UnfinishedChannelsMeasured())

    def _count_mode(self, event: ModeChosen) -> None:
        if event.forced is not None:
            self._forced.child(word(event.forced)).inc()

    def _count_retry(self, event: CallRetried) -> None:
        if event.scope.partition(":")[0] == _SOURCE:
            self._retries.child(word(event.reason)).inc()

    def _count_wait(self, event: RateLimited) -> None:
        if event.source == _SOURCE:
            self._waits.child(event.target or "none").inc(event.seconds)
