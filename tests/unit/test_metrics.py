"""Metrics: the promised names, fed by events, bounded in their labels, also over several processes."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import time_machine
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.parser import text_string_to_metric_families

from floodmark.model.job import Priority
from floodmark.observability.events import (
    BatchKept,
    BatchRefused,
    BreakerMoved,
    BudgetsMeasured,
    BudgetTerms,
    CallRetried,
    DepthMeasured,
    Events,
    EventsRelayed,
    ExecutionsEnqueued,
    ExecutionSettled,
    ExecutionsFired,
    ExecutionsLeased,
    ExecutionsOffered,
    ExecutionsRequeued,
    ExecutionsRescued,
    ExecutionStarted,
    FetchTimed,
    HintRefused,
    HintsGiven,
    InternalEvent,
    ItemsIndexed,
    LeaderChanged,
    LeaderElectionAttempted,
    LeaseLost,
    LimitSet,
    ModeChosen,
    PollKept,
    RateLimited,
    RequestsSpent,
    RunEnded,
    SchedulerTicked,
    SlotsChanged,
    StepFailed,
    StoreRetried,
    TriggersFired,
    TriggersMatched,
    UnfinishedChannel,
    UnfinishedChannelsMeasured,
)
from floodmark.observability.metrics import Metrics, render
from floodmark.observability.metrics.families import observe_all

PROMISED = {
    "jobs_scheduled_total": {"schedule_type", "priority"},
    "jobs_executed_total": {"status", "source_id"},
    "job_duration_seconds_sum": {"source_id"},
    "jobs_currently_running": set[str](),
    "worker_pool_size": set[str](),
    "workers_busy": set[str](),
    "workers_idle": set[str](),
    "queue_depth": {"priority"},
    "queue_enqueued_total": {"priority"},
    "queue_dequeued_total": {"priority"},
    "triggers_fired_total": {"type"},
    "triggers_matched_total": {"type"},
    "circuit_breaker_state": {"domain"},
    "circuit_breaker_trips_total": {"domain"},
    "is_leader": set[str](),
    "leader_election_attempts_total": set[str](),
}

HAPPENED: tuple[InternalEvent, ...] = (
    ExecutionsFired("cron", Priority.HIGH, (0.01, 0.2)),
    ExecutionsEnqueued({Priority.HIGH: 2}),
    ExecutionsLeased({Priority.HIGH: 1, Priority.LOW: 1}),
    ExecutionStarted("a", "1", 1, 0.5),
    ExecutionSettled("a", "s1", "1", "done", 1.5, 3, 2, 1),
    BatchKept("s", 3, 2, 1, "telegram"),
    BatchRefused("s", 7),
    LeaseLost("1", "a"),
    SlotsChanged(10, 4),
    DepthMeasured({Priority.NORMAL: 9}),
    TriggersFired("webhook"),
    TriggersMatched("webhook", 3),
    HintsGiven("webhook", 2),
    HintRefused("websub", "altered"),
    BreakerMoved("example.org", "open"),
    LeaderElectionAttempted(True),
    LeaderChanged(True, "me"),
    ExecutionsRescued(2),
    ExecutionsOffered(4),
    ExecutionsRequeued(3),
    EventsRelayed(5, 1.25),
    ItemsIndexed(7, 2.5),
    StoreRetried("lease", "locked"),
    StepFailed("pruner", "boom"),
    LimitSet("account 1", datetime(2026, 1, 1, tzinfo=UTC), "flood wait"),
)


# Those of channels and of calls (T9, F7), each with its labels.
PROMISED_ELSEWHERE = {
    "parser_runs_total": {"mode", "status"},
    "posts_parsed_total": {"mode"},
    "parser_run_duration_seconds_bucket": {"mode", "le"},
    "parser_hwm_age_seconds": {"channel_id"},
    "incremental_watermark_age_seconds": {"channel_id"},
    "scheduler_lock_acquired_total": {"status"},
    "parser_retries_total": {"reason"},
    "parser_floodwait_seconds_total": {"channel_id"},
    "parser_mode_forced_total": {"reason"},
    "scheduler_last_tick_ts_seconds": set[str](),
    "retries_total": {"target", "reason"},
    "rate_limit_hits_total": {"source", "reason"},
    "last_retry_delay_seconds": {"target"},
    "breaker_state": {"component"},
    "breaker_open_total": {"component"},
    "fetch_duration_seconds_sum": {"chat"},
    "fetch_lag_seconds": {"chat"},
    "deduplicated_messages_total": {"source"},
}

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
CALLED: tuple[InternalEvent, ...] = (
    CallRetried("harbour", "getHistory", 1, 0.25, "TimeoutError", "telegram:reader1"),
    CallRetried("redis", "publish", 1, 0.5, "ConnectionError", "redis"),
    RateLimited("telegram", "telegram:reader1", "getHistory", "1000001", 30.5, "FloodWaitError"),
    BreakerMoved("telegram:reader1", "open"),
    BreakerMoved("web:example.org", "open"),
    ModeChosen("telegram:@harbour", "historical", "stale_lpa"),
    ModeChosen("telegram:@harbour", "incremental"),
    FetchTimed("@harbour", 0.2, 12.0),
    FetchTimed("@harbour", 0.3),
    RunEnded("telegram:@harbour", 1000001, "incremental", "done", 1.5, 12),
    RunEnded("telegram:@quay", 1000002, "incremental", "failed", 0.5),
    UnfinishedChannelsMeasured((UnfinishedChannel("1000002", "@quay", NOON - timedelta(hours=2)),)),
    RunEnded("telegram:@new", None, "historical", "failed", 0.5),
    SchedulerTicked(NOON),
)


class Watched:
    """Metrics on their own registry, with a way to read them."""

    def __init__(self, limit: int = 200) -> None:
        self.registry, self.events = CollectorRegistry(), Events()
        Metrics(self.registry, limit).attach(self.events)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.mark.spec("V9")
def test_every_promised_metric_is_exported_with_its_labels(watched: Watched) -> None:
    for event in HAPPENED:
        watched.events.emit(event)
    text = render(watched.registry).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    labels = {sample.name: set(sample.labels) for sample in samples}
    assert {name: labels.get(f"crawler_scheduler_{name}") for name in PROMISED} == PROMISED
    assert not watched.events.failures


@pytest.mark.spec("V9")
def test_events_move_the_metrics_they_are_about(watched: Watched) -> None:
    for event in HAPPENED:
        watched.events.emit(event)
    ours, value = "crawler_scheduler_", watched.value
    assert value(f"{ours}jobs_scheduled_total", schedule_type="cron", priority="high") == 2
    assert value(f"{ours}queue_enqueued_total", priority="high") == 2
    assert value(f"{ours}queue_enqueued_total", priority="normal") == 0
    assert value(f"{ours}queue_dequeued_total", priority="low") == 1
    assert value(f"{ours}jobs_executed_total", status="done", source_id="s1") == 1
    assert value(f"{ours}job_duration_seconds_sum", source_id="s1") == 1.5
    assert value(f"{ours}jobs_currently_running") == 4
    assert (value(f"{ours}workers_busy"), value(f"{ours}workers_idle")) == (4, 6)
    assert value(f"{ours}worker_pool_size") == 10
    assert value(f"{ours}queue_depth", priority="normal") == 9
    assert value(f"{ours}triggers_matched_total", type="webhook") == 3
    assert value(f"{ours}circuit_breaker_state", domain="example.org") == 1
    assert value(f"{ours}circuit_breaker_trips_total", domain="example.org") == 1
    assert value(f"{ours}is_leader") == 1
    assert value(f"{ours}leader_election_attempts_total") == 1


def test_what_else_an_operator_needs_is_counted_too(watched: Watched) -> None:
    for event in HAPPENED:
        watched.events.emit(event)
    assert [watched.value("floodmark_items_total", result=r) for r in ("new", "changed", "known")] == [3, 2, 1]
    assert watched.value("floodmark_fire_lateness_seconds_count") == 2
    assert watched.value("floodmark_queue_wait_seconds_sum") == 0.5
    assert watched.value("floodmark_lease_lost_total") == 1
    assert watched.value("floodmark_stale_commits_refused_total") == 1
    assert watched.value("floodmark_outbox_lag_seconds") == 1.25
    assert watched.value("floodmark_executions_rescued_total") == 2
    assert watched.value("floodmark_executions_offered_total") == 4
    assert watched.value("floodmark_executions_requeued_total") == 3
    assert watched.value("floodmark_store_retries_total", operation="lease") == 1
    assert watched.value("floodmark_step_failures_total", step="pruner") == 1


@pytest.mark.spec("T9", "F7")
def test_every_promised_metric_of_channels_and_calls_is_exported(watched: Watched) -> None:
    for event in (*HAPPENED, *CALLED):
        watched.events.emit(event)
    text = render(watched.registry).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    labels = {sample.name: set(sample.labels) for sample in samples}
    assert {name: labels.get(name) for name in PROMISED_ELSEWHERE} == PROMISED_ELSEWHERE
    assert not watched.events.failures


@pytest.mark.spec("T9")
def test_what_channels_do_moves_their_metrics(watched: Watched) -> None:
    for event in (*HAPPENED, *CALLED):
        watched.events.emit(event)
    value = watched.value
    assert value("parser_runs_total", mode="incremental", status="done") == 1
    assert value("parser_runs_total", mode="historical", status="failed") == 1
    assert value("posts_parsed_total", mode="incremental") == 12
    assert value("parser_run_duration_seconds_sum", mode="incremental") == 2.0
    assert value("parser_mode_forced_total", reason="stale_lpa") == 1
    assert value("parser_floodwait_seconds_total", channel_id="1000001") == 30.5
    assert value("parser_retries_total", reason="TimeoutError") == 1
    assert value("parser_retries_total", reason="ConnectionError") is None, "Redis is no channel"
    assert value("scheduler_lock_acquired_total", status="acquired") == 1
    assert value("scheduler_lock_acquired_total", status="busy") == 0
    assert value("scheduler_last_tick_ts_seconds") == NOON.timestamp()


@pytest.mark.spec("T9")
def test_ages_grow_while_nothing_happens(watched: Watched) -> None:
    hwm, checked = "parser_hwm_age_seconds", "incremental_watermark_age_seconds"
    with time_machine.travel(NOON, tick=False) as travel:
        for event in CALLED:
            watched.events.emit(event)
        assert watched.value(checked, channel_id="1000001") == 0
        travel.shift(60)
        assert watched.value(checked, channel_id="1000001") == 60
        assert watched.value(hwm, channel_id="1000002") == 7260
        assert watched.value(checked, channel_id="1000002") is None, "it could not be read"
        assert f'{hwm}{{channel_id="1000002"}} 7260.0' in render(watched.registry).decode()


@pytest.mark.spec("T3", "T9")
def test_a_high_water_mark_has_an_age_only_while_its_run_is_unfinished() -> None:
    watched = Watched(limit=2)
    hwm, names = "parser_hwm_age_seconds", "floodmark_channel_info"

    def measure(*numbers: int) -> list[float | None]:
        channels = [UnfinishedChannel(str(n), f"@{n}", NOON - timedelta(hours=9 - n)) for n in numbers]
        watched.events.emit(UnfinishedChannelsMeasured(tuple(channels)))
        return [watched.value(hwm, channel_id=str(n)) for n in (1, 2, 3, 4)]

    with time_machine.travel(NOON, tick=False):
        assert measure(1, 2) == [8 * 3600, 7 * 3600, None, None]
        assert watched.value(names, channel_id="1", channel="@1") == 1
        # The first two, which stand still for longest; those that have finished make room.
        assert measure(2, 3, 4) == [None, 7 * 3600, 6 * 3600, None]
        assert measure() == [None] * 4
        assert hwm + "{" not in render(watched.registry).decode()
        measure(1)
        watched.events.emit(LeaderChanged(False, "another"))
        assert watched.value(hwm, channel_id="1") is None, "another leader shows it"
    assert not watched.events.failures


@pytest.mark.spec("F7")
def test_what_calls_do_moves_their_metrics(watched: Watched) -> None:
    for event in (*HAPPENED, *CALLED):
        watched.events.emit(event)
    value = watched.value
    assert value("retries_total", target="harbour", reason="TimeoutError") == 1
    assert value("retries_total", target="redis", reason="ConnectionError") == 1
    assert value("last_retry_delay_seconds", target="redis") == 0.5
    assert value("rate_limit_hits_total", source="telegram", reason="FloodWaitError") == 1
    assert value("breaker_state", component="telegram:reader1") == 1
    assert value("breaker_open_total", component="telegram:reader1") == 1
    assert value("crawler_scheduler_circuit_breaker_trips_total", domain="example.org") == 2
    assert value("crawler_scheduler_circuit_breaker_state", domain="telegram:reader1") is None
    assert value("fetch_duration_seconds_count", chat="@harbour") == 2
    assert value("fetch_lag_seconds", chat="@harbour") == 12
    assert value("deduplicated_messages_total", source="telegram") == 1


@pytest.mark.spec("F7", "G6")
def test_a_reason_is_one_word_of_a_closed_set_never_free_text(watched: Watched) -> None:
    for number in range(100):
        watched.events.emit(CallRetried("a", "m", 1, 0.1, f"server said {number}", "telegram:a"))
        watched.events.emit(RateLimited("telegram", "telegram:a", "m", "c", 1, f"until {number}:00"))
    assert watched.value("retries_total", target="a", reason="other") == 100
    assert watched.value("parser_retries_total", reason="other") == 100
    assert watched.value("rate_limit_hits_total", source="telegram", reason="other") == 100


@pytest.mark.spec("F7")
def test_a_breaker_that_another_process_opened_is_shown_but_not_counted_twice(watched: Watched) -> None:
    watched.events.emit(BreakerMoved("telegram:a", "open", elsewhere=True))
    assert watched.value("breaker_state", component="telegram:a") == 1
    assert watched.value("breaker_open_total", component="telegram:a") is None


@pytest.mark.spec("F2", "F7")
def test_a_breaker_is_counted_when_it_opens_only(watched: Watched) -> None:
    for state, number in (("open", 1), ("half-open", 2), ("open", 1), ("closed", 0)):
        watched.events.emit(BreakerMoved("d", state))
        assert watched.value("crawler_scheduler_circuit_breaker_state", domain="d") == number
    assert watched.value("crawler_scheduler_circuit_breaker_trips_total", domain="d") == 2


@pytest.mark.spec("G6")
def test_the_values_of_a_growing_label_are_bounded() -> None:
    watched = Watched(limit=3)
    for number in range(1000):
        watched.events.emit(ExecutionSettled("a", f"source-{number}", "1", "done", 0.1))
        watched.events.emit(BreakerMoved(f"domain-{number}", "open"))
        watched.events.emit(CallRetried(f"chat-{number}", "m", 1, 0.1, "OSError"))
        watched.events.emit(RunEnded("s", number, "incremental", "done", 0.1, 1))
    watched.events.emit(ExecutionSettled("a", "source-999", "1", "dead", 0.1))
    watched.events.emit(ExecutionSettled("a", "source-1", "1", "dead", 0.1))

    text = render(watched.registry).decode()
    assert text.count("crawler_scheduler_job_duration_seconds_sum{") == 4
    executed, value = "crawler_scheduler_jobs_executed_total", watched.value
    assert value(executed, status="done", source_id="other") == 997
    assert value(executed, status="dead", source_id="other") == 1
    assert value(executed, status="dead", source_id="source-1") == 1
    assert value("crawler_scheduler_circuit_breaker_trips_total", domain="other") == 997
    assert value("retries_total", target="other", reason="OSError") == 997
    assert text.count("incremental_watermark_age_seconds{") == 4


def test_an_execution_without_a_source_id_is_counted_as_none(watched: Watched) -> None:
    watched.events.emit(ExecutionSettled("a", None, "1", "done", 0.1))
    assert watched.value("crawler_scheduler_jobs_executed_total", status="done", source_id="none") == 1


def test_many_values_observed_at_once_are_spread_as_one_by_one() -> None:
    registry, values = CollectorRegistry(), [0.0, 0.5, 0.5000001, 1.0, 7.0, 1e9]
    single, together = (Histogram(name, name, buckets=(0.5, 1, 5), registry=registry) for name in ("single", "many"))
    for value in values:
        single.observe(value)
    observe_all(together, values)
    for le in ("0.5", "1.0", "5.0", "+Inf"):
        assert registry.get_sample_value("many_bucket", {"le": le}) == registry.get_sample_value(
            "single_bucket", {"le": le}
        )
    assert registry.get_sample_value("many_sum") == registry.get_sample_value("single_sum")


def test_what_happens_often_is_counted_once_whoever_asks_first(watched: Watched) -> None:
    """By the worker after each group of outcomes, or by whoever reads in between."""
    executed = "crawler_scheduler_jobs_executed_total"
    watched.events.emit(ExecutionSettled("a", "s", "1", "done", 0.1))
    assert watched.value(executed, status="done", source_id="s") == 1
    watched.events.emit(SlotsChanged(10, 4))
    assert watched.value(executed, status="done", source_id="s") == 1
    watched.events.emit(ExecutionSettled("a", "s", "2", "dead", 0.1, source="telegram"))
    watched.events.emit(SlotsChanged(10, 4))
    assert watched.value("floodmark_executions_dead_total", source="telegram") == 1


def test_two_sets_of_metrics_do_not_touch_each_other(watched: Watched) -> None:
    other = Watched()
    watched.events.emit(ExecutionsRescued(1))
    assert other.value("floodmark_executions_rescued_total") == 0


CHILD = """
import sys
from datetime import UTC, datetime, timedelta
from prometheus_client import CollectorRegistry
from floodmark.observability.events import *
from floodmark.observability.metrics import Metrics, render

