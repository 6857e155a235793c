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

# What fires jobs from outside. `jobs` are ids or names, `params` says which variable becomes which param; `secret`
# is sealed.
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
    Column("refused", BigInteger, nullable=False, server_default="0"),
    # How often for which reason.
    Column("refusals", Json, nullable=False, server_default=text("'{}'")),
    Column("last_fired_at", UtcTime),
    Column("last_refused_at", UtcTime),
    Column("last_refusal", Text),
    Column("created_at", UtcTime, nullable=False, server_default=now_text()),
    Column("updated_at", UtcTime, nullable=False, server_default=now_text()),
    CheckConstraint("kind IN ('webhook', 'channel', 'stream')", name="kind"),
    UniqueConstraint("kind", "pattern"),
)

# Deliveries that were taken, so that one that comes twice fires once, and what was answered. `subject` is the path,
# channel or stream it came through; `fires_at` when what it fired may start, later than it came while a trigger rests.
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
