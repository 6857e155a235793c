"""The API: tokens, the audit log, triggers and their deliveries, idempotency keys, and fires of shadow schedulers."""

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import Json, Serial, UtcTime, now_text

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# The columns of jobs that external triggers fire.
_COLUMNS = ("trigger_webhook", "trigger_channel")


def upgrade() -> None:
    """Create the tables."""
    _create_access()
    _create_triggers()
    op.create_table(
        "shadow_fires",
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("scheduled_for", UtcTime(), nullable=False),
        sa.Column("recorded_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "scheduled_for", name=op.f("pk_shadow_fires")),
    )


def downgrade() -> None:
    """Drop them."""
    for column in _COLUMNS:
        op.drop_index(f"ix_jobs_{column}", table_name="jobs")
    for table in ("shadow_fires", "trigger_deliveries", "triggers", "idempotency_keys", "audit", "tokens"):
        op.drop_table(table)


def _create_access() -> None:
    op.create_table(
        "tokens",
        sa.Column("token_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("created_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.Column("last_used_at", UtcTime(), nullable=True),
        sa.Column("expires_at", UtcTime(), nullable=True),
        sa.Column("revoked_at", UtcTime(), nullable=True),
        sa.CheckConstraint("role IN ('read', 'operate', 'admin')", name=op.f("ck_tokens_role")),
        sa.PrimaryKeyConstraint("token_id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("name", name=op.f("uq_tokens_name")),
    )
    op.create_table(
        "audit",
        sa.Column("seq", Serial, sa.Identity(), nullable=False),
        sa.Column("at", UtcTime(), server_default=now_text(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("via", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("object", sa.Text(), nullable=False),
        sa.Column("before", Json, nullable=True),
        sa.Column("after", Json, nullable=True),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_audit")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_object", "audit", ["object", "seq"])
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("answer", Json, nullable=True),
        sa.Column("created_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_idempotency_keys")),
    )


def _create_triggers() -> None:
    op.create_table(
        "triggers",
        sa.Column("trigger_id", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("pattern", sa.Text(), nullable=False),
        sa.Column("jobs", Json, server_default=sa.text("'[]'"), nullable=False),
        sa.Column("params", Json, server_default=sa.text("'{}'"), nullable=False),
        sa.Column("secret", sa.Text(), nullable=True),
        sa.Column("debounce_seconds", sa.Float(), server_default="0", nullable=False),
        sa.Column("enabled", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column("fired", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("matched", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("refused", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("refusals", Json, server_default=sa.text("'{}'"), nullable=False),
        sa.Column("last_fired_at", UtcTime(), nullable=True),
        sa.Column("last_refused_at", UtcTime(), nullable=True),
        sa.Column("last_refusal", sa.Text(), nullable=True),
        sa.Column("created_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.Column("updated_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.CheckConstraint("kind IN ('webhook', 'channel', 'stream')", name=op.f("ck_triggers_kind")),
        sa.PrimaryKeyConstraint("trigger_id", name=op.f("pk_triggers")),
        sa.UniqueConstraint("kind", "pattern", name=op.f("uq_triggers_kind_pattern")),
    )
    op.create_table(
        "trigger_deliveries",
        sa.Column("trigger_id", sa.String(length=36), nullable=False),
        sa.Column("delivery_id", sa.Text(), nullable=False),
        sa.Column("signature", sa.Text(), nullable=True),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("received_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.Column("fires_at", UtcTime(), nullable=True),
        sa.Column("answer", Json, server_default=sa.text("'{}'"), nullable=False),
        sa.PrimaryKeyConstraint("trigger_id", "delivery_id", name=op.f("pk_trigger_deliveries")),
        sa.UniqueConstraint("trigger_id", "signature", name=op.f("uq_trigger_deliveries_trigger_id_signature")),
    )
    op.create_index("ix_trigger_deliveries_received_at", "trigger_deliveries", ["received_at"])
    _partial_index("ix_trigger_deliveries_fires_at", "trigger_deliveries", ["trigger_id", "fires_at"], "fires_at")
    for column in _COLUMNS:
        _partial_index(f"ix_jobs_{column}", "jobs", [column], column)


def _partial_index(name: str, table: str, columns: list[str], column: str) -> None:
    where = sa.text(f"{column} IS NOT NULL")
    op.create_index(name, table, columns, postgresql_where=where, sqlite_where=where)
