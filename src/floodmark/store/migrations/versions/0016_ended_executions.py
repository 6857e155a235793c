"""Ended executions: an index of those that failed, were cancelled or skipped, to list them by state."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_NAME, _TABLE = "ix_job_executions_exceptional", "executions"
_WHERE = sa.text("state = 'dead' OR state = 'cancelled' OR state = 'skipped'")


def upgrade() -> None:
    """Index the few executions that did not end well, by their id."""
    op.create_index(_NAME, _TABLE, ["execution_id"], postgresql_where=_WHERE, sqlite_where=_WHERE)


def downgrade() -> None:
    """Drop the index."""
    op.drop_index(_NAME, _TABLE)
