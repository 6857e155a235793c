"""Prometheus metrics, all fed by events.

`crawler_scheduler_*` are the names the ledger promises (V9); `floodmark_*` are what else an operator needs.
With PROMETHEUS_MULTIPROC_DIR set before Python starts, the processes of one machine add up at any one's /metrics.
"""

import os
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.multiprocess import MultiProcessCollector

from floodmark.job import Priority

from .events import (
    BatchKept,
    BatchRefused,
    BreakerMoved,
    DepthMeasured,
    Events,
    EventsRelayed,
    ExecutionsEnqueued,
    ExecutionSettled,
    ExecutionsFired,
    ExecutionsLeased,
    ExecutionsRequeued,
    ExecutionsRescued,
    ExecutionStarted,
    LeaderChanged,
    LeaderElectionAttempted,
    LeaseLost,
    SlotsChanged,
    StepFailed,
    StoreRetried,
    TriggersFired,
    TriggersMatched,
)

OTHER = "other"
NO_SOURCE = "none"
BREAKER_STATES = {"closed": 0, "open": 1, "half-open": 2}
LATENESS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300)
DURATION_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)

_LABELS = {priority: priority.name.lower() for priority in Priority}

M = TypeVar("M", bound=MetricWrapperBase)


def render(registry: CollectorRegistry) -> bytes:
    """The text Prometheus scrapes; in multiprocess mode of all processes, whatever the registry."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return generate_latest(registry)
    everyone = CollectorRegistry()
    MultiProcessCollector(everyone)  # type: ignore[no-untyped-call]  # the library leaves it unannotated
    return generate_latest(everyone)


class _Family(Generic[M]):
    """The children of one metric, each found by one lookup.

    The label at position `grows` takes at most `limit` values; later ones share the child "other".
    """

    def __init__(self, metric: M, limit: int, grows: int = 0) -> None:
        self._metric, self._limit, self._grows = metric, limit, grows
        self._children: dict[tuple[str, ...], M] = {}
        self._values: set[str] = set()

    def child(self, *labels: str) -> M:
        return self._children.get(labels) or self._admit(labels)

    def _admit(self, labels: tuple[str, ...]) -> M:
        value = labels[self._grows]
        if value not in self._values and len(self._values) >= self._limit:
            # Only the folded labels are remembered: the values turned away have no end.
            labels = (*labels[: self._grows], OTHER, *labels[self._grows + 1 :])
        else:
            self._values.add(value)
        if labels not in self._children:
            self._children[labels] = self._metric.labels(*labels)
        return self._children[labels]


class Metrics:
    """All metrics of one process, on a registry of their own."""

    def __init__(self, registry: CollectorRegistry, max_label_values: int) -> None:
        self.registry = registry
        self._limit = max_label_values
        self._define_scheduling()
        self._define_executions()
        self._define_cluster()
        self._define_upkeep()

    def attach(self, events: Events) -> None:
        """Count what happens from now on."""
        events.listen(ExecutionsFired, self._fired)
        events.listen(ExecutionsEnqueued, self._enqueued)
        events.listen(ExecutionsLeased, self._leased)
        events.listen(ExecutionStarted, self._started)
        events.listen(ExecutionSettled, self._settled)
        events.listen(BatchKept, self._kept)
        events.listen(SlotsChanged, self._slots)
        events.listen(DepthMeasured, self._depth)
        events.listen(TriggersFired, lambda e: self._triggers_fired.child(e.type).inc(e.count))
        events.listen(TriggersMatched, lambda e: self._triggers_matched.child(e.type).inc(e.count))
        events.listen(BreakerMoved, self._breaker)
        events.listen(LeaderChanged, lambda e: self._is_leader.set(e.is_leader))
        events.listen(LeaderElectionAttempted, lambda _: self._elections.inc())
        events.listen(LeaseLost, lambda _: self._leases_lost.inc())
        events.listen(BatchRefused, lambda _: self._refused.inc())
        events.listen(ExecutionsRescued, lambda e: self._rescued.inc(e.count))
        events.listen(ExecutionsRequeued, lambda e: self._requeued.inc(e.count))
        events.listen(EventsRelayed, lambda e: self._outbox_lag.set(e.lag))
        events.listen(StoreRetried, lambda e: self._store_retries.child(e.operation).inc())
        events.listen(StepFailed, lambda e: self._step_failures.child(e.step).inc())

    def _define_scheduling(self) -> None:
        self._scheduled = self._counters(
            "crawler_scheduler_jobs_scheduled", "Executions fired.", "schedule_type", "priority"
        )
        self._lateness = Histogram(
            "floodmark_fire_lateness_seconds",
            "From the instant an execution was due until it was written.",
            buckets=LATENESS_BUCKETS,
            registry=self.registry,
        )
        self._put = self._counters("crawler_scheduler_queue_enqueued", "Executions put.", "priority")
        self._taken = self._counters("crawler_scheduler_queue_dequeued", "Executions leased.", "priority")
        self._depths = self._gauges("crawler_scheduler_queue_depth", "Executions waiting.", "priority")
        for label in _LABELS.values():
            # A series that starts at 0 can be alerted on from the first scrape.
            for family in (self._put, self._taken, self._depths):
                family.child(label)
        self._triggers_fired = self._counters("crawler_scheduler_triggers_fired", "Triggers received.", "type")
        self._triggers_matched = self._counters("crawler_scheduler_triggers_matched", "Jobs triggered.", "type")

    def _define_executions(self) -> None:
        self._executed = self._counters(
            "crawler_scheduler_jobs_executed", "Executions settled.", "status", "source_id", grows=1
        )
        self._durations = _Family(
            Histogram(
                "crawler_scheduler_job_duration_seconds",
                "How long executions ran.",
                ["source_id"],
                buckets=DURATION_BUCKETS,
                registry=self.registry,
            ),
            self._limit,
        )
        self._waits = Histogram(
            "floodmark_queue_wait_seconds",
            "From the moment an execution could have run until it did.",
            buckets=LATENESS_BUCKETS,
            registry=self.registry,
        )
        self._running = self._sum("crawler_scheduler_jobs_currently_running", "Executions running.")
        self._size = self._sum("crawler_scheduler_worker_pool_size", "Slots.")
        self._busy = self._sum("crawler_scheduler_workers_busy", "Slots that run an execution.")
        self._idle = self._sum("crawler_scheduler_workers_idle", "Slots that are free.")
        items = self._counters("floodmark_items", "Items collected.", "result")
        self._new, self._changed, self._known = (items.child(r) for r in ("new", "changed", "known"))

    def _define_cluster(self) -> None:
        self._is_leader = Gauge(
            "crawler_scheduler_is_leader",
            "1 on the instance that schedules.",
            registry=self.registry,
            multiprocess_mode="livemax",
        )
        self._elections = self._counter("crawler_scheduler_leader_election_attempts", "Attempts to lead.")
        self._breakers = self._gauges(
            "crawler_scheduler_circuit_breaker_state", "0 closed, 1 open, 2 half-open.", "domain"
        )
        self._trips = self._counters("crawler_scheduler_circuit_breaker_trips", "Times a breaker opened.", "domain")

    def _define_upkeep(self) -> None:
        self._leases_lost = self._counter("floodmark_lease_lost", "Executions taken from a live worker.")
        self._refused = self._counter("floodmark_stale_commits_refused", "Commits by replaced workers.")
        self._rescued = self._counter("floodmark_executions_rescued", "Executions of silent workers.")
        self._requeued = self._counter("floodmark_executions_requeued", "Executions the queue had lost.")
        self._outbox_lag = Gauge(
            "floodmark_outbox_lag_seconds",
            "Age of the oldest event not yet sent.",
            registry=self.registry,
            multiprocess_mode="livemostrecent",
        )
        self._store_retries = self._counters("floodmark_store_retries", "Statements repeated.", "operation")
        self._step_failures = self._counters("floodmark_step_failures", "Steps that raised.", "step")

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, registry=self.registry)

    def _counters(self, name: str, text: str, *labels: str, grows: int = 0) -> _Family[Counter]:
        return _Family(Counter(name, text, labels, registry=self.registry), self._limit, grows)

    def _gauges(self, name: str, text: str, *labels: str) -> _Family[Gauge]:
        # Everyone sees the same queue and the same breakers: the last one to look knows best.
        gauge = Gauge(name, text, labels, registry=self.registry, multiprocess_mode="livemostrecent")
        return _Family(gauge, self._limit)

    def _sum(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, registry=self.registry, multiprocess_mode="livesum")

    def _fired(self, event: ExecutionsFired) -> None:
        self._scheduled.child(event.schedule_type, _LABELS[event.priority]).inc(event.count)
        for lateness in event.lateness:
            self._lateness.observe(lateness)

    def _enqueued(self, event: ExecutionsEnqueued) -> None:
        for priority, count in event.counts.items():
            self._put.child(_LABELS[priority]).inc(count)

    def _leased(self, event: ExecutionsLeased) -> None:
        for priority, count in event.counts.items():
            self._taken.child(_LABELS[priority]).inc(count)

    def _started(self, event: ExecutionStarted) -> None:
        if event.waited is not None:
            self._waits.observe(event.waited)

    def _settled(self, event: ExecutionSettled) -> None:
        source = event.source_id or NO_SOURCE
        self._executed.child(event.status, source).inc()
        self._durations.child(source).observe(event.duration)

    def _kept(self, event: BatchKept) -> None:
        if event.new:
            self._new.inc(event.new)
        if event.changed:
            self._changed.inc(event.changed)
        if event.known:
            self._known.inc(event.known)

    def _slots(self, event: SlotsChanged) -> None:
        self._running.set(event.busy)
        self._size.set(event.size)
        self._busy.set(event.busy)
        self._idle.set(event.size - event.busy)

    def _depth(self, event: DepthMeasured) -> None:
        for priority, depth in event.depths.items():
            self._depths.child(_LABELS[priority]).set(depth)

    def _breaker(self, event: BreakerMoved) -> None:
        self._breakers.child(event.domain).set(BREAKER_STATES[event.state])
        if event.state == "open":
            self._trips.child(event.domain).inc()
