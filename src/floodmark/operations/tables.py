"""Tables of access tokens."""

from sqlalchemy import CheckConstraint, Column, String, Table, Text

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
