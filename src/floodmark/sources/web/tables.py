"""Tables of the web source."""

from sqlalchemy import BigInteger, Column, Index, Integer, PrimaryKeyConstraint, Table, Text

from floodmark.store.schema import metadata, partial_index
from floodmark.store.types import Json, UtcTime

# Known pages of a site. The frontier index orders them: never visited first, then those visited longest ago.
pages = Table(
    "pages",
    metadata,
    Column("stream", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("depth", Integer, nullable=False, server_default="0"),
    Column("place", BigInteger, nullable=False, server_default="0"),
    Column("crawl", Integer, nullable=False, server_default="0"),
    Column("status", Integer),
    Column("etag", Text),
    Column("last_modified", Text),
    Column("content_hash", Text),
    Column("misses", Integer, nullable=False, server_default="0"),
    Column("note", Text),
    Column("visited_at", UtcTime),
    PrimaryKeyConstraint("stream", "url"),
    Index("ix_pages_frontier", "stream", "crawl", "depth", "place"),
    partial_index("ix_pages_content", "content_hash IS NOT NULL", "stream", "content_hash"),
)

# The keys of the matches on a page, of jobs that select parts of pages. A key that is missing later is a tombstone.
page_matches = Table(
    "page_matches",
    metadata,
    Column("stream", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("keys", Json, nullable=False),
    PrimaryKeyConstraint("stream", "url"),
)
