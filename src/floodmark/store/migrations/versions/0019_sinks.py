"""Sinks: how each of them fares, and the events that their receivers refuse."""

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import UtcTime, now_text

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "sinks",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("streams", sa.Text()),
        sa.Column("is_configured", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("retry_at", UtcTime()),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_sinks")),
    )
    op.create_table(
        "sink_letters",
        sa.Column("sink", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("failed_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.Column("is_retried", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.PrimaryKeyConstraint("sink", "position", name=op.f("pk_sink_letters")),
    )
    where = sa.text("is_retried")
    op.create_index(
        "ix_sink_letters_retried", "sink_letters", ["sink", "position"], sqlite_where=where, postgresql_where=where
    )


def downgrade() -> None:
    """Drop both."""
    op.drop_table("sink_letters")
    op.drop_table("sinks")
