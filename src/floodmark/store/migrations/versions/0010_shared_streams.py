"""Shared streams: the jobs that collect one stream are found by index."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_OWN_STREAM = sa.text("stream IS NOT NULL")


def upgrade() -> None:
    """Index jobs by stream, which is their own or made of source and target."""
    op.create_index("ix_jobs_stream", "jobs", ["stream"], postgresql_where=_OWN_STREAM, sqlite_where=_OWN_STREAM)
    op.create_index("ix_jobs_target", "jobs", ["target", "source"])


def downgrade() -> None:
    """Drop both indexes."""
    op.drop_index("ix_jobs_target", "jobs")
    op.drop_index("ix_jobs_stream", "jobs")
