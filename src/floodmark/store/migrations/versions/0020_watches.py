"""Watches: definitions, matches and notifications; events say whether their item is older than the run."""

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import Json, Serial, UtcTime, now_text

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_OF_WATCH = ["watches.watch_id"]
_IS_DUE, _IS_UNSENT = sa.text("due_at IS NOT NULL AND notification_id IS NULL"), sa.text("try_at IS NOT NULL")


def upgrade() -> None:
    """Create the tables, and add the column of events."""
    op.add_column("outbox", sa.Column("existed", sa.Text()))
    is_shared = sa.text("items_stream IS NOT NULL")
    op.create_index(
        "ix_watermarks_items_stream",
        "watermarks",
        ["items_stream"],
        sqlite_where=is_shared,
        postgresql_where=is_shared,
    )
    _create_watches()
    _create_matches()
    _create_notifications()


def _create_watches() -> None:
    op.create_table(
        "watches",
        sa.Column("watch_id", sa.String(36), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), server_default="items", nullable=False),
        sa.Column("query", sa.Text()),
        sa.Column("pattern", sa.Text()),
        sa.Column("whole_word", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("conditions", Json, server_default=sa.text("'[]'"), nullable=False),
        sa.Column("streams", Json, server_default=sa.text("'[]'"), nullable=False),
        sa.Column("sources", Json, server_default=sa.text("'[]'"), nullable=False),
        sa.Column("tags", Json, server_default=sa.text("'[]'"), nullable=False),
        sa.Column("channels", Json, server_default=sa.text("'[]'"), nullable=False),
        sa.Column("threshold_count", sa.Integer()),
        sa.Column("threshold_seconds", sa.Float()),
        sa.Column("digest", sa.Text()),
        sa.Column("quiet", sa.Text()),
        sa.Column("timezone", sa.Text(), server_default="UTC", nullable=False),
        sa.Column("cooldown_seconds", sa.Float()),
        sa.Column("max_age_seconds", sa.Float()),
        sa.Column("paused", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("after_position", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("active_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("created_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.Column("updated_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.PrimaryKeyConstraint("watch_id", name=op.f("pk_watches")),
        sa.UniqueConstraint("name", name=op.f("uq_watches_name")),
    )
    op.create_index("ix_watches_generation", "watches", ["generation"])
    op.create_table(
        "watch_counts",
        sa.Column("watch_id", sa.String(36), nullable=False),
        sa.Column("matches", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("suppressed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("last_match_at", UtcTime()),
        sa.Column("hour", UtcTime()),
        sa.Column("stored", sa.Integer(), server_default="0", nullable=False),
        _foreign_key("watch_counts"),
        sa.PrimaryKeyConstraint("watch_id", name=op.f("pk_watch_counts")),
    )


def _create_matches() -> None:
    op.create_table(
        "watch_matches",
        sa.Column("seq", Serial, sa.Identity(), nullable=False),
        sa.Column("watch_id", sa.String(36), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("key", sa.Text()),
        sa.Column("revision", sa.Integer()),
        sa.Column("position", sa.BigInteger()),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("is_due", sa.Boolean(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("url", sa.Text()),
        sa.Column("created_at", UtcTime(), server_default=now_text(), nullable=False),
        _foreign_key("watch_matches"),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_watch_matches")),
        sa.UniqueConstraint("event_id", "watch_id", name=op.f("uq_watch_matches_event_id_watch_id")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_watch_matches_watch_id_seq", "watch_matches", ["watch_id", "seq"])
    op.create_index("ix_watch_matches_created_at", "watch_matches", ["created_at"])
    is_counting = sa.text("NOT is_due")
    op.create_index(
        "ix_watch_matches_counting",
        "watch_matches",
        ["watch_id", "at"],
        sqlite_where=is_counting,
        postgresql_where=is_counting,
    )


def _create_notifications() -> None:
    op.create_table(
        "watch_channels",
        sa.Column("watch_id", sa.String(36), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("notified_seq", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("waiting", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("due_at", UtcTime()),
        sa.Column("notification_id", sa.String(36)),
        sa.Column("sent_at", UtcTime()),
        _foreign_key("watch_channels"),
        sa.PrimaryKeyConstraint("watch_id", "channel", name=op.f("pk_watch_channels")),
    )
    op.create_index(
        "ix_watch_channels_due_at", "watch_channels", ["due_at"], sqlite_where=_IS_DUE, postgresql_where=_IS_DUE
    )
    op.create_table(
        "watch_notifications",
        sa.Column("notification_id", sa.String(36), nullable=False),
        sa.Column("watch_id", sa.String(36), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("matches", sa.BigInteger(), nullable=False),
        sa.Column("message", Json, nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("try_at", UtcTime()),
        sa.Column("sent_at", UtcTime()),
        sa.Column("error", sa.Text()),
        sa.Column("created_at", UtcTime(), server_default=now_text(), nullable=False),
        _foreign_key("watch_notifications"),
        sa.PrimaryKeyConstraint("notification_id", name=op.f("pk_watch_notifications")),
    )
    op.create_index("ix_watch_notifications_watch_id", "watch_notifications", ["watch_id", "notification_id"])
    op.create_index(
        "ix_watch_notifications_try_at",
        "watch_notifications",
        ["try_at"],
        sqlite_where=_IS_UNSENT,
        postgresql_where=_IS_UNSENT,
    )


def _foreign_key(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["watch_id"], _OF_WATCH, name=op.f(f"fk_{table}_watch_id"), ondelete="CASCADE")


def downgrade() -> None:
    """Drop the tables, and the position of the evaluator."""
    for table in ("watch_notifications", "watch_channels", "watch_matches", "watch_counts", "watches"):
        op.drop_table(table)
    op.execute("DELETE FROM consumers WHERE name = 'watches'")
    op.drop_index("ix_watermarks_items_stream", table_name="watermarks")
    op.drop_column("outbox", "existed")
