"""Counts by the minute, and of items by stream and day."""

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import Json, UtcTime

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def _count(name: str) -> "sa.Column[int]":
    return sa.Column(name, sa.Integer(), server_default="0", nullable=False)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "minutes",
        sa.Column("minute", UtcTime(), nullable=False),
        sa.Column("created", sa.Integer(), nullable=True),
        *map(_count, ("unfinished", "started")),
        sa.Column("lateness", Json, nullable=True),
        sa.Column("recount_at", UtcTime(), nullable=True),
        sa.Column("counted", Json, nullable=True),
        sa.Column("counted_at", UtcTime(), nullable=True),
        *map(_count, ("done", "dead", "cancelled", "skipped", "items_new", "items_changed", "queued")),
        sa.PrimaryKeyConstraint("minute", name=op.f("pk_minutes")),
    )
    where = sa.text("recount_at IS NOT NULL")
    op.create_index("ix_minutes_recount_at", "minutes", ["recount_at"], sqlite_where=where, postgresql_where=where)
    op.create_table(
        "stream_days",
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        *map(_count, ("new", "changed")),
        sa.PrimaryKeyConstraint("stream", "day", name=op.f("pk_stream_days")),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Drop the tables: they are counted again."""
    op.drop_table("stream_days")
    op.drop_table("minutes")