registry, events = CollectorRegistry(), Events()
Metrics(registry, 10).attach(events)
events.emit(ExecutionSettled("a", "s", "1", "done", 0.5))
events.emit(SlotsChanged(10, int(sys.argv[1])))
events.emit(LeaderChanged(sys.argv[1] == "3", None))
hours = timedelta(hours=int(sys.argv[1]))
events.emit(UnfinishedChannelsMeasured((UnfinishedChannel("7", "@seven", datetime.now(UTC) - hours),)))
assert not events.failures, events.failures
print("ready", flush=True)
sys.stdin.readline()
if sys.argv[1] == "4":
    sys.stdout.write(render(registry).decode())
"""


def process(busy: int, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", CHILD, str(busy)]
    environ = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)


def ready(child: subprocess.Popen[str]) -> bool:
    assert child.stdout is not None
    return child.stdout.readline() == "ready\n"


def test_several_processes_add_up(tmp_path: Path) -> None:
    """Multiprocess mode is chosen before Python starts, so this needs processes of its own."""
    with process(3, tmp_path) as first, process(4, tmp_path) as second:
        assert ready(first)
        assert ready(second)
        text, _ = second.communicate("\n")
        first.communicate("\n")
    lines = text.splitlines()
    assert "crawler_scheduler_workers_busy 7.0" in lines
    assert "crawler_scheduler_worker_pool_size 20.0" in lines
    assert 'crawler_scheduler_jobs_executed_total{source_id="s",status="done"} 2.0' in lines
    assert "crawler_scheduler_is_leader 1.0" in lines
    [age] = [line.split()[1] for line in lines if line.startswith('parser_hwm_age_seconds{channel_id="7"}')]
    assert 3 * 3600 <= float(age) < 3 * 3600 + 100, "the latest move that any of them has seen"


@pytest.mark.spec("B4")
def test_polls_and_budgets_move_their_metrics(watched: Watched) -> None:
    watched.events.emit(PollKept("telegram", 2, 2.4, (4.0, 40.0)))
    watched.events.emit(PollKept("telegram", 0, 0.1))
    watched.events.emit(RequestsSpent("news", 3))
    watched.events.emit(BudgetsMeasured((BudgetTerms("news", 30, 812.5), BudgetTerms("new", 5))))
    value = watched.value
    assert value("floodmark_item_delay_seconds_count", source="telegram") == 2
    assert value("floodmark_item_delay_seconds_sum", source="telegram") == 44
    assert value("floodmark_item_delay_seconds_bucket", source="telegram", le="5.0") == 1
    assert value("floodmark_expected_items_total", source="telegram") == 2.5
    assert value("floodmark_found_items_total", source="telegram") == 2
    assert value("floodmark_budget_requests_total", budget="news") == 3
    assert [value("floodmark_budget_requests_allowed", budget=name) for name in ("news", "new")] == [30, 5]
    assert [value("floodmark_budget_price", budget=name) for name in ("news", "new")] == [812.5, None]
    watched.events.emit(LeaderChanged(False, "another"))
    assert value("floodmark_budget_requests_allowed", budget="news") is None, "the new leader exports it"
    assert not watched.events.failures
