"""The catalogue of all metrics: name, labels, help text, and the role that sets it.

Nothing else is exported: `Maker` creates a metric from its entry here and refuses any other name. Names and labels of
the use `ledger` are compatible with other systems and must not change.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

Kind = Literal["counter", "gauge", "histogram"]
Use = Literal["ledger", "operations", "detail"]
Across = Literal["sum", "largest", "latest", "newest", "age"]

LATENESS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300)
DURATION_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
FRESHNESS_BUCKETS = (1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 10800, 43200, 86400, 604800)

WORKER, LEADER, SCHEDULER, API, ALL = "worker", "leader", "scheduler", "API and leader", "every process"

USES: Mapping[Use, str] = {
    "ledger": "stable name for compatibility; on a dashboard or in an alert",
    "operations": "on the operations dashboard or in an alert",
    "detail": "for detailed analysis",
}


class Described(Struct, frozen=True):
    """One metric.

    `grows`: labels without a fixed set of values; each has at most METRICS_MAX_LABEL_VALUES values, the rest are
    `other`. `across`: how the values of a gauge are combined over processes that are scraped as one. The value of an
    `age` is set to a point in time.
    """

    name: str
    """The exported name; the series of a histogram add `_bucket`, `_sum` and `_count`."""
    kind: Kind
    labels: tuple[str, ...]
    help: str
    set_by: str
    where: Use
    grows: tuple[str, ...] = ()
    across: Across | None = None
    buckets: Sequence[float] = ()


class Chapter(Struct, frozen=True):
    """A titled group of metrics."""

    title: str
    metrics: tuple[Described, ...]
    text: str = ""


def _counter(name: str, text: str, set_by: str, where: Use, *labels: str, grows: tuple[str, ...] = ()) -> Described:
    return Described(name, "counter", labels, text, set_by, where, grows)


def _gauge(
    name: str, text: str, set_by: str, where: Use, *labels: str, across: Across, grows: tuple[str, ...] = ()
) -> Described:
    return Described(name, "gauge", labels, text, set_by, where, grows, across)


def _histogram(
    name: str,
    text: str,
    set_by: str,
    where: Use,
    *labels: str,
    buckets: Sequence[float],
    grows: tuple[str, ...] = (),
) -> Described:
    return Described(name, "histogram", labels, text, set_by, where, grows, None, buckets)


# fmt: off
CHAPTERS: tuple[Chapter, ...] = (
    Chapter("Scheduling", (
        _counter("crawler_scheduler_jobs_scheduled_total", "Fired executions, including skipped ones.",
                 LEADER, "ledger", "schedule_type", "priority"),
        _histogram("floodmark_fire_lateness_seconds", "Time from due to stored, per execution.",
                   LEADER, "operations", buckets=LATENESS_BUCKETS),
        _gauge("crawler_scheduler_is_leader", "1 on the leader, otherwise 0.",
               SCHEDULER, "ledger", across="largest"),
        _counter("crawler_scheduler_leader_election_attempts_total", "Attempts to become the leader, without renewals.",
                 SCHEDULER, "ledger"),
        _counter("scheduler_lock_acquired_total",
                 "Attempts to become the leader, without renewals: acquired, or busy if another scheduler leads.",
                 SCHEDULER, "ledger", "status"),
        _gauge("scheduler_last_tick_ts_seconds", "Time of the leader's last tick, in Unix time.",
               LEADER, "ledger", across="newest"),
        _gauge("scheduler_interval_seconds", "Longest interval between two ticks (SCHEDULE_CHECK_INTERVAL).",
               SCHEDULER, "operations", across="largest"),
        _counter("crawler_scheduler_triggers_fired_total", "Accepted webhooks and messages that can fire jobs.",
                 API, "ledger", "type"),
        _counter("crawler_scheduler_triggers_matched_total", "Jobs fired by webhooks and messages.",
                 API, "ledger", "type"),
        _counter("floodmark_triggers_refused_total", "Refused webhooks and messages, by reason.",
                 API, "detail", "type", "reason"),
        _counter("floodmark_hints_total", "Jobs that were hinted: their source has something new.",
                 ALL, "detail", "type"),
        _counter("floodmark_hints_refused_total", "Refused hints, by reason.", API, "detail", "type", "reason"),
    )),
    Chapter("Queue", (
        _gauge("crawler_scheduler_queue_depth", "Queued executions; measured every 5 s.",
               LEADER, "ledger", "priority", across="latest"),
        _counter("crawler_scheduler_queue_enqueued_total", "Executions put on the queue, including repeated puts.",
                 ALL, "ledger", "priority"),
        _counter("crawler_scheduler_queue_dequeued_total", "Leased executions.",
                 WORKER, "ledger", "priority"),
        _counter("floodmark_executions_offered_total",
                 "Executions that a worker has left to the worker that is preferred for them.",
                 WORKER, "detail"),
        _counter("floodmark_executions_requeued_total",
                 "Executions put again in case the queue has lost them.",
                 LEADER, "detail"),
        _counter("floodmark_executions_rescued_total", "Executions rescued from workers that stopped responding.",
                 LEADER, "operations"),
        # Named differently from the counter below: Prometheus drops `_total` from the name of a counter.
        _gauge("floodmark_dead_letters", "Current number of dead letters.",
               LEADER, "operations", across="latest"),
        _counter("floodmark_executions_dead_total", "Executions that became dead letters.",
                 "worker and leader", "operations", "source", grows=("source",)),
    )),
    Chapter("Work", (
        _counter("crawler_scheduler_jobs_executed_total",
                 "Outcomes by the new state of the execution; source_id is none if the job has none.",
                 WORKER, "ledger", "status", "source_id", grows=("source_id",)),
        _histogram("crawler_scheduler_job_duration_seconds", "Duration of attempts.",
                   WORKER, "ledger", "source_id", buckets=DURATION_BUCKETS, grows=("source_id",)),
        _histogram("floodmark_queue_wait_seconds", "Time from when an execution can start to its start.",
                   WORKER, "operations", buckets=LATENESS_BUCKETS),
        _gauge("crawler_scheduler_jobs_currently_running", "Running executions.",
               WORKER, "ledger", across="sum"),
        _gauge("crawler_scheduler_worker_pool_size", "Slots.",
               WORKER, "ledger", across="sum"),
        _gauge("crawler_scheduler_workers_busy", "Busy slots.",
               WORKER, "ledger", across="sum"),
        _gauge("crawler_scheduler_workers_idle", "Idle slots.",
               WORKER, "ledger", across="sum"),
        _counter("floodmark_items_total", "Collected items: new, changed or known.",
                 WORKER, "operations", "result"),
        _counter("deduplicated_messages_total", "Known items, which are not stored again.",
                 WORKER, "ledger", "source", grows=("source",)),
        _histogram("floodmark_freshness_seconds",
                   "Time from an item's creation to its storage, for the newest item of each batch "
                   "in streams that were collected before.",
                   WORKER, "operations", "source", buckets=FRESHNESS_BUCKETS, grows=("source",)),
        _counter("floodmark_lease_lost_total", "Executions that another worker took over while this worker was alive.",
                 WORKER, "operations"),
        _counter("floodmark_stale_commits_refused_total", "Refused batches of replaced workers.",
                 WORKER, "operations"),
    )),
    Chapter("Adaptive polling", (
        _histogram("floodmark_item_delay_seconds",
                   "Time from an item's creation to its storage, for each new item of a job with a budget, "
                   "except in the first poll and in a backfill.",
                   WORKER, "operations", "source", buckets=FRESHNESS_BUCKETS, grows=("source",)),
        _counter("floodmark_expected_items_total",
                 "Items that polls were expected to find; changes, if the source has no times.",
                 WORKER, "operations", "source", grows=("source",)),
        _counter("floodmark_found_items_total", "Items, or changes, that polls found.",
                 WORKER, "operations", "source", grows=("source",)),
        _counter("floodmark_budget_requests_total", "Requests that a budget paid for.",
                 WORKER, "operations", "budget", grows=("budget",)),
        _gauge("floodmark_budget_requests_allowed",
               "Requests per minute that a budget allows; a weekly budget allows more in busy hours.",
               LEADER, "operations", "budget", across="latest", grows=("budget",)),
        _gauge("floodmark_budget_price",
               "Expected delay at which a source is worth a request, in item-seconds; absent before it is known.",
               LEADER, "operations", "budget", across="latest", grows=("budget",)),
    ), text="These metrics are about jobs with a budget. `floodmark freshness` shows the delay of each source."),
    Chapter("Maintenance", (
        _gauge("floodmark_stale_sources", "Jobs whose target was not read completely for much longer than usual.",
               LEADER, "operations", across="latest"),
        _gauge("floodmark_gaps", "Known gaps in what was collected, by source; see `floodmark gaps`.",
               LEADER, "detail", "source", across="latest", grows=("source",)),
        _gauge("floodmark_accounts_parked", "Parked accounts, which were revoked or banned.",
               LEADER, "operations", across="latest"),
        _gauge("floodmark_outbox_pending", "Unsent events, counted up to 100,000.",
               LEADER, "operations", across="latest"),
        _gauge("floodmark_outbox_lag_seconds", "Age of the oldest unsent event.",
               LEADER, "operations", across="latest"),
        _gauge("floodmark_search_lag_seconds", "Age of the oldest event that is not in the search index.",
               LEADER, "operations", across="latest"),
        _counter("floodmark_search_items_total", "Items that were added to the search index or replaced in it.",
                 LEADER, "detail"),
        _counter("floodmark_store_retries_total", "Steps that were repeated after a rollback or a lost connection.",
                 ALL, "detail", "operation"),
        _counter("floodmark_step_failures_total", "Failed steps of services; they are retried.",
                 ALL, "operations", "step", grows=("step",)),
        _counter("floodmark_notifications_total", "Notifications: sent or failed.",
                 LEADER, "detail", "channel", "result"),
        _counter("floodmark_watch_events_total", "Events on which watches were evaluated.",
                 LEADER, "detail"),
        _counter("floodmark_watch_matches_total", "Matches of watches: matched, or suppressed as back-fill.",
                 LEADER, "detail", "result"),
        _gauge("floodmark_watch_lag_seconds", "Time from the storing of an item to the evaluation of watches on it.",
               LEADER, "operations", across="latest"),
        _counter("floodmark_pushes_total", "Pushes to the Pushgateway: ok or failed.",
                 ALL, "operations", "result"),
        _gauge("floodmark_last_push_timestamp_seconds", "Time of the last push, in Unix time; 0: never.",
               ALL, "operations", across="newest"),
        _gauge("floodmark_info", "1, with the running version.",
               ALL, "detail", "version", across="largest"),
    )),
    Chapter("Sinks", (
        _counter("floodmark_sink_events_total", "Events that the receiver of a sink has accepted, with repeated ones.",
                 LEADER, "operations", "sink", grows=("sink",)),
        _counter("floodmark_sink_failures_total", "Failed deliveries; they are retried.",
                 LEADER, "operations", "sink", grows=("sink",)),
        _gauge("floodmark_sink_lag_events", "Events after the position of a sink.",
               LEADER, "operations", "sink", across="latest", grows=("sink",)),
        _gauge("floodmark_sink_lag_seconds", "Age of the oldest event after the position of a sink; 0: none.",
               LEADER, "operations", "sink", across="latest", grows=("sink",)),
        _gauge("floodmark_sink_dead_letters", "Current number of events that the receiver of a sink refused.",
               LEADER, "operations", "sink", across="latest", grows=("sink",)),
        _gauge("floodmark_sink_paused", "1 while a sink is paused, otherwise 0.",
               LEADER, "operations", "sink", across="latest", grows=("sink",)),
    )),
    Chapter("Channels", (
        _counter("parser_runs_total", "Ended runs: done, empty (nothing new), waiting (rate limit) or failed.",
                 WORKER, "ledger", "mode", "status"),
        _counter("posts_parsed_total", "Collected posts, historical or incremental.",
                 WORKER, "ledger", "mode"),
        _histogram("parser_run_duration_seconds", "Duration of runs.",
                   WORKER, "ledger", "mode", buckets=DURATION_BUCKETS),
        _gauge("parser_hwm_age_seconds",
               "Time since the high-water mark of an unfinished run last moved; absent without an unfinished run.",
               LEADER, "ledger", "channel_id", across="age", grows=("channel_id",)),
        _gauge("floodmark_channel_info", "1, with the name of a channel with an unfinished run.",
               LEADER, "operations", "channel_id", "channel", across="largest", grows=("channel_id", "channel")),
        _gauge("incremental_watermark_age_seconds", "Time since a channel was last read completely.",
               WORKER, "ledger", "channel_id", across="age", grows=("channel_id",)),
        _counter("parser_mode_forced_total", "Runs in another mode than the watermark implies, by reason.",
                 WORKER, "ledger", "reason"),
        _counter("parser_retries_total", "Retried calls to Telegram.",
                 WORKER, "ledger", "reason"),
        _counter("parser_floodwait_seconds_total", "Seconds of flood waits while a channel was read.",
                 WORKER, "ledger", "channel_id", grows=("channel_id",)),
        _histogram("fetch_duration_seconds", "Time to read a page, including waits for the rate limit.",
                   WORKER, "ledger", "chat", buckets=DURATION_BUCKETS, grows=("chat",)),
        _gauge("fetch_lag_seconds", "Age of the newest message of the last page.",
               WORKER, "ledger", "chat", across="latest", grows=("chat",)),
        _counter("floodmark_media_files_total", "Downloaded files of posts.",
                 WORKER, "detail", "type"),
        _counter("floodmark_media_bytes_total", "Bytes of downloaded files of posts.",
                 WORKER, "detail"),
    ), text="These metrics are about Telegram channels. Each process exports its own values: the time since a channel "
            "was read is the\nsmallest of all processes, `min by (channel_id) (incremental_watermark_age_seconds)`."),
    Chapter("Calls", (
        _counter("retries_total", "Retried calls; the target is a channel, a site, or redis.",
                 ALL, "ledger", "target", "reason", grows=("target",)),
        _gauge("last_retry_delay_seconds", "Last delay before a retry.",
               ALL, "ledger", "target", across="latest", grows=("target",)),
        _counter("rate_limit_hits_total", "Rate-limit responses of sources.",
                 WORKER, "ledger", "source", "reason", grows=("source",)),
        _gauge("floodmark_limits_in_force", "Rate limits that currently apply.",
               LEADER, "operations", across="latest"),
        _gauge("breaker_state", "0 closed, 1 open, 2 half-open; the component is a key, as in telegram:reader1.",
               WORKER, "ledger", "component", across="latest", grows=("component",)),
        _counter("breaker_open_total", "Openings of circuit breakers, counted by the process that opened them.",
                 WORKER, "ledger", "component", grows=("component",)),
        _gauge("crawler_scheduler_circuit_breaker_state", "0 closed, 1 open, 2 half-open; domains only.",
               WORKER, "ledger", "domain", across="latest", grows=("domain",)),
        _counter("crawler_scheduler_circuit_breaker_trips_total", "Openings of the circuit breaker of a domain.",
                 WORKER, "ledger", "domain", grows=("domain",)),
    )),
    Chapter("Web", (
        _counter("floodmark_pages_total",
                 "Crawled pages: new, changed, unchanged, missing, gone, refused (by robots.txt), skipped, failed.",
                 WORKER, "operations", "result"),
        _counter("floodmark_http_requests_total",
                 "Outgoing HTTP requests, including redirects: 2xx, 3xx, 4xx, 5xx, refused (by Floodmark) or failed.",
                 ALL, "operations", "status"),
        _counter("floodmark_scans_total", "Cookie scans by result, or failed.",
                 WORKER, "operations", "result"),
    )),
)
# fmt: on

CATALOGUE: Mapping[str, Described] = {one.name: one for chapter in CHAPTERS for one in chapter.metrics}
AGES = frozenset(one.name for one in CATALOGUE.values() if one.across == "age")
