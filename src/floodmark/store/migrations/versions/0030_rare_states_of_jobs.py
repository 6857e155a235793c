"""Lists: the executions of one job that did not end well."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

_NAME, _TABLE = "ix_job_executions_rare_of_job", "executions"
_WHERE = sa.text("state IN ('cancelled', 'dead', 'skipped')")


def upgrade() -> None:
    """Find the few among many of a job."""
    op.create_index(_NAME, _TABLE, ["job_id", "scheduled_for"], postgresql_where=_WHERE, sqlite_where=_WHERE)


def downgrade() -> None:
    """Read all executions of the job again."""
    op.drop_index(_NAME, _TABLE)
