"""Tables of outgoing calls: rate limits and circuit breakers, shared by all processes."""

from sqlalchemy import CheckConstraint, Column, Float, Integer, Table, Text

from floodmark.store.schema import metadata
from floodmark.store.types import Json, UtcTime, now_text

limits = Table(
    "limits",
    metadata,
    Column("key", Text, primary_key=True),
    Column("until", UtcTime, nullable=False),
    Column("reason", Text, nullable=False),
    Column("hits", Integer, nullable=False, server_default="1"),
    Column("updated_at", UtcTime, nullable=False, server_default=now_text()),
    # Calls per second that are allowed after the limit has ended.
    Column("rate", Float),
)

breakers = Table(
    "breakers",
    metadata,
    Column("key", Text, primary_key=True),
    Column("state", Text, nullable=False, server_default="closed"),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("window_began", UtcTime),
    # Times of those failures, at most as many as it takes to open the breaker.
    Column("failed_at", Json),
    Column("open_until", UtcTime),
    # Until then a probe is running; later it counts as lost.
    Column("probe_until", UtcTime),
    Column("trips", Integer, nullable=False, server_default="0"),
    Column("reason", Text),
    Column("updated_at", UtcTime, nullable=False, server_default=now_text()),
    CheckConstraint("state IN ('closed', 'open', 'half-open')", name="state"),
)
