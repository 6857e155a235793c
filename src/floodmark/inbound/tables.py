"""Tables of external triggers."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    Index,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
    true,
)

from floodmark.store.schema import metadata, partial_index
from floodmark.store.types import Json, UtcTime, now_text

# External triggers. `jobs` are ids or names, `params` maps params to variables, `secret` is encrypted.
triggers = Table(
    "triggers",
    metadata,
    Column("trigger_id", String(36), primary_key=True),
    Column("kind", Text, nullable=False),
    Column("pattern", Text, nullable=False),
    Column("jobs", Json, nullable=False, server_default=text("'[]'")),
    Column("params", Json, nullable=False, server_default=text("'{}'")),
    Column("secret", Text),
    Column("debounce_seconds", Float, nullable=False, server_default="0"),
    Column("enabled", Boolean, nullable=False, server_default=true()),
    Column("fired", BigInteger, nullable=False, server_default="0"),
    Column("matched", BigInteger, nullable=False, server_default="0"),
    Column("hinted", BigInteger, nullable=False, server_default="0"),
    Column("refused", BigInteger, nullable=False, server_default="0"),
    # Counts by reason.
    Column("refusals", Json, nullable=False, server_default=text("'{}'")),
    Column("last_fired_at", UtcTime),
    Column("last_refused_at", UtcTime),
    Column("last_refusal", Text),
    Column("created_at", UtcTime, nullable=False, server_default=now_text()),
    Column("updated_at", UtcTime, nullable=False, server_default=now_text()),
    CheckConstraint("kind IN ('webhook', 'channel', 'stream')", name="kind"),
    UniqueConstraint("kind", "pattern"),
)

# Taken deliveries and their answers, so that a repeated one fires nothing. `subject` is the path, channel or stream;
# `fires_at` is when its executions may start, which is later than `received_at` during a debounce.
trigger_deliveries = Table(
    "trigger_deliveries",
    metadata,
    Column("trigger_id", String(36), nullable=False),
    Column("delivery_id", Text, nullable=False),
    Column("signature", Text),
    Column("subject", Text, nullable=False),
    Column("received_at", UtcTime, nullable=False, server_default=now_text()),
    Column("fires_at", UtcTime),
    Column("answer", Json, nullable=False, server_default=text("'{}'")),
    PrimaryKeyConstraint("trigger_id", "delivery_id"),
    UniqueConstraint("trigger_id", "signature"),
    Index("ix_trigger_deliveries_received_at", "received_at"),
)
partial_index(
    "ix_trigger_deliveries_fires_at",
    "fires_at IS NOT NULL",
    trigger_deliveries.c.trigger_id,
    trigger_deliveries.c.fires_at,
)
