"""Tables of the migration from another scheduler."""

from sqlalchemy import Column, PrimaryKeyConstraint, String, Table

from floodmark.store.schema import metadata
from floodmark.store.types import UtcTime, now_text

# What would have been fired for jobs that still belong to an older scheduler.
shadow_fires = Table(
    "shadow_fires",
    metadata,
    Column("job_id", String(36), nullable=False),
    Column("scheduled_for", UtcTime, nullable=False),
    Column("recorded_at", UtcTime, nullable=False, server_default=now_text()),
    PrimaryKeyConstraint("job_id", "scheduled_for"),
)
