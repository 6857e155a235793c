"""Traces: events store the trace of their batch."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add `outbox.traceparent`."""
    op.add_column("outbox", sa.Column("traceparent", sa.Text(), nullable=True))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("outbox", "traceparent")
