"""The core: jobs, executions, watermarks, items, events."""

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import SQLITE_NOW, Json, Serial, UtcTime, new_id, now_text

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# A change of one of these columns makes the scheduler plan the job again, from the time of the change.
WHEN = (
    "schedule_type",
    "cron_expression",
    "interval_seconds",
    "frequency",
    "time_config",
    "timezone",
    "schedule_enabled",
    "paused",
    "scheduler_version",
)


def upgrade() -> None:
    """Create the tables and the trigger that clears `next_run`."""
    _create_tables()
    if op.get_bind().dialect.name == "postgresql":
        _watch_postgresql()
        _leave_room()
    else:
        _watch_sqlite()


def downgrade() -> None:
    """Drop everything."""
    for table in (
        "job_dependencies",
        "facts",
        "item_revisions",
        "items",
        "job_executions",
        "jobs",
        "leases",
        "limits",
        "outbox",
        "watermarks",
        "workers",
    ):
        op.drop_table(table)
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION floodmark_watch_when()")
        op.execute("DROP FUNCTION floodmark_tell_jobs()")


def _leave_room() -> None:
    """Leave free space on the pages of rows that every run updates: then their indexes need no update."""
    op.execute("ALTER TABLE jobs SET (fillfactor = 60)")
    op.execute("ALTER TABLE watermarks SET (fillfactor = 50)")


def _watch_postgresql() -> None:
    changed = " OR ".join(f"NEW.{column} IS DISTINCT FROM OLD.{column}" for column in WHEN)
    op.execute(f"""
        CREATE FUNCTION floodmark_watch_when() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF {changed} THEN
                NEW.next_run := NULL;
                NEW.planned_until := clock_timestamp();
                NEW.invalid_reason := NULL;
                NEW.version := OLD.version + 1;
                NEW.updated_at := clock_timestamp();
            END IF;
            RETURN NEW;
        END $$
    """)
    op.execute(f"""
        CREATE TRIGGER floodmark_watch_when BEFORE UPDATE OF {", ".join(WHEN)} ON jobs
        FOR EACH ROW EXECUTE FUNCTION floodmark_watch_when()
    """)
    # Wakes the scheduler at once, also for SQL typed by hand.
    op.execute("""
        CREATE FUNCTION floodmark_tell_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_notify('floodmark', 'jobs');
            RETURN NULL;
        END $$
    """)
    op.execute(f"""
        CREATE TRIGGER floodmark_tell_jobs AFTER INSERT OR DELETE OR UPDATE OF {", ".join(WHEN)} ON jobs
        FOR EACH STATEMENT EXECUTE FUNCTION floodmark_tell_jobs()
    """)


def _watch_sqlite() -> None:
    changed = " OR ".join(f"NEW.{column} IS NOT OLD.{column}" for column in WHEN)
    op.execute(f"""
        CREATE TRIGGER floodmark_watch_when AFTER UPDATE OF {", ".join(WHEN)} ON jobs
        WHEN {changed}
        BEGIN
            UPDATE jobs SET next_run = NULL, planned_until = {SQLITE_NOW}, invalid_reason = NULL,
                            version = OLD.version + 1, updated_at = {SQLITE_NOW}
             WHERE job_id = NEW.job_id;
        END
    """)


def _partial_index(name: str, table: str, column: str, where: str, *, unique: bool = False) -> None:
    rows = sa.text(where)
    op.create_index(name, table, [column], unique=unique, postgresql_where=rows, sqlite_where=rows)


