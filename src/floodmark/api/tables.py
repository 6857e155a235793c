"""Tables of the HTTP API."""

from sqlalchemy import Column, Table, Text

from floodmark.store.schema import metadata
from floodmark.store.types import Json, UtcTime, now_text

# Responses to requests with an Idempotency-Key, by caller and key; deleted after a day.
idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("key", Text, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    Column("answer", Json),
    Column("created_at", UtcTime, nullable=False, server_default=now_text()),
)
