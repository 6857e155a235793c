"""Tables of the Telegram source."""

from sqlalchemy import BigInteger, CheckConstraint, Column, Index, Integer, PrimaryKeyConstraint, Table, Text

from floodmark.store.schema import metadata
from floodmark.store.types import Json, UtcTime, now_text

# `secrets` is encrypted; `phone` and `proxy` are masked. `takeout_id` is the open takeout session.
# The session is open in the one process that `holder` names, until `lease_until`.
accounts = Table(
    "accounts",
    metadata,
    Column("name", Text, primary_key=True),
    Column("kind", Text, nullable=False, server_default="telegram"),
    Column("api_id", BigInteger, nullable=False),
    Column("secrets", Text, nullable=False),
    Column("phone", Text),
    Column("proxy", Text),
    Column("takeout_id", BigInteger),
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

# Views, forwards and reactions of posts at certain ages. `point` is the age in seconds for which a sample counts; 0 is
# the newest change that was seen.
telegram_engagement = Table(
    "telegram_engagement",
    metadata,
    Column("stream", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("point", Integer, nullable=False),
    Column("seen_at", UtcTime, nullable=False),
    Column("views", BigInteger),
    Column("forwards", BigInteger),
    Column("replies", BigInteger),
    Column("reactions", Json),
    PrimaryKeyConstraint("stream", "key", "point"),
)

# Files of posts: those to be downloaded, and those that are stored under the hash of their content. The process
# `holder` downloads a file until `lease_until`. `key` and `message_id` are those of the post that named the file last.
media = Table(
    "media",
    metadata,
    Column("media_id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("stream", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("channel_id", BigInteger, nullable=False),
    Column("message_id", BigInteger, nullable=False),
    Column("size", BigInteger),
    Column("media_type", Text),
    Column("filename", Text),
    Column("state", Text, nullable=False, server_default="wanted"),
    Column("sha256", Text),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("try_at", UtcTime, nullable=False, server_default=now_text()),
    Column("error", Text),
    Column("holder", Text),
    Column("lease_until", UtcTime),
    Column("created_at", UtcTime, nullable=False, server_default=now_text()),
    Column("stored_at", UtcTime),
    CheckConstraint("state IN ('wanted', 'stored', 'skipped', 'failed', 'gone', 'pruned')", name="state"),
    Index("ix_media_stream", "stream", "media_id"),
    Index("ix_media_state", "state", "media_id"),
    # Files that are due; files that can be deleted; files that need a content.
    Index("ix_media_state_try_at", "state", "try_at", "media_id"),
    Index("ix_media_state_sha256", "state", "sha256"),
    Index("ix_media_sha256", "sha256", "state"),
)

# Logins that wait for their code or password, for some minutes. `login_id` is a digest, `secrets` is encrypted.
account_logins = Table(
    "account_logins",
    metadata,
    Column("login_id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("account", Text, nullable=False),
    Column("step", Text, nullable=False),
    Column("how", Text, nullable=False),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column("secrets", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False, server_default=now_text()),
    Column("expires_at", UtcTime, nullable=False),
    CheckConstraint("step IN ('code', 'password')", name="step"),
)
