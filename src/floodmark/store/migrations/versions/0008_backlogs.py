"""Backlogs: indexes to find the next execution of a job without reading all waiting ones."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_ACTIVE = sa.text("completed_at IS NULL")
_HELD = sa.text("state = 'waiting' AND hold IS NOT NULL")


def upgrade() -> None:
    """Index the unfinished executions of a job by their hold, and the held ones in order."""
    op.drop_index("ix_job_executions_active", "executions")
    op.create_index(
        "ix_job_executions_active",
        "executions",
        ["job_id", "hold"],
        postgresql_where=_ACTIVE,
        sqlite_where=_ACTIVE,
    )
    op.create_index(
        "ix_job_executions_held",
        "executions",
        ["hold", "job_id", "scheduled_for"],
        postgresql_where=_HELD,
        sqlite_where=_HELD,
    )


def downgrade() -> None:
    """Index the unfinished executions by job alone."""
    op.drop_index("ix_job_executions_held", "executions")
    op.drop_index("ix_job_executions_active", "executions")
    op.create_index(
        "ix_job_executions_active", "executions", ["job_id"], postgresql_where=_ACTIVE, sqlite_where=_ACTIVE
    )
