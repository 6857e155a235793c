"""Metrics of scheduling, executions, the cluster and its maintenance: `crawler_scheduler_*` (V9) and `floodmark_*`."""

from collections import Counter, defaultdict

from floodmark.model.execution import State
from floodmark.model.job import Priority
from floodmark.observability.events import (
    BatchKept,
    BatchRefused,
    DepthMeasured,
    Events,
    ExecutionsEnqueued,
    ExecutionSettled,
    ExecutionsFired,
    ExecutionsGivenUp,
    ExecutionsLeased,
    ExecutionsOffered,
    ExecutionsRequeued,
    ExecutionsRescued,
    ExecutionStarted,
    HintRefused,
    HintsGiven,
    LeaderChanged,
    LeaderElectionAttempted,
    LeaseLost,
    SlotsChanged,
    StepFailed,
    StoreRetried,
    TriggersFired,
    TriggersMatched,
    TriggersRefused,
)

from .families import MetricMaker, observe_all

NO_SOURCE = "none"
_DEAD = State.DEAD.value

_LABELS = {priority: priority.name.lower() for priority in Priority}


class SchedulingMetrics:
    """Counts fired, queued, run and rescued executions."""

    def __init__(self, make: MetricMaker) -> None:
        self._define_scheduling(make)
        self._define_executions(make)
        self._define_cluster(make)
        self._define_upkeep(make)

    def attach(self, events: Events) -> None:
        """Start to count."""
        events.listen(ExecutionsFired, self._count_fired)
        events.listen(ExecutionsEnqueued, self._count_enqueued)
        events.listen(ExecutionsLeased, self._count_leased)
        events.listen(ExecutionStarted, self._starts.put)
        events.listen(ExecutionSettled, self._ends.put)
        events.listen(BatchKept, self._count_items)
        events.listen(SlotsChanged, self._set_slots)
        events.listen(DepthMeasured, self._set_depth)
        events.listen(TriggersFired, lambda e: self._triggers_fired.child(e.type).inc(e.count))
        events.listen(TriggersMatched, lambda e: self._triggers_matched.child(e.type).inc(e.count))
        events.listen(TriggersRefused, lambda e: self._triggers_refused.child(e.type, e.reason).inc())
        events.listen(HintsGiven, lambda e: self._hints.child(e.type).inc(e.count))
        events.listen(HintRefused, lambda e: self._hints_refused.child(e.type, e.reason).inc())
        events.listen(LeaderChanged, self._set_leader)
        events.listen(LeaderElectionAttempted, lambda _: self._elections.inc())
        events.listen(LeaseLost, lambda _: self._leases_lost.inc())
        events.listen(BatchRefused, lambda _: self._refused.inc())
        events.listen(ExecutionsRescued, lambda e: self._rescued.inc(e.count))
        events.listen(ExecutionsGivenUp, self._count_dead)
        events.listen(ExecutionsOffered, lambda e: self._offered.inc(e.count))
        events.listen(ExecutionsRequeued, lambda e: self._requeued.inc(e.count))
        events.listen(StoreRetried, lambda e: self._store_retries.child(e.operation).inc())
        events.listen(StepFailed, lambda e: self._step_failures.child(e.step).inc())

    def _define_scheduling(self, make: MetricMaker) -> None:
        self._scheduled = make.counters("crawler_scheduler_jobs_scheduled_total")
        self._lateness = make.histogram("floodmark_fire_lateness_seconds")
        self._put = make.counters("crawler_scheduler_queue_enqueued_total")
        self._taken = make.counters("crawler_scheduler_queue_dequeued_total")
        self._depths = make.gauges("crawler_scheduler_queue_depth")
        for label in _LABELS.values():
            # A series that starts at 0 can be alerted on from the first scrape.
            for family in (self._put, self._taken, self._depths):
                family.child(label)
        self._triggers_fired = make.counters("crawler_scheduler_triggers_fired_total")
        self._triggers_matched = make.counters("crawler_scheduler_triggers_matched_total")
        self._triggers_refused = make.counters("floodmark_triggers_refused_total")
        self._hints = make.counters("floodmark_hints_total")
        self._hints_refused = make.counters("floodmark_hints_refused_total")

    def _define_executions(self, make: MetricMaker) -> None:
        self._executed = make.counters("crawler_scheduler_jobs_executed_total")
        self._durations = make.histograms("crawler_scheduler_job_duration_seconds")
        self._waits = make.histogram("floodmark_queue_wait_seconds")
        self._starts, self._ends = make.pile(self._count_started), make.pile(self._count_settled)
        self._running = make.gauge("crawler_scheduler_jobs_currently_running")
        self._size = make.gauge("crawler_scheduler_worker_pool_size")
        self._busy = make.gauge("crawler_scheduler_workers_busy")
        self._idle = make.gauge("crawler_scheduler_workers_idle")
        items = make.counters("floodmark_items_total")
        self._new, self._changed, self._known = (items.child(r) for r in ("new", "changed", "known"))

        self._dead = make.counters("floodmark_executions_dead_total")
        self._ages = make.histograms("floodmark_freshness_seconds")

    def _define_cluster(self, make: MetricMaker) -> None:
        self._is_leader = make.gauge("crawler_scheduler_is_leader")
        self._elections = make.counter("crawler_scheduler_leader_election_attempts_total")

    def _define_upkeep(self, make: MetricMaker) -> None:
        self._leases_lost = make.counter("floodmark_lease_lost_total")
        self._refused = make.counter("floodmark_stale_commits_refused_total")
        self._rescued = make.counter("floodmark_executions_rescued_total")
        self._offered = make.counter("floodmark_executions_offered_total")
        self._requeued = make.counter("floodmark_executions_requeued_total")
        self._store_retries = make.counters("floodmark_store_retries_total")
        self._step_failures = make.counters("floodmark_step_failures_total")

    def _count_fired(self, event: ExecutionsFired) -> None:
        self._scheduled.child(event.schedule_type, _LABELS[event.priority]).inc(len(event.lateness))
        observe_all(self._lateness, event.lateness)

    def _count_enqueued(self, event: ExecutionsEnqueued) -> None:
        for priority, count in event.counts.items():
            self._put.child(_LABELS[priority]).inc(count)

    def _count_leased(self, event: ExecutionsLeased) -> None:
        for priority, count in event.counts.items():
            self._taken.child(_LABELS[priority]).inc(count)

    def _count_started(self, started: list[ExecutionStarted]) -> None:
        observe_all(self._waits, [event.waited for event in started if event.waited is not None])

    def _count_settled(self, settled: list[ExecutionSettled]) -> None:
        durations = defaultdict[tuple[str, str | None], list[float]](list)
        for event in settled:
            durations[event.status, event.source_id].append(event.duration)
        for (status, source_id), seconds in durations.items():
            self._executed.child(status, source_id or NO_SOURCE).inc(len(seconds))
            observe_all(self._durations.child(source_id or NO_SOURCE), seconds)
        if any(status == _DEAD for status, _ in durations):
            dead = Counter(event.source or NO_SOURCE for event in settled if event.status == _DEAD)
            self._count_dead(ExecutionsGivenUp(dead))

    def _count_dead(self, event: ExecutionsGivenUp) -> None:
        for source, count in event.counts.items():
            self._dead.child(source).inc(count)

    def _count_items(self, event: BatchKept) -> None:
        if event.new:
            self._new.inc(event.new)
        if event.changed:
            self._changed.inc(event.changed)
        if event.known:
            self._known.inc(event.known)
        if event.age is not None:
            self._ages.child(event.source or NO_SOURCE).observe(event.age)

    def _set_leader(self, event: LeaderChanged) -> None:
        self._is_leader.set(event.is_leader)
        if not event.is_leader:
            # The new leader measures the depth: our last value must not stay the maximum of all instances.
            for label in _LABELS.values():
                self._depths.child(label).set(0)

    def _set_slots(self, event: SlotsChanged) -> None:
        # A worker emits this after each group of leases and of outcomes.
        self._starts.clear()
        self._ends.clear()
        self._running.set(event.busy)
        self._size.set(event.size)
        self._busy.set(event.busy)
        self._idle.set(event.size - event.busy)

    def _set_depth(self, event: DepthMeasured) -> None:
        for priority, depth in event.depths.items():
            self._depths.child(_LABELS[priority]).set(depth)
