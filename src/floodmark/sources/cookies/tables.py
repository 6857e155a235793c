"""Tables of the cookie scans."""

from sqlalchemy import BigInteger, Column, Index, LargeBinary, String, Table, Text, text

from floodmark.store.schema import metadata
from floodmark.store.types import Json, UtcTime, new_id, now_text

# Named parameter sets of cookie scans. A job uses one by `profile_id`; its own parameters take precedence.
scan_profiles = Table(
    "scan_profiles",
    metadata,
    Column("profile_id", String(36), primary_key=True, server_default=new_id()),
    Column("name", Text),
    Column("description", Text),
    Column("params", Json, nullable=False, server_default=text("'{}'")),
    Column("created_at", UtcTime, nullable=False, server_default=now_text()),
    Column("updated_at", UtcTime, nullable=False, server_default=now_text()),
)

# Pictures and documents of items, by the digest of their content.
blobs = Table(
    "blobs",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("media_type", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("content", LargeBinary, nullable=False),
    # Updated when a later report has the same content.
    Column("kept_at", UtcTime, nullable=False, server_default=now_text()),
    Index("ix_blobs_kept_at", "kept_at"),
)
