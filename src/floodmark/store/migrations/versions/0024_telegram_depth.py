"""Telegram: the engagement of posts over time."""

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import Json, UtcTime

revision = "0024"
down_revision = "0020"
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


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("telegram_engagement")
