"""The tables of the core: one definition for SQLite and PostgreSQL. Sources and services have their own `tables.py`.

The columns of `jobs` follow from the fields of a job (`floodmark.model.job_fields`).
Columns that a person may omit in SQL have a default in the database.
Views are defined in migrations only: `posts` over the items of Telegram channels; `schedules` and `job_executions` with
the names and columns of other schedulers.
A database trigger clears `jobs.next_run` when one of `WHEN_COLUMNS` changes.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec import NODEFAULT
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    Date,
    Float,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    literal_column,
    text,
    true,
)
from sqlalchemy.sql.elements import ColumnElement, conv

from floodmark.model.execution import State
from floodmark.model.job import ScheduleType, When
from floodmark.model.job_fields import COLUMNS, JobField

from .schema import metadata, partial_index
from .types import Json, Serial, UtcTime, new_id, now_text

STATES = ("queued", "waiting", "running", "done", "dead", "cancelled", "skipped")

# A change of one of these columns makes the scheduler plan the job again.
WHEN_COLUMNS = (
    *When.__struct_fields__,
    "schedule_enabled",
    "paused",
    "scheduler_version",
    "budget",
    "max_delay_seconds",
    "weight",
)

# The type of a column, by the type of its field.
_SQL_TYPES: Mapping[Any, Any] = {
    str: Text,
    bool: Boolean,
    int: Integer,
    float: Float,
    timedelta: Float,
    datetime: UtcTime,
    Mapping: Json,
    tuple: Json,
}
# Properties of columns that only the database needs.
_OWN_COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "job_id": {"type_": String(36), "primary_key": True, "server_default": new_id()},
    "name": {"unique": True},
    "source": {"server_default": "python"},
    "schedule_type": {"server_default": ScheduleType.INTERVAL.value},
    "scheduler_version": {"type_": SmallInteger},
    "created_at": {"server_default": now_text()},
    "updated_at": {"server_default": now_text()},
}


def _job_column(field: JobField) -> Column[Any]:
    kind = (SmallInteger if issubclass(field.kind, int) else Text) if field.is_enum else _SQL_TYPES[field.kind]
    known = {"type_": kind, "nullable": field.is_optional, "server_default": _server_default(field)}
    return Column(field.name, **{**known, **_OWN_COLUMNS.get(field.name, {})})


def _server_default(field: JobField) -> Any:
    if field.default is NODEFAULT or field.default is None:
        return None
    if field.kind is bool:
        return true() if field.default else false()
    if field.kind in (Mapping, tuple):
        return text("'{}'" if field.kind is Mapping else "'[]'")
    return f"{field.default.total_seconds():g}" if field.kind is timedelta else str(field.default)


def _check_words(field: JobField) -> CheckConstraint:
    words = ", ".join(str(word.value) if issubclass(field.kind, int) else f"'{word.value}'" for word in field.kind)
    return CheckConstraint(f"{field.name} IN ({words})", name=field.name)


jobs = Table(
    "jobs",
    metadata,
    *map(_job_column, COLUMNS),
    # The declaration in code that made this row: an operator's change stays until the declaration changes.
    Column("declared", Text),
    # The name of `job_id` in other schedulers, for their SQL.
    Column("id", String(36), Computed("job_id")),
    *(_check_words(field) for field in COLUMNS if field.is_enum and not field.is_optional),
)

_PLANNABLE = "schedule_enabled AND NOT paused AND invalid_reason IS NULL AND scheduler_version = 2"
# The scheduler plans an adaptive job once; from then on it runs in the order of its budget.
CLOCKED = f"(schedule_type <> '{ScheduleType.ADAPTIVE.value}' OR next_run IS NULL)"
_ADAPTIVE = f"schedule_type = '{ScheduleType.ADAPTIVE.value}'"
partial_index("ix_jobs_next_run", f"{_PLANNABLE} AND {CLOCKED}", jobs.c.next_run)
partial_index("ix_jobs_adaptive", f"{_PLANNABLE} AND {_ADAPTIVE}", jobs.c.budget, jobs.c.next_run)
partial_index("ix_jobs_hinted", "hinted_at IS NOT NULL", jobs.c.budget, jobs.c.hinted_at)
partial_index("ix_jobs_stream", "stream IS NOT NULL", jobs.c.stream)
Index("ix_jobs_target", jobs.c.target, jobs.c.source)
partial_index("ix_jobs_domain", "domain IS NOT NULL", jobs.c.domain)
partial_index("ix_jobs_domain_config_id", "domain_config_id IS NOT NULL", jobs.c.domain_config_id)
partial_index("ix_jobs_trigger_webhook", "trigger_webhook IS NOT NULL", jobs.c.trigger_webhook)
partial_index("ix_jobs_trigger_channel", "trigger_channel IS NOT NULL", jobs.c.trigger_channel)
# Patterns that are more than a literal: every delivery is compared with them, and with no others. COALESCE, because the
# planner of PostgreSQL would otherwise conclude that the column is not NULL, and take the index of all patterns.
IS_OPEN_PATH = (
    "rtrim(replace(replace(replace(COALESCE(trigger_webhook, ''), '*', ''), '{', ''), '//', ''), '/')"
    " <> COALESCE(trigger_webhook, '')"
)
IS_OPEN_CHANNEL = (
    "replace(replace(replace(COALESCE(trigger_channel, ''), '*', ''), '?', ''), '[', '')"
    " <> COALESCE(trigger_channel, '')"
)
partial_index("ix_jobs_open_webhook", IS_OPEN_PATH, jobs.c.trigger_webhook)
partial_index("ix_jobs_open_channel", IS_OPEN_CHANNEL, jobs.c.trigger_channel)
partial_index("ix_jobs_account", "account IS NOT NULL", jobs.c.account, jobs.c.name)
partial_index("ix_jobs_declared", "declared IS NOT NULL", jobs.c.declared)
partial_index("ix_jobs_old", "scheduler_version <> 2", jobs.c.job_id)
# To list the few jobs that do not run.
partial_index("ix_jobs_paused", "paused", jobs.c.name)
partial_index("ix_jobs_disabled", "NOT schedule_enabled", jobs.c.name)


job_dependencies = Table(
    "job_dependencies",
    metadata,
    Column("job_id", String(36), ForeignKey("jobs.job_id", ondelete="CASCADE"), nullable=False),
    Column("depends_on", String(36), ForeignKey("jobs.job_id", ondelete="CASCADE"), nullable=False),
    PrimaryKeyConstraint("job_id", "depends_on"),
    CheckConstraint("job_id <> depends_on", name="not_itself"),
    Index("ix_job_dependencies_depends_on", "depends_on"),
)

# No foreign key to `jobs`: the history stays when a job is deleted. `job_executions` is a view of this table with
# the additional columns of other schedulers (migration 0006); indexes and constraints keep that name.
job_executions = Table(
    "executions",
    metadata,
    Column("execution_id", String(36), nullable=False),
    Column("job_id", String(36), nullable=False),
    Column("job_name", Text, nullable=False),
    Column("scheduled_for", UtcTime, nullable=False),
    Column("state", Text, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("trigger", Text, nullable=False, server_default="schedule"),
    Column("params", Json),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("rescues", Integer, nullable=False, server_default="0"),
    Column("coalesced", Integer, nullable=False, server_default="0"),
    Column("reason", Text),
    # What a waiting execution waits for, if not for the time in `not_before`.
    Column("hold", Text),
    Column("not_before", UtcTime),
    # The place in line: the time it was queued, plus one QUEUE_PATIENCE for each step of lower priority.
    Column("queue_rank", UtcTime),
    Column("lease_until", UtcTime),
    Column("worker", Text),
    Column("fence", BigInteger),
    Column("cancel_requested", Text),
    Column("started_at", UtcTime),
    Column("completed_at", UtcTime),
    Column("duration_seconds", Float),
    Column("items_new", Integer, nullable=False, server_default="0"),
    Column("items_changed", Integer, nullable=False, server_default="0"),
    Column("items_known", Integer, nullable=False, server_default="0"),
    Column("error_message", Text),
    Column("error_details", Json),
    Column("result", Json),
    Column("traceparent", Text),
    Column("created_at", UtcTime, nullable=False, server_default=now_text()),
    PrimaryKeyConstraint("execution_id", name="pk_job_executions"),
    UniqueConstraint("job_id", "scheduled_for", name="uq_job_executions_job_id_scheduled_for"),
    # No IN: SQLite builds a table for it with every row, while comparisons cost nothing.
    CheckConstraint(" OR ".join(f"state = '{state}'" for state in STATES), name=conv("ck_job_executions_state")),
    CheckConstraint("hold = 'overlap' OR hold = 'dependency' OR hold = 'paused'", name=conv("ck_job_executions_hold")),
)


# Partial: finished executions, nearly all of the table, are not in these indexes. There is none on `created_at`,
# because ids start with the time and the primary key already sorts the history.
partial_index("ix_job_executions_queued", "state = 'queued'", job_executions.c.queue_rank)
partial_index("ix_job_executions_waiting", "state = 'waiting'", job_executions.c.not_before)
partial_index("ix_job_executions_running", "state = 'running'", job_executions.c.lease_until)
partial_index("ix_job_executions_dead", "state = 'dead'", job_executions.c.completed_at)
# To list them by state; nearly all others are done, and are listed by the primary key. One index for each state: one
# that begins with the state is taken by SQLite also for lists in the order of time.
partial_index("ix_job_executions_dead_ids", "state = 'dead'", job_executions.c.execution_id)
partial_index("ix_job_executions_cancelled", "state = 'cancelled'", job_executions.c.execution_id)
partial_index("ix_job_executions_skipped", "state = 'skipped'", job_executions.c.execution_id)
# The same for one job.
RARE_STATES = (State.CANCELLED, State.DEAD, State.SKIPPED)
IS_RARE = "state IN ({})".format(", ".join(f"'{state.value}'" for state in RARE_STATES))
partial_index("ix_job_executions_rare_of_job", IS_RARE, job_executions.c.job_id, job_executions.c.scheduled_for)
# The unfinished executions of a job, and the held ones of all jobs. On PostgreSQL by expressions that no other index
# has: whatever the statistics say, no plan looks them up in the index of a job's history (`rule_sql.Lookups`).
_ACTIVE, _HELD = ("ix_job_executions_active", "completed_at IS NULL"), ("ix_job_executions_held", "hold IS NOT NULL")
_cell = job_executions.c
_job: ColumnElement[str] = literal_column("(job_id || '')")
_hold: ColumnElement[str] = literal_column("COALESCE(hold, '')")
partial_index(*_ACTIVE, _cell.job_id, _cell.hold).ddl_if(dialect="sqlite")
partial_index(*_ACTIVE, _job, _hold, _cell.scheduled_for).ddl_if(dialect="postgresql")
partial_index(*_HELD, _cell.hold, _cell.job_id, _cell.scheduled_for).ddl_if(dialect="sqlite")
partial_index(*_HELD, _cell.hold, _job).ddl_if(dialect="postgresql")

# A budget of requests. Each request moves `next_free` by `interval_seconds`, so that none is made too early.
budgets = Table(
    "budgets",
    metadata,
    Column("name", Text, primary_key=True),
    Column("requests", Float, nullable=False),
    Column("period", Text, nullable=False, server_default="minute"),
    Column("max_delay_seconds", Float),
    Column("fairness", Float, nullable=False, server_default="0.25"),
    Column("next_free", UtcTime, nullable=False, server_default=now_text()),
    Column("interval_seconds", Float, nullable=False),
    # What the leader has measured: its jobs, the price of a request, the habits of its sources, the rhythm of a week.
    Column("sources", Integer, nullable=False, server_default="0"),
    Column("price", Float),
    Column("habits", Json),
    Column("measured_at", UtcTime),
    Column("version", Integer, nullable=False, server_default="1"),
    Column("created_at", UtcTime, nullable=False, server_default=now_text()),
    Column("updated_at", UtcTime, nullable=False, server_default=now_text()),
    CheckConstraint("period = 'minute' OR period = 'week'", name="period"),
    CheckConstraint("requests > 0", name="requests"),
)

# Runs that were fired and have not made their first request yet.
budget_grants = Table(
    "budget_grants",
    metadata,
    Column("execution_id", String(36), primary_key=True),
    Column("budget", Text, nullable=False),
    Column("granted_at", UtcTime, nullable=False, server_default=now_text()),
    Index("ix_budget_grants_budget", "budget"),
)

# Requests by hour, for weekly budgets and reports.
budget_hours = Table(
    "budget_hours",
    metadata,
    Column("budget", Text, nullable=False),
    Column("hour", UtcTime, nullable=False),
    Column("requests", Integer, nullable=False, server_default="0"),
    PrimaryKeyConstraint("budget", "hour"),
)

# What is known about the times of the items of a job with a budget, and how late they were stored.
activity = Table(
    "activity",
    metadata,
    Column("job_id", String(36), ForeignKey("jobs.job_id", ondelete="CASCADE"), primary_key=True),
    Column("learned", LargeBinary),
    Column("measured", LargeBinary),
    Column("polled_at", UtcTime, nullable=False),
)

watermarks = Table(
    "watermarks",
    metadata,
    Column("stream", Text, primary_key=True),
    Column("value", Json),
    Column("fence", BigInteger, nullable=False, server_default="0"),
    Column("holder", String(36)),
    Column("lease_until", UtcTime),
    # The newest item of an unfinished run; cleared when the run ends.
    Column("high_water", Json),
    Column("moved_at", UtcTime),
    Column("last_parsed_at", UtcTime),
    Column("last_checked_at", UtcTime),
    # The stream of the items, if it has another name: one channel may be collected under several names.
    Column("items_stream", Text),
    partial_index("ix_watermarks_items_stream", "items_stream IS NOT NULL", "items_stream"),
    sqlite_with_rowid=False,
)

items = Table(
    "items",
    metadata,
    Column("stream", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("revision", Integer, nullable=False, server_default="1"),
    Column("occurred_at", UtcTime),
    Column("collected_at", UtcTime, nullable=False),
    Column("tenant_id", Text),
    Column("user_id", Text),
    Column("data", Json, nullable=False),
    Column("content_hash", Text, nullable=False),
    Column("deleted", Boolean, nullable=False, server_default=false()),
    Column("execution_id", String(36)),
    Column("fence", BigInteger, nullable=False),
    PrimaryKeyConstraint("stream", "key"),
    # Partial, so that only queries for a time use it: see migration 0002.
    partial_index("ix_items_stream_occurred_at", "occurred_at IS NOT NULL", "stream", "occurred_at"),
    # Without it, the newest items of a stream would be searched among all that have a time.
    partial_index("ix_items_stream_untimed", "occurred_at IS NULL", "stream", "collected_at"),
    sqlite_with_rowid=False,
)

# Earlier revisions of changed items: `items` always has the newest one.
item_revisions = Table(
    "item_revisions",
    metadata,
    Column("stream", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("occurred_at", UtcTime),
    Column("collected_at", UtcTime, nullable=False),
    Column("data", Json, nullable=False),
    Column("content_hash", Text, nullable=False),
    Column("deleted", Boolean, nullable=False, server_default=false()),
    Column("execution_id", String(36)),
    Column("fence", BigInteger, nullable=False),
    PrimaryKeyConstraint("stream", "key", "revision"),
    sqlite_with_rowid=False,
)

# The completeness ledger of each stream that is collected: see `rules.completeness`. Written with the batches, under
# the fence of the watermark. `gaps` is their number, for metrics.
completeness = Table(
    "completeness",
    metadata,
    Column("stream", Text, primary_key=True),
    Column("source", Text, nullable=False),
    Column("value", Json, nullable=False),
    Column("gaps", Integer, nullable=False, server_default="0"),
    Column("updated_at", UtcTime, nullable=False, server_default=now_text()),
    sqlite_with_rowid=False,
)
partial_index("ix_completeness_gaps", "gaps > 0", completeness.c.stream)

# The hash chain of each stream: see `floodmark.proofs`. A link covers the revisions of items that one step of the
# follower found, in the order of their events; `entries` are their lines, compressed.
proof_links = Table(
    "proof_links",
    metadata,
    Column("stream", Text, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("day", Date, nullable=False),
    Column("count", Integer, nullable=False),
    Column("entries", LargeBinary, nullable=False),
    Column("previous", Text, nullable=False),
    Column("digest", Text, nullable=False),
    PrimaryKeyConstraint("stream", "number"),
    sqlite_with_rowid=False,
)

# An event refers to a revision of an item, which is its payload. The relay assigns `position` in the order of
# commits, so that a reader's cursor cannot skip a transaction that commits late.
outbox = Table(
    "outbox",
    metadata,
    Column("seq", Serial, Identity(), primary_key=True),
    Column("stream", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("position", BigInteger),
    Column("sent_at", UtcTime),
    Column("traceparent", Text),
    # Whether the item is older than the run that found it: see `rules.backfill`.
    Column("existed", Text),
    sqlite_autoincrement=True,
)
partial_index("ix_outbox_unsent", "sent_at IS NULL", outbox.c.seq)
partial_index("ix_outbox_position", "position IS NOT NULL", outbox.c.position, unique=True)

# How many times in a row Floodmark's own events have led to an execution, for those to which they have. Written by
# external triggers and read by sinks; deleted after a while.
execution_hops = Table(
    "execution_hops",
    metadata,
    Column("execution_id", String(36), primary_key=True),
    Column("hops", Integer, nullable=False),
    Column("created_at", UtcTime, nullable=False, server_default=now_text()),
    Index("ix_execution_hops_created_at", "created_at"),
)

# How far each consumer has processed the events: sinks, rules, exports, and readers of the Python API. The kind is the
# part of the name before the colon: `sink:webhook`.
consumers = Table(
    "consumers",
    metadata,
    Column("name", Text, primary_key=True),
    # The destination. When it changes, the consumer starts again.
    Column("place", Text),
    Column("position", BigInteger, nullable=False),
    # What the consumer has to remember beside its position.
    Column("state", Json),
    Column("paused", Boolean, nullable=False, server_default=false()),
    Column("error", Text),
    Column("failed_at", UtcTime),
    Column("moved_at", UtcTime, nullable=False, server_default=now_text()),
    Column("created_at", UtcTime, nullable=False, server_default=now_text()),
)

# What the leader has counted, for charts: executions by the minute in which they ended, and by the minute in which they
# were created how late they started. Items are counted by the consumer `days`. Deleted after some weeks.
minutes = Table(
    "minutes",
    metadata,
    Column("minute", UtcTime, primary_key=True),
    # Of the executions created in this minute. NULL: they were not counted yet.
    Column("created", Integer),
    Column("unfinished", Integer, nullable=False, server_default="0"),
    Column("started", Integer, nullable=False, server_default="0"),
    Column("lateness", Json),
    # When they are counted again; NULL when all have ended. `counted` has the ends that are already in a minute.
    Column("recount_at", UtcTime),
    Column("counted", Json),
    Column("counted_at", UtcTime),
    # What happened in this minute.
    *(Column(name, Integer, nullable=False, server_default="0") for name in ("done", "dead", "cancelled", "skipped")),
    *(Column(name, Integer, nullable=False, server_default="0") for name in ("items_new", "items_changed")),
    # The longest queue.
    Column("queued", Integer, nullable=False, server_default="0"),
)
partial_index("ix_minutes_recount_at", "recount_at IS NOT NULL", minutes.c.recount_at)

# New and changed items of each stream by UTC day, counted by the consumer `days` as it reads the events.
stream_days = Table(
    "stream_days",
    metadata,
    Column("stream", Text, nullable=False),
    Column("day", Date, nullable=False),
    Column("new", Integer, nullable=False, server_default="0"),
    Column("changed", Integer, nullable=False, server_default="0"),
    PrimaryKeyConstraint("stream", "day"),
    sqlite_with_rowid=False,
)


workers = Table(
    "workers",
    metadata,
    Column("worker", Text, primary_key=True),
    Column("role", Text, nullable=False),
    Column("hostname", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("slots", Integer, nullable=False, server_default="0"),
    Column("busy", Integer, nullable=False, server_default="0"),
    Column("draining", Boolean, nullable=False, server_default=false()),
    Column("started_at", UtcTime, nullable=False),
    Column("seen_until", UtcTime, nullable=False),
    # The locks that a living process holds (see `process/process_lock.py`), NULL if it has none. A process that was
    # declared dead registers no lock again, so it can be declared dead by mistake only once.
    Column("lock_file", Text),
    Column("lock_key", BigInteger),
    Column("died_at", UtcTime),
)

# Facts about the installation: its id (so that two deployments do not share one Redis by mistake), the last step of
# the scheduler, whether workers are drained.
facts = Table(
    "facts",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Json, nullable=False),
    Column("updated_at", UtcTime, nullable=False, server_default=now_text()),
)


# Secrets that jobs refer to by name. `value` is encrypted.
secrets = Table(
    "secrets",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False, server_default=now_text()),
    Column("changed_at", UtcTime, nullable=False, server_default=now_text()),
)


# Who changed what. `via` is the interface: cli, api or sync.
audit = Table(
    "audit",
    metadata,
    Column("seq", Serial, Identity(), primary_key=True),
    Column("at", UtcTime, nullable=False, server_default=now_text()),
    Column("who", Text, nullable=False),
    Column("via", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("object", Text, nullable=False),
    Column("before", Json),
    Column("after", Json),
    Column("request_id", Text),
    Index("ix_audit_object", "object", "seq"),
    sqlite_autoincrement=True,
)
