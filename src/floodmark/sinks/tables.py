"""Tables of sinks. Their positions are in the table `consumers`, under `sink:<name>`."""

from sqlalchemy import BigInteger, Boolean, Column, Integer, PrimaryKeyConstraint, Table, Text, false, true

from floodmark.store.schema import metadata, partial_index
from floodmark.store.types import UtcTime, now_text

# Written by the leader: API processes and commands need not have the settings of the sinks.
sinks = Table(
    "sinks",
    metadata,
    Column("name", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    # The patterns of the streams that it gets; null: all.
    Column("streams", Text),
    # False: the last leader started without it.
    Column("is_configured", Boolean, nullable=False, server_default=true()),
    # Failures in a row, and when it is tried again.
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("retry_at", UtcTime),
)

# Events that a receiver refuses. The content is in `items` or `item_revisions`, which outlive the outbox.
sink_letters = Table(
    "sink_letters",
    metadata,
    Column("sink", Text, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("stream", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("error", Text, nullable=False),
    Column("failed_at", UtcTime, nullable=False, server_default=now_text()),
    # Someone has asked for it to be sent again.
    Column("is_retried", Boolean, nullable=False, server_default=false()),
    PrimaryKeyConstraint("sink", "position"),
)
partial_index("ix_sink_letters_retried", "is_retried", sink_letters.c.sink, sink_letters.c.position)