def _create_tables() -> None:
    op.create_table(
        "facts",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", Json, nullable=False),
        sa.Column("updated_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_facts")),
    )
    op.create_table(
        "item_revisions",
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("occurred_at", UtcTime(), nullable=True),
        sa.Column("collected_at", UtcTime(), nullable=False),
        sa.Column("data", Json, nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("deleted", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("execution_id", sa.String(length=36), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("stream", "key", "revision", name=op.f("pk_item_revisions")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "items",
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), server_default="1", nullable=False),
        sa.Column("occurred_at", UtcTime(), nullable=True),
        sa.Column("collected_at", UtcTime(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=True),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.Column("data", Json, nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("deleted", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("execution_id", sa.String(length=36), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("stream", "key", name=op.f("pk_items")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "job_executions",
        sa.Column("execution_id", sa.String(length=36), nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("job_name", sa.Text(), nullable=False),
        sa.Column("scheduled_for", UtcTime(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("priority", sa.SmallInteger(), nullable=False),
        sa.Column("trigger", sa.Text(), server_default="schedule", nullable=False),
        sa.Column("params", Json, nullable=True),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("rescues", sa.Integer(), server_default="0", nullable=False),
        sa.Column("coalesced", sa.Integer(), server_default="0", nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("hold", sa.Text(), nullable=True),
        sa.Column("not_before", UtcTime(), nullable=True),
        sa.Column("queue_rank", UtcTime(), nullable=True),
        sa.Column("lease_until", UtcTime(), nullable=True),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=True),
        sa.Column("cancel_requested", sa.Text(), nullable=True),
        sa.Column("started_at", UtcTime(), nullable=True),
        sa.Column("completed_at", UtcTime(), nullable=True),
        sa.Column("duration_seconds", sa.Float(), nullable=True),
        sa.Column("items_new", sa.Integer(), server_default="0", nullable=False),
        sa.Column("items_changed", sa.Integer(), server_default="0", nullable=False),
        sa.Column("items_known", sa.Integer(), server_default="0", nullable=False),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("error_details", Json, nullable=True),
        sa.Column("result", Json, nullable=True),
        sa.Column("traceparent", sa.Text(), nullable=True),
        sa.Column("created_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.CheckConstraint(
            "hold = 'overlap' OR hold = 'dependency' OR hold = 'paused'", name=op.f("ck_job_executions_hold")
        ),
        sa.CheckConstraint(
            "state = 'queued' OR state = 'waiting' OR state = 'running' OR state = 'done' OR state = 'dead'"
            " OR state = 'cancelled' OR state = 'skipped'",
            name=op.f("ck_job_executions_state"),
        ),
        sa.PrimaryKeyConstraint("execution_id", name=op.f("pk_job_executions")),
        sa.UniqueConstraint("job_id", "scheduled_for", name=op.f("uq_job_executions_job_id_scheduled_for")),
    )
    _partial_index("ix_job_executions_active", "job_executions", "job_id", "completed_at IS NULL")
    _partial_index("ix_job_executions_dead", "job_executions", "completed_at", "state = 'dead'")
    _partial_index("ix_job_executions_queued", "job_executions", "queue_rank", "state = 'queued'")
    _partial_index("ix_job_executions_running", "job_executions", "lease_until", "state = 'running'")
    _partial_index("ix_job_executions_waiting", "job_executions", "not_before", "state = 'waiting'")
    op.create_table(
        "jobs",
        sa.Column("job_id", sa.String(length=36), server_default=new_id(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), server_default="python", nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=True),
        sa.Column("params", Json, server_default=sa.text("'{}'"), nullable=False),
        sa.Column("tags", Json, server_default=sa.text("'[]'"), nullable=False),
        sa.Column("schedule_type", sa.Text(), server_default="interval", nullable=False),
        sa.Column("cron_expression", sa.Text(), nullable=True),
        sa.Column("interval_seconds", sa.Float(), nullable=True),
        sa.Column("frequency", sa.Text(), nullable=True),
        sa.Column("time_config", Json, nullable=True),
        sa.Column("timezone", sa.Text(), server_default="UTC", nullable=False),
        sa.Column("schedule_enabled", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column("paused", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("pause_reason", sa.Text(), nullable=True),
        sa.Column("invalid_reason", sa.Text(), nullable=True),
        sa.Column("scheduler_version", sa.SmallInteger(), server_default="2", nullable=False),
        sa.Column("priority", sa.SmallInteger(), server_default="2", nullable=False),
        sa.Column("timeout_seconds", sa.Float(), server_default="3600", nullable=False),
        sa.Column("retry_max", sa.Integer(), server_default="3", nullable=False),
        sa.Column("overlap", sa.Text(), server_default="skip", nullable=False),
        sa.Column("max_instances", sa.Integer(), server_default="1", nullable=False),
        sa.Column("coalesce", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column("misfire_grace_seconds", sa.Float(), server_default="300", nullable=False),
        sa.Column("catch_up", sa.Text(), server_default="one", nullable=False),
        sa.Column("jitter_seconds", sa.Float(), server_default="0", nullable=False),
        sa.Column("limit_key", sa.Text(), nullable=True),
        sa.Column("account", sa.Text(), nullable=True),
        sa.Column("next_run", UtcTime(), nullable=True),
        sa.Column("planned_until", UtcTime(), nullable=True),
        sa.Column("last_run", UtcTime(), nullable=True),
        sa.Column("last_success", UtcTime(), nullable=True),
        sa.Column("last_status", sa.Text(), nullable=True),
        sa.Column("domain", sa.Text(), nullable=True),
        sa.Column("domain_config_id", sa.Text(), nullable=True),
        sa.Column("profile_id", sa.Text(), nullable=True),
        sa.Column("source_id", sa.Text(), nullable=True),
        sa.Column("url", sa.Text(), nullable=True),
        sa.Column("tenant_id", sa.Text(), nullable=True),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.Column("trigger_webhook", sa.Text(), nullable=True),
        sa.Column("trigger_channel", sa.Text(), nullable=True),
        sa.Column("declared", sa.Text(), nullable=True),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("created_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.Column("updated_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.CheckConstraint("catch_up IN ('none', 'one', 'all')", name=op.f("ck_jobs_catch_up")),
        sa.CheckConstraint("overlap IN ('skip', 'queue', 'replace')", name=op.f("ck_jobs_overlap")),
        sa.CheckConstraint(
            "schedule_type IN ('cron', 'interval', 'calendar', 'immediate', 'event')",
            name=op.f("ck_jobs_schedule_type"),
        ),
        sa.CheckConstraint("priority IN (1, 2, 3)", name=op.f("ck_jobs_priority")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("name", name=op.f("uq_jobs_name")),
    )
    _partial_index("ix_jobs_domain", "jobs", "domain", "domain IS NOT NULL")
    _partial_index("ix_jobs_domain_config_id", "jobs", "domain_config_id", "domain_config_id IS NOT NULL")
    plannable = "schedule_enabled AND NOT paused AND invalid_reason IS NULL AND scheduler_version = 2"
    _partial_index("ix_jobs_next_run", "jobs", "next_run", plannable)
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("term", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("lease_until", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    op.create_table(
        "limits",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("until", UtcTime(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("hits", sa.Integer(), server_default="1", nullable=False),
        sa.Column("updated_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_limits")),
    )
    op.create_table(
        "outbox",
        sa.Column("seq", Serial, sa.Identity(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=True),
        sa.Column("sent_at", UtcTime(), nullable=True),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_outbox")),
        sqlite_autoincrement=True,
    )
    _partial_index("ix_outbox_position", "outbox", "position", "position IS NOT NULL", unique=True)
    _partial_index("ix_outbox_unsent", "outbox", "seq", "sent_at IS NULL")
    op.create_table(
        "watermarks",
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("value", Json, nullable=True),
        sa.Column("fence", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("holder", sa.String(length=36), nullable=True),
        sa.Column("lease_until", UtcTime(), nullable=True),
        sa.Column("high_water", Json, nullable=True),
        sa.Column("moved_at", UtcTime(), nullable=True),
        sa.Column("last_parsed_at", UtcTime(), nullable=True),
        sa.Column("last_checked_at", UtcTime(), nullable=True),
        sa.PrimaryKeyConstraint("stream", name=op.f("pk_watermarks")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "workers",
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("hostname", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("slots", sa.Integer(), server_default="0", nullable=False),
        sa.Column("busy", sa.Integer(), server_default="0", nullable=False),
        sa.Column("draining", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("started_at", UtcTime(), nullable=False),
        sa.Column("seen_until", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("worker", name=op.f("pk_workers")),
    )
    op.create_table(
        "job_dependencies",
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("depends_on", sa.String(length=36), nullable=False),
        sa.CheckConstraint("job_id <> depends_on", name=op.f("ck_job_dependencies_not_itself")),
        sa.ForeignKeyConstraint(
            ["depends_on"], ["jobs.job_id"], name=op.f("fk_job_dependencies_depends_on"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_job_dependencies_job_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "depends_on", name=op.f("pk_job_dependencies")),
    )
    op.create_index("ix_job_dependencies_depends_on", "job_dependencies", ["depends_on"], unique=False)
