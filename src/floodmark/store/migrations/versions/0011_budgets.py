"""Adaptive jobs: budgets of requests, what was learned about sources, hints."""

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import SQLITE_NOW, Json, UtcTime, now_text

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_WATCHED_BEFORE = (
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
_WATCHED = (*_WATCHED_BEFORE, "budget", "max_delay_seconds", "weight")
_TYPES_BEFORE = ("cron", "interval", "calendar", "immediate", "event")
_TYPES = (*_TYPES_BEFORE, "adaptive")
_PLANNABLE = "schedule_enabled AND NOT paused AND invalid_reason IS NULL AND scheduler_version = 2"
_CLOCKED = f"{_PLANNABLE} AND (schedule_type <> 'adaptive' OR next_run IS NULL)"
_ADAPTIVE = f"{_PLANNABLE} AND schedule_type = 'adaptive'"


def upgrade() -> None:
    """Create the tables, and let jobs be adaptive."""
    _create_tables()
    op.add_column("jobs", sa.Column("budget", sa.Text()))
    op.add_column("jobs", sa.Column("max_delay_seconds", sa.Float()))
    op.add_column("jobs", sa.Column("weight", sa.Float(), nullable=False, server_default="1.0"))
    op.add_column("jobs", sa.Column("hinted_at", UtcTime()))
    _allow(_TYPES_BEFORE, _TYPES)
    op.drop_index("ix_jobs_next_run", "jobs")
    _partial_index("ix_jobs_next_run", ["next_run"], _CLOCKED)
    _partial_index("ix_jobs_adaptive", ["budget", "next_run"], _ADAPTIVE)
    _partial_index("ix_jobs_hinted", ["budget", "hinted_at"], "hinted_at IS NOT NULL")
    _watch(_WATCHED)


def downgrade() -> None:
    """Turn adaptive jobs into jobs without a schedule, and drop the rest."""
    op.execute("UPDATE jobs SET schedule_type = 'event' WHERE schedule_type = 'adaptive'")
    _watch(_WATCHED_BEFORE)
    for index in ("ix_jobs_hinted", "ix_jobs_adaptive", "ix_jobs_next_run"):
        op.drop_index(index, "jobs")
    _partial_index("ix_jobs_next_run", ["next_run"], _PLANNABLE)
    _allow(_TYPES, _TYPES_BEFORE)
    for column in ("hinted_at", "weight", "max_delay_seconds", "budget"):
        op.drop_column("jobs", column)
    for table in ("activity", "budget_hours", "budget_grants", "budgets"):
        op.drop_table(table)


def _create_tables() -> None:
    op.create_table(
        "budgets",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("requests", sa.Float(), nullable=False),
        sa.Column("period", sa.Text(), server_default="minute", nullable=False),
        sa.Column("max_delay_seconds", sa.Float()),
        sa.Column("fairness", sa.Float(), server_default="0.25", nullable=False),
        sa.Column("next_free", UtcTime(), server_default=now_text(), nullable=False),
        sa.Column("interval_seconds", sa.Float(), nullable=False),
        sa.Column("sources", sa.Integer(), server_default="0", nullable=False),
        sa.Column("price", sa.Float()),
        sa.Column("habits", Json),
        sa.Column("measured_at", UtcTime()),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("created_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.Column("updated_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.CheckConstraint("period = 'minute' OR period = 'week'", name=op.f("ck_budgets_period")),
        sa.CheckConstraint("requests > 0", name=op.f("ck_budgets_requests")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_budgets")),
    )
    op.create_table(
        "budget_grants",
        sa.Column("execution_id", sa.String(length=36), nullable=False),
        sa.Column("budget", sa.Text(), nullable=False),
        sa.Column("granted_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.PrimaryKeyConstraint("execution_id", name=op.f("pk_budget_grants")),
    )
    op.create_index("ix_budget_grants_budget", "budget_grants", ["budget"])
    op.create_table(
        "budget_hours",
        sa.Column("budget", sa.Text(), nullable=False),
        sa.Column("hour", UtcTime(), nullable=False),
        sa.Column("requests", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("budget", "hour", name=op.f("pk_budget_hours")),
    )
    op.create_table(
        "activity",
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("learned", sa.LargeBinary()),
        sa.Column("measured", sa.LargeBinary()),
        sa.Column("polled_at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name=op.f("fk_activity_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_activity")),
    )


def _partial_index(name: str, columns: list[str], where: str) -> None:
    op.create_index(name, "jobs", columns, postgresql_where=sa.text(where), sqlite_where=sa.text(where))


def _allow(before: tuple[str, ...], after: tuple[str, ...]) -> None:
    """Change the words that the check of `schedule_type` allows."""
    old, new = (f"schedule_type IN ({', '.join(map(repr, words))})" for words in (before, after))
    if op.get_bind().dialect.name == "postgresql":
        op.drop_constraint(op.f("ck_jobs_schedule_type"), "jobs")
        op.create_check_constraint(op.f("ck_jobs_schedule_type"), "jobs", new)
        return
    # The documented way on SQLite to change a check without copying the table, its triggers and its views.
    version = op.get_bind().exec_driver_sql("PRAGMA schema_version").scalar_one()
    op.execute("PRAGMA writable_schema = ON")
    op.get_bind().exec_driver_sql(
        "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE type = 'table' AND name = 'jobs'", (old, new)
    )
    op.execute(f"PRAGMA schema_version = {version + 1}")
    op.execute("PRAGMA writable_schema = OFF")


def _watch(columns: tuple[str, ...]) -> None:
    """Clear `next_run` when one of these columns changes."""
    if op.get_bind().dialect.name == "postgresql":
        _watch_postgresql(columns)
    else:
        _watch_sqlite(columns)


def _watch_postgresql(columns: tuple[str, ...]) -> None:
    changed = " OR ".join(f"NEW.{column} IS DISTINCT FROM OLD.{column}" for column in columns)
    op.execute("DROP TRIGGER floodmark_watch_when ON jobs")
    op.execute("DROP TRIGGER floodmark_tell_jobs ON jobs")
    op.execute(f"""
        CREATE OR REPLACE FUNCTION floodmark_watch_when() RETURNS trigger LANGUAGE plpgsql AS $$
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
        CREATE TRIGGER floodmark_watch_when BEFORE UPDATE OF {", ".join(columns)} ON jobs
        FOR EACH ROW EXECUTE FUNCTION floodmark_watch_when()
    """)
    op.execute(f"""
        CREATE TRIGGER floodmark_tell_jobs AFTER INSERT OR DELETE OR UPDATE OF {", ".join(columns)} ON jobs
        FOR EACH STATEMENT EXECUTE FUNCTION floodmark_tell_jobs()
    """)


def _watch_sqlite(columns: tuple[str, ...]) -> None:
    changed = " OR ".join(f"NEW.{column} IS NOT OLD.{column}" for column in columns)
    op.execute("DROP TRIGGER floodmark_watch_when")
    op.execute(f"""
        CREATE TRIGGER floodmark_watch_when AFTER UPDATE OF {", ".join(columns)} ON jobs
        WHEN {changed}
        BEGIN
            UPDATE jobs SET next_run = NULL, planned_until = {SQLITE_NOW}, invalid_reason = NULL,
                            version = OLD.version + 1, updated_at = {SQLITE_NOW}
             WHERE job_id = NEW.job_id;
        END
    """)
