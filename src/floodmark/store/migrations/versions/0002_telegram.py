"""Telegram: accounts and their sessions, breakers, known channels, paces, and the view of posts."""

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import Json, UtcTime, now_text

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_POSTS = """
CREATE VIEW posts AS
SELECT {channel_id} AS channel_id, {message_id} AS message_id, occurred_at AS date, {text} AS text,
       {views} AS views, {forwards} AS forwards, {edit_date} AS edit_date, {grouped_id} AS grouped_id,
       revision, deleted, collected_at, tenant_id, user_id, stream, key, data
  FROM items WHERE stream LIKE 'telegram:%'
"""
_NUMBERS, _TEXTS = ("channel_id", "views", "forwards"), ("text", "edit_date", "grouped_id")


def upgrade() -> None:
    """Create the tables, the columns and the view."""
    op.create_table(
        "accounts",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), server_default="telegram", nullable=False),
        sa.Column("api_id", sa.BigInteger(), nullable=False),
        sa.Column("secrets", sa.Text(), nullable=False),
        sa.Column("phone", sa.Text(), nullable=True),
        sa.Column("tenant_id", sa.Text(), nullable=True),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), server_default="active", nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("holder", sa.Text(), nullable=True),
        sa.Column("lease_until", UtcTime(), nullable=True),
        sa.Column("last_used_at", UtcTime(), nullable=True),
        sa.Column("created_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.Column("updated_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.CheckConstraint("state IN ('active', 'parked')", name=op.f("ck_accounts_state")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_accounts")),
    )
    op.create_table(
        "breakers",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="closed", nullable=False),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("window_began", UtcTime(), nullable=True),
        sa.Column("failed_at", Json, nullable=True),
        sa.Column("open_until", UtcTime(), nullable=True),
        sa.Column("probe_until", UtcTime(), nullable=True),
        sa.Column("trips", sa.Integer(), server_default="0", nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("updated_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.CheckConstraint("state IN ('closed', 'open', 'half-open')", name=op.f("ck_breakers_state")),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_breakers")),
    )
    op.create_table(
        "telegram_channels",
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("channel_id", sa.BigInteger(), nullable=False),
        sa.Column("access_hash", sa.BigInteger(), nullable=False),
        sa.Column("username", sa.Text(), nullable=True),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("updated_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.PrimaryKeyConstraint("account", "channel_id", name=op.f("pk_telegram_channels")),
    )
    op.create_index("ix_telegram_channels_username", "telegram_channels", ["username"])
    op.add_column("limits", sa.Column("rate", sa.Float(), nullable=True))
    op.add_column("watermarks", sa.Column("items_stream", sa.Text(), nullable=True))
    # Partial, so that only queries for a date use it. PostgreSQL plans our hot statements once, while the table is
    # empty and any index is as good as the key; with this one it would read the whole stream for each item.
    where = sa.text("occurred_at IS NOT NULL")
    columns = ["stream", "occurred_at"]
    op.create_index("ix_items_stream_occurred_at", "items", columns, postgresql_where=where, sqlite_where=where)
    op.execute(_posts())


def downgrade() -> None:
    """Drop them."""
    op.execute("DROP VIEW posts")
    op.drop_index("ix_items_stream_occurred_at", "items")
    op.drop_column("watermarks", "items_stream")
    op.drop_column("limits", "rate")
    for table in ("telegram_channels", "breakers", "accounts"):
        op.drop_table(table)


def _posts() -> str:
    if op.get_bind().dialect.name == "postgresql":
        columns = {name: f"(data->>'{name}')::bigint" for name in _NUMBERS}
        columns |= {name: f"data->>'{name}'" for name in _TEXTS}
        return _POSTS.format(message_id="(data->>'id')::bigint", **columns)
    columns = {name: f"json_extract(data, '$.{name}')" for name in (*_NUMBERS, *_TEXTS)}
    return _POSTS.format(message_id="json_extract(data, '$.id')", **columns)
