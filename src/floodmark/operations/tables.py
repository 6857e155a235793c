"""Tables of access: tokens, and sessions of the dashboard."""

from sqlalchemy import CheckConstraint, Column, ForeignKey, String, Table, Text

from floodmark.store.schema import metadata
from floodmark.store.types import UtcTime, now_text

# Only the digest of a token is kept. It counts until it is revoked or expires.
tokens = Table(
    "tokens",
    metadata,
    Column("token_id", String(36), primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("role", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False, server_default=now_text()),
    Column("last_used_at", UtcTime),
    Column("expires_at", UtcTime),
    Column("revoked_at", UtcTime),
    CheckConstraint("role IN ('read', 'operate', 'admin')", name="role"),
)

# A browser that signed in with a token. It may do what its token may, until it signs out, expires or is ended.
sessions = Table(
    "sessions",
    metadata,
    Column("session_id", String(36), primary_key=True),
    Column("digest", Text, nullable=False),
    Column("token_id", String(36), ForeignKey("tokens.token_id", ondelete="CASCADE"), nullable=False, index=True),
    Column("browser", Text, nullable=False, server_default=""),
    Column("address", Text, nullable=False, server_default=""),
    Column("created_at", UtcTime, nullable=False, server_default=now_text()),
    Column("last_used_at", UtcTime, nullable=False, server_default=now_text()),
    Column("expires_at", UtcTime, nullable=False),
)
