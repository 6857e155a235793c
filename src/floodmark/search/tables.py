"""Tables of the search index on PostgreSQL. On SQLite the index has a file of its own: see `sqlite.py`.

Only PostgreSQL imports this module. All of it can be made again from the items.
"""

from sqlalchemy import BigInteger, CheckConstraint, Column, Identity, Index, Integer, SmallInteger, Table, Text
from sqlalchemy.dialects.postgresql import TSVECTOR

from floodmark.store.schema import postgres_metadata

# How far the index is built, as JSON.
search_state = Table(
    "search_state",
    postgres_metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("value", Text, nullable=False),
    CheckConstraint("id = 1", name="one_row"),
)

# The documents of a stream have the token `::<stream_id>`.
search_streams = Table(
    "search_streams",
    postgres_metadata,
    Column("stream_id", Integer, Identity(), primary_key=True),
    Column("stream", Text, nullable=False, unique=True),
)

search_fields = Table("search_fields", postgres_metadata, Column("name", Text, primary_key=True))

# `id` follows the time of the item: see `document_ids.py`. `hash` is that of stream and key.
search_documents = Table(
    "search_documents",
    postgres_metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("stream_id", Integer, nullable=False),
    Column("key", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("hash", BigInteger, nullable=False),
    Column("tokens", TSVECTOR, nullable=False),
    Index("ix_search_documents_hash", "hash"),
    Index("ix_search_documents_tokens", "tokens", postgresql_using="gin"),
)
