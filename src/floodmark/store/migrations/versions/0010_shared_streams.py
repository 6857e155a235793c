"""Shared streams: indexes to find the jobs that collect a stream."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_OWN_STREAM = sa.text("stream IS NOT NULL")


def upgrade() -> None:
    """Index jobs by their stream, and by the source and target that it is made of."""
    op.create_index("ix_jobs_stream", "jobs", ["stream"], postgresql_where=_OWN_STREAM, sqlite_where=_OWN_STREAM)
    op.create_index("ix_jobs_target", "jobs", ["target", "source"])


def downgrade() -> None:
    """Drop both indexes."""
    op.drop_index("ix_jobs_target", "jobs")
    op.drop_index("ix_jobs_stream", "jobs")
