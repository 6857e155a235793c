#!/usr/bin/env python3
"""Write Floodmark's two Grafana dashboards. Needs only Python.

    python3 deploy/dashboards.py            write deploy/grafana/dashboards/*.json
    python3 deploy/dashboards.py --check    list the files that are not up to date

Every query selects one `job` of Prometheus, chosen at the top: two installations, or the same one scraped and
pushed, are never added up. `{}` in a query below stands for `{job=~"$job"}`, and `{a="b"}` for `{job=~"$job", a="b"}`.
"""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "grafana" / "dashboards"
# The schema of Grafana 10; newer versions upgrade it when they load the files.
SCHEMA_VERSION = 39
COLUMNS = 24
SOURCE = {"type": "prometheus", "uid": "${source}"}
JOB = 'job=~"$job"'

GREEN, YELLOW, ORANGE, RED = "green", "yellow", "orange", "red"
# The values at which colours start; the first colour also applies to lower values.
Thresholds = Sequence[tuple[float, str]]
BREAKERS = {0: ("closed", GREEN), 1: ("open", RED), 2: ("half-open", YELLOW)}


@dataclass(frozen=True)
class Query:
    """A Prometheus query and the legend of its series; `{{label}}` is the value of that label."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A panel: `kind` is Grafana's panel type, `text` its description."""

    title: str
    text: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 8
    height: int = 8
    thresholds: Thresholds = ()
    words: dict[int, tuple[str, str]] | None = None
    stacked: bool = False


@dataclass(frozen=True)
class Row:
    """A titled row of panels."""

    title: str
    panels: tuple[Panel, ...]


