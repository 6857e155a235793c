"""Telegram: the engagement of posts over time, and files of posts."""

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import Json, UtcTime, now_text

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "telegram_engagement",
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("point", sa.Integer(), nullable=False),
        sa.Column("seen_at", UtcTime(), nullable=False),
        sa.Column("views", sa.BigInteger()),
        sa.Column("forwards", sa.BigInteger()),
        sa.Column("replies", sa.BigInteger()),
        sa.Column("reactions", Json),
        sa.PrimaryKeyConstraint("stream", "key", "point", name=op.f("pk_telegram_engagement")),
    )
    _create_media()


def _create_media() -> None:
    op.create_table(
        "media",
        sa.Column("media_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("channel_id", sa.BigInteger(), nullable=False),
        sa.Column("message_id", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger()),
        sa.Column("media_type", sa.Text()),
        sa.Column("filename", sa.Text()),
        sa.Column("state", sa.Text(), server_default="wanted", nullable=False),
        sa.Column("sha256", sa.Text()),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("try_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("holder", sa.Text()),
        sa.Column("lease_until", UtcTime()),
        sa.Column("created_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.Column("stored_at", UtcTime()),
        sa.CheckConstraint(
            "state IN ('wanted', 'stored', 'skipped', 'failed', 'gone', 'pruned')", name=op.f("ck_media_state")
        ),
        sa.PrimaryKeyConstraint("media_id", name=op.f("pk_media")),
    )
    op.create_index("ix_media_stream", "media", ["stream", "media_id"])
    op.create_index("ix_media_state", "media", ["state", "media_id"])
    op.create_index("ix_media_state_try_at", "media", ["state", "try_at", "media_id"])
    op.create_index("ix_media_state_sha256", "media", ["state", "sha256"])
    op.create_index("ix_media_sha256", "media", ["sha256", "state"])


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("media")
    op.drop_table("telegram_engagement")
