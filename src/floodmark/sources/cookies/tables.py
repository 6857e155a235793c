"""Tables of the cookie scans."""

from sqlalchemy import (
    BigInteger,
    Column,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    text,
)

from floodmark.store.schema import metadata, partial_index
from floodmark.store.tables import watermarks
from floodmark.store.types import Json, Serial, UtcTime, new_id, now_text

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

# Reports over all domains that were made.
portfolio_reports = Table(
    "portfolio_reports",
    metadata,
    Column("report_id", Serial, Identity(), primary_key=True),
    Column("made_at", UtcTime, nullable=False),
    Column("made_by", Text, nullable=False),
    Column("format", Text, nullable=False),
    Column("domains", Integer, nullable=False),
    Column("findings", Integer, nullable=False),
    Column("sha256", String(64)),
)

# The scans in these reports, with which the next one is compared.
portfolio_scans = Table(
    "portfolio_scans",
    metadata,
    Column("report_id", BigInteger, nullable=False),
    Column("stream", Text, nullable=False),
    Column("scan", Text, nullable=False),
    PrimaryKeyConstraint("report_id", "stream"),
)

# Which streams have scans, unless their job gives them another name.
OF_SCANS = "substr(stream, 1, 8) = 'cookies:'"
partial_index("ix_watermarks_cookie_scans", OF_SCANS, watermarks.c.stream)
