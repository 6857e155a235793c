"""Tables of the HTTP API."""

from sqlalchemy import Column, Table, Text

from floodmark.store.schema import metadata
from floodmark.store.types import Json, UtcTime, now_text

# Answers to requests that may be repeated, by whom and under which key; forgotten after a day.
idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("key", Text, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    Column("answer", Json),
    Column("created_at", UtcTime, nullable=False, server_default=now_text()),
)
