"""Hints: how many each trigger gave, and subscriptions of feeds at WebSub hubs."""

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import UtcTime, now_text

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Count hints by trigger, and create the table of subscriptions."""
    op.add_column("triggers", sa.Column("hinted", sa.BigInteger(), server_default="0", nullable=False))
    op.create_table(
        "feed_subscriptions",
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("hub", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("callback", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text()),
        sa.Column("state", sa.Text(), server_default="found", nullable=False),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("due_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.Column("asked_at", UtcTime()),
        sa.Column("expires_at", UtcTime()),
        sa.Column("last_error", sa.Text()),
        sa.Column("pushes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("last_push_at", UtcTime()),
        sa.Column("created_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.CheckConstraint(
            "state IN ('found', 'asked', 'active', 'leaving')", name=op.f("ck_feed_subscriptions_state")
        ),
        sa.PrimaryKeyConstraint("target", name=op.f("pk_feed_subscriptions")),
    )
    op.create_index("ix_feed_subscriptions_callback", "feed_subscriptions", ["callback"], unique=True)
    op.create_index("ix_feed_subscriptions_due_at", "feed_subscriptions", ["due_at"])


def downgrade() -> None:
    """Drop both."""
    op.drop_table("feed_subscriptions")
    op.drop_column("triggers", "hinted")
