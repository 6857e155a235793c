"""Lists: executions that did not end well by state, paused and disabled jobs by name, items without a time."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

_EXCEPTIONAL, _EXECUTIONS = "ix_job_executions_exceptional", "executions"
_STATES = {"dead_ids": "dead", "cancelled": "cancelled", "skipped": "skipped"}


def upgrade() -> None:
    """Read one state of many without the others, and find the few jobs and items that are different."""
    op.drop_index(_EXCEPTIONAL, _EXECUTIONS)
    for name, state in _STATES.items():
        _create(f"ix_job_executions_{name}", _EXECUTIONS, ["execution_id"], f"state = '{state}'")
    _create("ix_jobs_paused", "jobs", ["name"], "paused")
    _create("ix_jobs_disabled", "jobs", ["name"], "NOT schedule_enabled")
    _create("ix_items_stream_untimed", "items", ["stream", "collected_at"], "occurred_at IS NULL")


def downgrade() -> None:
    """Make the index of all three states again."""
    op.drop_index("ix_items_stream_untimed", "items")
    op.drop_index("ix_jobs_disabled", "jobs")
    op.drop_index("ix_jobs_paused", "jobs")
    for name in _STATES:
        op.drop_index(f"ix_job_executions_{name}", _EXECUTIONS)
    _create(_EXCEPTIONAL, _EXECUTIONS, ["execution_id"], " OR ".join(f"state = '{one}'" for one in _STATES.values()))


def _create(name: str, table: str, columns: list[str], condition: str) -> None:
    op.create_index(name, table, columns, postgresql_where=sa.text(condition), sqlite_where=sa.text(condition))
