"""Lists by state: executions that did not end well by state and id, and jobs that are paused or disabled by name."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0022"
branch_labels = None
depends_on = None

_EXCEPTIONAL, _EXECUTIONS = "ix_job_executions_exceptional", "executions"
_STATES = sa.text("state = 'dead' OR state = 'cancelled' OR state = 'skipped'")
_PAUSED, _DISABLED = sa.text("paused"), sa.text("NOT schedule_enabled")


def upgrade() -> None:
    """Read one state of many without the others, and find the few jobs that do not run."""
    op.drop_index(_EXCEPTIONAL, _EXECUTIONS)
    columns = ["state", "execution_id"]
    op.create_index(_EXCEPTIONAL, _EXECUTIONS, columns, postgresql_where=_STATES, sqlite_where=_STATES)
    op.create_index("ix_jobs_paused", "jobs", ["name"], postgresql_where=_PAUSED, sqlite_where=_PAUSED)
    op.create_index("ix_jobs_disabled", "jobs", ["name"], postgresql_where=_DISABLED, sqlite_where=_DISABLED)


def downgrade() -> None:
    """Make the index by id again."""
    op.drop_index("ix_jobs_disabled", "jobs")
    op.drop_index("ix_jobs_paused", "jobs")
    op.drop_index(_EXCEPTIONAL, _EXECUTIONS)
    op.create_index(_EXCEPTIONAL, _EXECUTIONS, ["execution_id"], postgresql_where=_STATES, sqlite_where=_STATES)
