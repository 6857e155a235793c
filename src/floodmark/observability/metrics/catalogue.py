"""Every metric there is, each once: what it is called, how it is labelled, what it says, and who sets it.

Nothing else is exported: `Maker` makes a metric from its line here and refuses any other name. Names and labels in the
chapters of the ledger are promises to others; `floodmark_*` are ours.
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
    "ledger": "promised by name; on a dashboard or in an alert",
    "operations": "on the dashboard of operations or in an alert",
    "detail": "for whoever looks closer",
}


class Described(Struct, frozen=True):
    """One metric.

    `grows`: the labels without a fixed set of values; each takes METRICS_MAX_LABEL_VALUES of them, the rest are
    `other`. `across`: what several processes that are scraped as one show, of a gauge. An `age` is set to a moment.
    """

    name: str
    """As it is exported; a histogram's series add `_bucket`, `_sum` and `_count`."""
    kind: Kind
    labels: tuple[str, ...]
    help: str
    set_by: str
    where: Use
    grows: tuple[str, ...] = ()
    across: Across | None = None
    buckets: Sequence[float] = ()


class Chapter(Struct, frozen=True):
    """Metrics that are read together."""

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
        _counter("crawler_scheduler_jobs_scheduled_total", "Executions fired, skipped ones included.",
                 LEADER, "ledger", "schedule_type", "priority"),
        _histogram("floodmark_fire_lateness_seconds", "From the instant an execution was due until it was written.",
                   LEADER, "operations", buckets=LATENESS_BUCKETS),
        _gauge("crawler_scheduler_is_leader", "1 on the instance that schedules.",
               SCHEDULER, "ledger", across="largest"),
        _counter("crawler_scheduler_leader_election_attempts_total", "Attempts to lead, renewals not counted.",
                 SCHEDULER, "ledger"),
        _counter("scheduler_lock_acquired_total",
                 "Attempts to lead: acquired, or busy when another does; renewals are not counted.",
                 SCHEDULER, "ledger", "status"),
        _gauge("scheduler_last_tick_ts_seconds", "When the leader last looked for what is due, in Unix time.",
               LEADER, "ledger", across="newest"),
        _gauge("scheduler_interval_seconds", "How often a scheduler ticks at least (SCHEDULE_CHECK_INTERVAL).",
               SCHEDULER, "operations", across="largest"),
        _counter("crawler_scheduler_triggers_fired_total", "Webhooks and messages received that can fire jobs.",
                 API, "ledger", "type"),
        _counter("crawler_scheduler_triggers_matched_total", "Jobs fired by webhooks and messages.",
                 API, "ledger", "type"),
        _counter("floodmark_triggers_refused_total", "Webhooks and messages refused, by reason.",
                 API, "detail", "type", "reason"),
    )),
    Chapter("Queue", (
        _gauge("crawler_scheduler_queue_depth", "Executions that wait; measured every 5 s.",
               LEADER, "ledger", "priority", across="latest"),
        _counter("crawler_scheduler_queue_enqueued_total", "Executions put, repetitions included.",
                 ALL, "ledger", "priority"),
        _counter("crawler_scheduler_queue_dequeued_total", "Executions leased.",
                 WORKER, "ledger", "priority"),
        _counter("floodmark_executions_requeued_total",
                 "Executions put again in case the queue had lost them, whether it had or not.",
                 LEADER, "detail"),
        _counter("floodmark_executions_rescued_total", "Executions taken back from silent workers.",
                 LEADER, "operations"),
        # Not called like the counter below: to Prometheus a counter's name is what stands before its `_total`.
        _gauge("floodmark_dead_letters", "Executions that failed for good and wait for a person.",
               LEADER, "operations", across="latest"),
        _counter("floodmark_executions_dead_total", "Executions that failed for good.",
                 "worker and leader", "operations", "source", grows=("source",)),
    )),
    Chapter("Work", (
        _counter("crawler_scheduler_jobs_executed_total",
                 "Outcomes, by the state the execution moved to; source_id is none without one.",
                 WORKER, "ledger", "status", "source_id", grows=("source_id",)),
        _histogram("crawler_scheduler_job_duration_seconds", "How long attempts ran.",
                   WORKER, "ledger", "source_id", buckets=DURATION_BUCKETS, grows=("source_id",)),
        _histogram("floodmark_queue_wait_seconds", "From the moment an execution could have run until it did.",
                   WORKER, "operations", buckets=LATENESS_BUCKETS),
        _gauge("crawler_scheduler_jobs_currently_running", "Executions running.",
               WORKER, "ledger", across="sum"),
        _gauge("crawler_scheduler_worker_pool_size", "Slots.",
               WORKER, "ledger", across="sum"),
        _gauge("crawler_scheduler_workers_busy", "Slots that run an execution.",
               WORKER, "ledger", across="sum"),
        _gauge("crawler_scheduler_workers_idle", "Slots that are free.",
               WORKER, "ledger", across="sum"),
        _counter("floodmark_items_total", "Items collected: new, changed or known.",
                 WORKER, "operations", "result"),
        _counter("deduplicated_messages_total", "Items that were known already and written nowhere.",
                 WORKER, "ledger", "source", grows=("source",)),
        _histogram("floodmark_freshness_seconds",
                   "From when an item came about until it was stored: of the newest item of each batch, "
                   "in streams that were collected before.",
                   WORKER, "operations", "source", buckets=FRESHNESS_BUCKETS, grows=("source",)),
        _counter("floodmark_lease_lost_total", "Executions taken from a worker while it was alive.",
                 WORKER, "operations"),
        _counter("floodmark_stale_commits_refused_total", "Batches of replaced workers that were refused.",
                 WORKER, "operations"),
    )),
    Chapter("Upkeep", (
        _gauge("floodmark_stale_sources", "Jobs whose target was not read to its end for much longer than usual.",
               LEADER, "operations", across="latest"),
        _gauge("floodmark_accounts_parked", "Accounts that can no longer be used and wait for a person.",
               LEADER, "operations", across="latest"),
        _gauge("floodmark_outbox_pending", "Events that are not yet sent, counted up to 100,000.",
               LEADER, "operations", across="latest"),
        _gauge("floodmark_outbox_lag_seconds", "Age of the oldest event that is not yet sent.",
               LEADER, "operations", across="latest"),
        _counter("floodmark_store_retries_total", "Steps repeated because the database rolled back or went away.",
                 ALL, "detail", "operation"),
        _counter("floodmark_step_failures_total", "Steps of a loop that raised; they are tried again.",
                 ALL, "operations", "step", grows=("step",)),
        _counter("floodmark_notifications_total", "Notifications: sent or failed.",
                 LEADER, "detail", "channel", "result"),
        _counter("floodmark_pushes_total", "Pushes to the Pushgateway: ok or failed.",
                 ALL, "operations", "result"),
        _gauge("floodmark_last_push_timestamp_seconds", "When metrics were last pushed, in Unix time; 0: never.",
               ALL, "operations", across="newest"),
        _gauge("floodmark_info", "1, with the version that runs.",
               ALL, "detail", "version", across="largest"),
    )),
    Chapter("Channels", (
        _counter("parser_runs_total", "Runs that ended: done, empty (nothing new), waiting (told to) or failed.",
                 WORKER, "ledger", "mode", "status"),
        _counter("posts_parsed_total", "Posts collected, historical or incremental.",
                 WORKER, "ledger", "mode"),
        _histogram("parser_run_duration_seconds", "How long a run took.",
                   WORKER, "ledger", "mode", buckets=DURATION_BUCKETS),
        _gauge("parser_hwm_age_seconds",
               "Time since the high-water mark of an unfinished run was moved; absent when no run is unfinished.",
               LEADER, "ledger", "channel_id", across="age", grows=("channel_id",)),
        _gauge("floodmark_channel_info", "1, with the name of a channel that has an unfinished run.",
               LEADER, "operations", "channel_id", "channel", across="largest", grows=("channel_id", "channel")),
        _gauge("incremental_watermark_age_seconds", "Time since a channel was last read to its end.",
               WORKER, "ledger", "channel_id", across="age", grows=("channel_id",)),
        _counter("parser_mode_forced_total", "Runs in another mode than the watermark asks for, and why.",
                 WORKER, "ledger", "reason"),
        _counter("parser_retries_total", "Calls to Telegram that were made again.",
                 WORKER, "ledger", "reason"),
        _counter("parser_floodwait_seconds_total", "Seconds that Telegram told us to wait while a channel was read.",
                 WORKER, "ledger", "channel_id", grows=("channel_id",)),
        _histogram("fetch_duration_seconds", "How long a page took, waiting for its turn included.",
                   WORKER, "ledger", "chat", buckets=DURATION_BUCKETS, grows=("chat",)),
        _gauge("fetch_lag_seconds", "Age of the newest message of the last page.",
               WORKER, "ledger", "chat", across="latest", grows=("chat",)),
    ), text="Of Telegram channels. A process shows what it has done itself: how long ago a channel was read is the "
            "smallest that any of them\nshows, `min by (channel_id) (incremental_watermark_age_seconds)`."),
    Chapter("Calls", (
        _counter("retries_total", "Calls made again; the target is a channel, a site, or redis.",
                 ALL, "ledger", "target", "reason", grows=("target",)),
        _gauge("last_retry_delay_seconds", "The last pause before a call was made again.",
               ALL, "ledger", "target", across="latest", grows=("target",)),
        _counter("rate_limit_hits_total", "Times a source told us to wait.",
                 WORKER, "ledger", "source", "reason", grows=("source",)),
        _gauge("floodmark_limits_in_force", "Limits that hold now: what somebody told us to wait for.",
               LEADER, "operations", across="latest"),
        _gauge("breaker_state", "0 closed, 1 open, 2 half-open; the component is a key, as in telegram:reader1.",
               WORKER, "ledger", "component", across="latest", grows=("component",)),
        _counter("breaker_open_total", "Times a breaker opened, counted by the process that opened it.",
                 WORKER, "ledger", "component", grows=("component",)),
        _gauge("crawler_scheduler_circuit_breaker_state", "0 closed, 1 open, 2 half-open; of domains only.",
               WORKER, "ledger", "domain", across="latest", grows=("domain",)),
        _counter("crawler_scheduler_circuit_breaker_trips_total", "Times the breaker of a domain opened.",
                 WORKER, "ledger", "domain", grows=("domain",)),
    )),
    Chapter("The web", (
        _counter("floodmark_pages_total",
                 "Pages of crawls: new, changed, unchanged, missing, gone, refused (by robots.txt), skipped, failed.",
                 WORKER, "operations", "result"),
        _counter("floodmark_http_requests_total",
                 "Requests to the web, each redirect too: 2xx, 3xx, 4xx, 5xx, refused (by us) or failed.",
                 ALL, "operations", "status"),
        _counter("floodmark_scans_total", "Cookie scans, by the result of their reports, or failed.",
                 WORKER, "operations", "result"),
    )),
)
# fmt: on

CATALOGUE: Mapping[str, Described] = {one.name: one for chapter in CHAPTERS for one in chapter.metrics}
AGES = frozenset(one.name for one in CATALOGUE.values() if one.across == "age")