def p(share: int, metric: str, by: str = "", window: str = "$__rate_interval") -> str:
    """Return a percentile of a histogram, for each value of a label if one is given."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile(0.{share}, sum by ({labels}) (rate({metric}_bucket{{}}[{window}])))"


def per_second(metric: str, by: str = "") -> str:
    """Return the rate of a counter, for each value of a label if one is given."""
    grouped = f"sum by ({by}) " if by else "sum"
    return f"{grouped}(rate({metric}{{}}[$__rate_interval]))"


def stat(title: str, text: str, expr: str, thresholds: Thresholds, **more: Any) -> Panel:
    """Return a panel with one number and its colour."""
    size = {"width": 4, "height": 4, **more}
    return Panel(title=title, text=text, queries=(Query(expr),), kind="stat", thresholds=thresholds, **size)


def graph(title: str, text: str, *queries: Query, **more: Any) -> Panel:
    """Return a panel with lines over time."""
    return Panel(title=title, text=text, queries=queries, **more)


COLLECTION = (
    Row(
        "",
        (
            graph(
                "Parsing rate by mode (5 m)",
                "Collected posts per second: historical runs read a part of the past, incremental runs read new posts.",
                Query("sum by (mode) (rate(posts_parsed_total{}[5m]))", "{{mode}}"),
                unit="cps",
            ),
            graph(
                "Latency p95",
                "19 of 20 runs took less than this. FloodmarkParsingSlow fires above 60 s.",
                Query(p(95, "parser_run_duration_seconds", "mode", "5m"), "{{mode}}"),
                unit="s",
                thresholds=((0, GREEN), (30, YELLOW), (60, RED)),
            ),
            graph(
                "Empty ticks",
                "Runs in 5 minutes that found nothing new, and all runs. If all are empty for long, nobody posts,"
                " or the account cannot read the channels.",
                Query('sum(increase(parser_runs_total{status="empty"}[5m]))', "empty"),
                Query("sum(increase(parser_runs_total{}[5m]))", "all"),
            ),
            graph(
                "Max HWM age",
                "Longest time without progress in a channel's unfinished run. FloodmarkHwmOld fires above a day.",
                Query("max(min by (channel_id) (parser_hwm_age_seconds{})) or vector(0)", "oldest"),
                unit="s",
                thresholds=((0, GREEN), (43_200, YELLOW), (86_400, RED)),
            ),
            Panel(
                title="Forced historical over 24 h",
                text="Runs that read the past again despite a watermark, by reason. stale_lpa: the channel had"
                " not been read for LPA_MAX_AGE_HOURS.",
                queries=(Query("sum by (reason) (increase(parser_mode_forced_total{}[24h]))", "{{reason}}"),),
                kind="stat",
                thresholds=((0, GREEN), (1, YELLOW), (10, RED)),
            ),
            Panel(
                title="Scheduler freshness",
                text="Time since the last tick of the leader, which ticks every SCHEDULE_CHECK_INTERVAL"
                " (60 s) at least. FloodmarkSchedulerStale fires after two of them.",
                queries=(Query("time() - max(scheduler_last_tick_ts_seconds{})", "last tick"),),
                kind="stat",
                unit="s",
                thresholds=((0, GREEN), (60, YELLOW), (120, RED)),
            ),
        ),
    ),
)

OVERVIEW = Row(
    "Overview",
    (
        stat(
            "Leader",
            "Number of leading schedulers: exactly one. With 0 nothing is fired.",
            "sum(crawler_scheduler_is_leader{})",
            ((0, RED), (1, GREEN), (2, ORANGE)),
        ),
        stat(
            "Queued executions",
            "Executions that can start now.",
            "sum(max by (priority) (crawler_scheduler_queue_depth{}))",
            ((0, GREEN), (100, YELLOW), (1000, RED)),
        ),
        stat(
            "Dead letters",
            "Executions that failed permanently and need a person.",
            "max(floodmark_dead_letters{})",
            ((0, GREEN), (1, RED)),
        ),
        stat(
            "Accounts lost",
            "Telegram accounts that were revoked or banned.",
            "max(floodmark_accounts_parked{})",
            ((0, GREEN), (1, RED)),
        ),
        stat(
            "Stale sources",
            "Jobs whose target was not read completely for much longer than usual.",
            "max(floodmark_stale_sources{})",
            ((0, GREEN), (1, ORANGE)),
        ),
        stat(
            "Active limits",
            "Rate limits that currently apply. Small numbers are normal.",
            "max(floodmark_limits_in_force{})",
            ((0, GREEN), (5, YELLOW), (50, ORANGE)),
        ),
    ),
)

SCHEDULING = Row(
    "Scheduling",
    (
        graph(
            "Fired",
            "Fired executions per second, by kind of schedule and priority.",
            Query(
                per_second("crawler_scheduler_jobs_scheduled_total", "schedule_type, priority"),
                "{{schedule_type}}, {{priority}}",
            ),
            unit="cps",
        ),
        graph(
            "Lateness",
            "Time from due to stored. If it is more than a few seconds, the database or the leader is slow.",
            Query(p(50, "floodmark_fire_lateness_seconds"), "p50"),
            Query(p(95, "floodmark_fire_lateness_seconds"), "p95"),
            Query(p(99, "floodmark_fire_lateness_seconds"), "p99"),
            unit="s",
            thresholds=((0, GREEN), (5, YELLOW), (60, RED)),
        ),
        graph(
            "Leader",
            "Attempts to lead: every standby scheduler tries about once a second. Changes should be rare.",
            Query("max(crawler_scheduler_is_leader{})", "has a leader"),
            Query(per_second("crawler_scheduler_leader_election_attempts_total"), "attempts per second"),
            Query('sum(increase(scheduler_lock_acquired_total{status="acquired"}[1h]))', "changes per hour"),
        ),
        graph(
            "External triggers",
            "Webhooks and messages per second, and the jobs they fired.",
            Query(per_second("crawler_scheduler_triggers_fired_total", "type"), "received: {{type}}"),
            Query(per_second("crawler_scheduler_triggers_matched_total", "type"), "jobs fired: {{type}}"),
            unit="cps",
        ),
    ),
)

QUEUE = Row(
    "Queue",
    (
        graph(
            "Depth by priority",
            "Queued executions. FloodmarkQueueGrowing fires if there are more than 100 and the number keeps growing.",
            Query("max by (priority) (crawler_scheduler_queue_depth{})", "{{priority}}"),
            stacked=True,
        ),
        graph(
            "In and out",
            "Executions put on the queue (including repeated puts) and taken from it.",
            Query(per_second("crawler_scheduler_queue_enqueued_total", "priority"), "in: {{priority}}"),
            Query(per_second("crawler_scheduler_queue_dequeued_total", "priority"), "out: {{priority}}"),
            unit="cps",
        ),
        graph(
            "Wait",
            "Time from when an execution can start to its start. Grows when there are too few slots.",
            Query(p(50, "floodmark_queue_wait_seconds"), "p50"),
            Query(p(95, "floodmark_queue_wait_seconds"), "p95"),
            unit="s",
            thresholds=((0, GREEN), (15, YELLOW), (60, RED)),
        ),
    ),
)

WORKERS = Row(
    "Workers",
    (
        graph(
            "Slots",
            "Slots of all workers. If busy stays near size, add workers.",
            Query("sum(crawler_scheduler_worker_pool_size{})", "size"),
            Query("sum(crawler_scheduler_workers_busy{})", "busy"),
            Query("sum(crawler_scheduler_workers_idle{})", "idle"),
            Query("sum(crawler_scheduler_jobs_currently_running{})", "executions running"),
        ),
        graph(
            "Outcomes",
            "Executions per second, by their new state.",
            Query(per_second("crawler_scheduler_jobs_executed_total", "status"), "{{status}}"),
            unit="cps",
        ),
        graph(
            "Duration p95",
            "Duration of attempts, for the ten slowest source_ids.",
            Query(f"topk(10, {p(95, 'crawler_scheduler_job_duration_seconds', 'source_id')})", "{{source_id}}"),
            unit="s",
        ),
        graph(
            "Rescued and replaced executions",
            "In 5 minutes. A few are harmless, because nothing is lost; many mean crashes or stalled machines.",
            Query("sum(increase(floodmark_executions_rescued_total{}[5m]))", "executions rescued"),
            Query("sum(increase(floodmark_lease_lost_total{}[5m]))", "leases lost"),
            Query("sum(increase(floodmark_stale_commits_refused_total{}[5m]))", "late batches refused"),
        ),
        graph(
            "New dead letters",
            "Executions in 5 minutes that became dead letters, by source.",
            Query("sum by (source) (increase(floodmark_executions_dead_total{}[5m]))", "{{source}}"),
        ),
        graph(
            "Failed steps",
            "Service steps in 5 minutes that failed and are retried. The log has the reason.",
            Query("sum by (step) (increase(floodmark_step_failures_total{}[5m])) or vector(0)", "{{step}}"),
        ),
    ),
)

FRESHNESS = Row(
    "Freshness",
    (
        graph(
            "Age of items when stored, p95",
            "Age of the newest item of a batch when it was stored, by source.",
            Query(p(95, "floodmark_freshness_seconds", "source", "15m"), "{{source}}"),
            unit="s",
        ),
        graph(
            "Items",
            "Collected items per second: new, changed or known.",
            Query(per_second("floodmark_items_total", "result"), "{{result}}"),
            unit="cps",
        ),
        graph(
            "Known items",
            "Items per second that were dropped because they are already stored, by source.",
            Query(per_second("deduplicated_messages_total", "source"), "{{source}}"),
            unit="cps",
        ),
        graph(
            "Channels by time since last read",
            "Time since a channel was last read completely; the ten longest.",
            Query("topk(10, min by (channel_id) (incremental_watermark_age_seconds{}))", "{{channel_id}}"),
            unit="s",
        ),
        graph(
            "Page p95 by chat",
            "Time to read a page of history, including waits for the rate limit; the ten slowest.",
            Query(f"topk(10, {p(95, 'fetch_duration_seconds', 'chat')})", "{{chat}}"),
            unit="s",
        ),
        graph(
            "Lag by chat",
            "Age of the newest message of the last page; the ten oldest.",
            Query("topk(10, min by (chat) (fetch_lag_seconds{}))", "{{chat}}"),
            unit="s",
        ),
    ),
)

ADAPTIVE = Row(
    "Adaptive polling",
    (
        graph(
            "Item delay",
            "Time from an item's creation to its storage, for new items of jobs with a budget.",
            Query(p(50, "floodmark_item_delay_seconds", window="15m"), "p50"),
            Query(p(95, "floodmark_item_delay_seconds", window="15m"), "p95"),
            Query(p(95, "floodmark_item_delay_seconds", "source", "15m"), "p95: {{source}}"),
            unit="s",
        ),
        graph(
            "Requests of budgets",
            "Requests per minute: used and allowed. If much is unused, rate limits or busy workers slow polling down.",
            Query("60 * sum by (budget) (rate(floodmark_budget_requests_total{}[5m]))", "used: {{budget}}"),
            Query("max by (budget) (floodmark_budget_requests_allowed{})", "allowed: {{budget}}"),
        ),
        graph(
            "Price of a request",
            "Expected delay at which a source is worth a request, in item-seconds. It rises when requests are scarce:"
            " more sources, more items, or a smaller budget.",
            Query("max by (budget) (floodmark_budget_price{})", "{{budget}}"),
        ),
        graph(
            "Expected and found items",
            "Items in an hour, by source. If they differ for days, the sources have changed their habits.",
            Query("sum by (source) (increase(floodmark_expected_items_total{}[1h]))", "expected: {{source}}"),
            Query("sum by (source) (increase(floodmark_found_items_total{}[1h]))", "found: {{source}}"),
        ),
    ),
)

CALLS = Row(
    "Rate limits, circuit breakers, retries",
    (
        Panel(
            title="Breakers",
            text="One line per account, domain or Redis that has had failures. Open: no calls are made.",
            queries=(Query("max by (component) (breaker_state{})", "{{component}}"),),
            kind="state-timeline",
            words=BREAKERS,
        ),
        Panel(
            title="Breakers of domains",
            text="The same for web sites only.",
            queries=(Query("max by (domain) (crawler_scheduler_circuit_breaker_state{})", "{{domain}}"),),
            kind="state-timeline",
            words=BREAKERS,
        ),
        graph(
            "Opened breakers",
            "In 5 minutes. If the same breaker opens repeatedly, its probes fail.",
            Query("sum by (component) (increase(breaker_open_total{}[5m]))", "{{component}}"),
            Query("sum by (domain) (increase(crawler_scheduler_circuit_breaker_trips_total{}[5m]))", "site {{domain}}"),
        ),
        graph(
            "Rate-limit responses",
            "Rate-limit responses of sources in 5 minutes, and active limits.",
            Query("sum by (source, reason) (increase(rate_limit_hits_total{}[5m]))", "{{source}}: {{reason}}"),
            Query("max(floodmark_limits_in_force{})", "active limits"),
        ),
        graph(
            "Flood waits",
            "Seconds of flood waits from Telegram in 5 minutes; the ten channels with the most.",
            Query(
                "topk(10, sum by (channel_id) (increase(parser_floodwait_seconds_total{}[5m])))",
                "{{channel_id}}",
            ),
            unit="s",
        ),
        graph(
            "Retried calls",
            "Retries per second by reason: all calls, and calls to Telegram.",
            Query(per_second("retries_total", "reason"), "{{reason}}"),
            Query(per_second("parser_retries_total", "reason"), "Telegram: {{reason}}"),
            unit="cps",
        ),
        graph(
            "Last retry delay",
            "The ten longest.",
            Query("topk(10, max by (target) (last_retry_delay_seconds{}))", "{{target}}"),
            unit="s",
        ),
    ),
)

WEB = Row(
    "Web",
    (
        graph(
            "Pages",
            "Crawled pages per second, by result.",
            Query(per_second("floodmark_pages_total", "result"), "{{result}}"),
            unit="cps",
        ),
        graph(
            "Requests",
            "HTTP requests per second, by status. refused: blocked by Floodmark's own guard.",
            Query(per_second("floodmark_http_requests_total", "status"), "{{status}}"),
            unit="reqps",
        ),
        graph(
            "Cookie scans",
            "Cookie scans per hour, by result.",
            Query("sum by (result) (increase(floodmark_scans_total{}[1h])) or vector(0)", "{{result}}"),
        ),
    ),
)

LEAVING = Row(
    "Outgoing events and metrics",
    (
        graph(
            "Outbox lag",
            "Age of the oldest unsent event. FloodmarkOutboxStuck fires above 5 minutes.",
            Query("max(floodmark_outbox_lag_seconds{})", "oldest event"),
            unit="s",
            thresholds=((0, GREEN), (60, YELLOW), (300, RED)),
        ),
        graph(
            "Outbox",
            "Unsent events.",
            Query("max(floodmark_outbox_pending{})", "events"),
        ),
        graph(
            "Search lag",
            "Age of the oldest event that is not in the search index.",
            Query("max(floodmark_search_lag_seconds{})", "oldest event"),
            unit="s",
            thresholds=((0, GREEN), (60, YELLOW), (300, RED)),
        ),
        graph(
            "Watch lag",
            "Time from the storing of an item to the evaluation of watches on it.",
            Query("max(floodmark_watch_lag_seconds{})", "last item"),
            unit="s",
            thresholds=((0, GREEN), (60, YELLOW), (300, RED)),
        ),
        graph(
            "Sink lag",
            "Age of the oldest event that a sink has not got. FloodmarkSinkStuck fires above 5 minutes.",
            Query("max by (sink) (floodmark_sink_lag_seconds{})", "{{sink}}"),
            unit="s",
            thresholds=((0, GREEN), (60, YELLOW), (300, RED)),
        ),
        graph(
            "Events behind",
            "Events after the position of each sink, those that it refused, and 1 for each paused sink.",
            Query("max by (sink) (floodmark_sink_lag_events{})", "{{sink}}"),
            Query("max by (sink) (floodmark_sink_dead_letters{})", "{{sink}}: dead letters"),
            Query("max by (sink) (floodmark_sink_paused{})", "{{sink}}: paused"),
        ),
        graph(
            "Deliveries",
            "Delivered events per second, and failed deliveries in 5 minutes.",
            Query("sum by (sink) (rate(floodmark_sink_events_total{}[$__rate_interval]))", "{{sink}}"),
            Query("sum by (sink) (increase(floodmark_sink_failures_total{}[5m]))", "{{sink}}: failed"),
        ),
        graph(
            "Metric pushes",
            "Pushes in 5 minutes, and time since the last. Empty unless METRICS_MODE is push or both.",
            Query("sum by (result) (increase(floodmark_pushes_total{}[5m]))", "{{result}}"),
            Query("time() - max(floodmark_last_push_timestamp_seconds{} > 0)", "seconds since the last push"),
        ),
    ),
)

OPERATIONS = (OVERVIEW, SCHEDULING, QUEUE, WORKERS, FRESHNESS, ADAPTIVE, CALLS, WEB, LEAVING)


def main(arguments: Sequence[str]) -> int:
    """Write the files, or with --check compare them."""
    files = {
        FOLDER / "collection.json": dashboard("floodmark-collection", "Floodmark: collection", COLLECTION),
        FOLDER / "operations.json": dashboard("floodmark-operations", "Floodmark: operations", OPERATIONS),
    }
    if "--check" in arguments:
        old = [path.name for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text]
        sys.stdout.write("".join(f"{name} is not current: python3 deploy/dashboards.py\n" for name in old))
        return int(bool(old))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return 0


def dashboard(uid: str, title: str, rows: Sequence[Row]) -> str:
    """Return a dashboard in Grafana's file format."""
    made = {
        "uid": uid,
        "title": title,
        "tags": ["floodmark"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "timezone": "utc",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source_variable(), job_variable()]},
        "links": [{"type": "dashboards", "tags": ["floodmark"], "title": "Floodmark", "keepTime": True}],
        "panels": laid_out(rows),
    }
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


