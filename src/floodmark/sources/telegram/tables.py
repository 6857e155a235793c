"""Tables of the Telegram source."""

from sqlalchemy import BigInteger, CheckConstraint, Column, Index, PrimaryKeyConstraint, Table, Text

from floodmark.store.schema import metadata
from floodmark.store.types import UtcTime, now_text

# `secrets` is encrypted. The session is open in the one process that `holder` names, until `lease_until`.
accounts = Table(
    "accounts",
    metadata,
    Column("name", Text, primary_key=True),
    Column("kind", Text, nullable=False, server_default="telegram"),
    Column("api_id", BigInteger, nullable=False),
    Column("secrets", Text, nullable=False),
    Column("phone", Text),
    Column("tenant_id", Text),
    Column("user_id", Text),
    Column("state", Text, nullable=False, server_default="active"),
    Column("reason", Text),
    Column("holder", Text),
    Column("lease_until", UtcTime),
    Column("last_used_at", UtcTime),
    Column("created_at", UtcTime, nullable=False, server_default=now_text()),
    Column("updated_at", UtcTime, nullable=False, server_default=now_text()),
    CheckConstraint("state IN ('active', 'parked')", name="state"),
)

# The channels that accounts know: looking up names is what causes flood waits.
telegram_channels = Table(
    "telegram_channels",
    metadata,
    Column("account", Text, nullable=False),
    Column("channel_id", BigInteger, nullable=False),
    Column("access_hash", BigInteger, nullable=False),
    Column("username", Text),
    Column("title", Text),
    Column("updated_at", UtcTime, nullable=False, server_default=now_text()),
    PrimaryKeyConstraint("account", "channel_id"),
    Index("ix_telegram_channels_username", "username"),
)