def source_variable() -> dict[str, Any]:
    """Return the variable that selects the Prometheus data source."""
    return {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}


def job_variable() -> dict[str, Any]:
    """Return the variable that selects the installation: `job` in the configuration of Prometheus."""
    asked = "label_values(floodmark_info, job)"
    return {
        "name": "job",
        "label": "Installation",
        "type": "query",
        "datasource": SOURCE,
        "definition": asked,
        "query": {"query": asked, "refId": "job"},
        "refresh": 2,
        "sort": 1,
        "current": {"text": "floodmark", "value": "floodmark"},
    }


def laid_out(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return all panels with their positions: from left to right, then in the next line."""
    made: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        if row.title:
            made.append(heading(len(made) + 1, row.title, top))
            top += 1
        left = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                left, top = 0, top + panel.height
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            made.append(drawn(len(made) + 1, panel, place))
            left += panel.width
        top += row.panels[-1].height
    return made


def heading(number: int, title: str, top: int) -> dict[str, Any]:
    """Return the heading of a row."""
    place = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}


def drawn(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    """Return a panel in Grafana's file format."""
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "gridPos": place,
        "targets": [target(place, query) for place, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": defaults(panel), "overrides": []},
        "options": options(panel.kind),
    }


def target(place: int, query: Query) -> dict[str, Any]:
    """Return a query of a panel."""
    return {
        "refId": chr(ord("A") + place),
        "datasource": SOURCE,
        "expr": of_one_job(query.expr),
        "legendFormat": query.legend or "__auto",
        "range": True,
    }


def of_one_job(expr: str) -> str:
    """Return the query restricted to the selected job."""
    return re.sub(r"\{(.*?)\}", lambda found: f"{{{', '.join(filter(None, (JOB, found[1])))}}}", expr)


def defaults(panel: Panel) -> dict[str, Any]:
    """Return unit, colours and line style of a panel."""
    made: dict[str, Any] = {"unit": panel.unit, "min": 0, "thresholds": steps(panel.thresholds)}
    if panel.kind == "timeseries":
        made["color"] = {"mode": "palette-classic"}
        made["custom"] = {
            "drawStyle": "line",
            "fillOpacity": 30 if panel.stacked else 5,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "line" if panel.thresholds else "off"},
        }
    else:
        made["color"] = {"mode": "thresholds"}
    if panel.words is not None:
        texts = {str(value): {"text": text, "color": color} for value, (text, color) in panel.words.items()}
        made["mappings"] = [{"type": "value", "options": texts}]
    return made


def steps(thresholds: Thresholds) -> dict[str, Any]:
    """Return the thresholds in Grafana's format."""
    (_, lowest), *others = thresholds or ((0, GREEN),)
    first: list[dict[str, Any]] = [{"color": lowest, "value": None}]
    return {"mode": "absolute", "steps": first + [{"color": color, "value": value} for value, color in others]}


def options(kind: str) -> dict[str, Any]:
    """Return the options of a panel type."""
    if kind == "stat":
        reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        return {"colorMode": "background", "graphMode": "area", "reduceOptions": reduce, "textMode": "auto"}
    if kind == "state-timeline":
        return {"showValue": "auto", "mergeValues": True, "legend": {"displayMode": "list", "showLegend": True}}
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
    return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
