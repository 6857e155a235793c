"""Tables of watches.

watches               the definitions; people change them
watch_counts          what a watch has found; the evaluator changes it
watch_matches         the matches of a watch; deleted after HISTORY_KEEP_DAYS
watch_channels        how far a channel was notified of the matches of a watch
watch_notifications   messages, one for each channel; deleted after HISTORY_KEEP_DAYS

The position of the evaluator is the row `watches` in `consumers`. Its `state` counts the changes of watches
(`generation`), and its row is the lock of all changes of watches and matches.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

from floodmark.store.schema import metadata, partial_index
from floodmark.store.types import Json, Serial, UtcTime, now_text

_OF_WATCH = ("watches.watch_id",)

watches = Table(
    "watches",
    metadata,
    Column("watch_id", String(36), primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False, server_default="items"),
    Column("query", Text),
    Column("pattern", Text),
    Column("whole_word", Boolean, nullable=False, server_default=false()),
    Column("conditions", Json, nullable=False, server_default=text("'[]'")),
    Column("streams", Json, nullable=False, server_default=text("'[]'")),
    Column("sources", Json, nullable=False, server_default=text("'[]'")),
    Column("tags", Json, nullable=False, server_default=text("'[]'")),
    Column("channels", Json, nullable=False, server_default=text("'[]'")),
    Column("threshold_count", Integer),
    Column("threshold_seconds", Float),
    Column("digest", Text),
    Column("quiet", Text),
    Column("timezone", Text, nullable=False, server_default="UTC"),
    Column("cooldown_seconds", Float),
    Column("max_age_seconds", Float),
    Column("paused", Boolean, nullable=False, server_default=false()),
    # Events up to this position, and sources gone before this time, are not looked at: it was added or resumed later.
    Column("after_position", BigInteger, nullable=False, server_default="0"),
    Column("active_at", UtcTime, nullable=False, server_default=now_text()),
    # The number of its last change, among the changes of all watches.
    Column("generation", BigInteger, nullable=False),
    Column("version", Integer, nullable=False, server_default="1"),
    Column("created_at", UtcTime, nullable=False, server_default=now_text()),
    Column("updated_at", UtcTime, nullable=False, server_default=now_text()),
    Index("ix_watches_generation", "generation"),
)

watch_counts = Table(
    "watch_counts",
    metadata,
    Column("watch_id", String(36), ForeignKey(*_OF_WATCH, ondelete="CASCADE"), primary_key=True),
    Column("matches", BigInteger, nullable=False, server_default="0"),
    Column("suppressed", BigInteger, nullable=False, server_default="0"),
    Column("last_match_at", UtcTime),
    # Matches that were stored in the hour of the last match: beyond a limit they are only counted.
    Column("hour", UtcTime),
    Column("stored", Integer, nullable=False, server_default="0"),
)

watch_matches = Table(
    "watch_matches",
    metadata,
    Column("seq", Serial, Identity(), primary_key=True),
    Column("watch_id", String(36), ForeignKey(*_OF_WATCH, ondelete="CASCADE"), nullable=False),
    # The event, or the state of a job: a match is stored once for each.
    Column("event_id", Text, nullable=False),
    Column("stream", Text, nullable=False),
    Column("key", Text),
    Column("revision", Integer),
    Column("position", BigInteger),
    Column("at", UtcTime, nullable=False),
    # Whether people are notified of it: below the threshold of its watch it only counts.
    Column("is_due", Boolean, nullable=False),
    Column("title", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("url", Text),
    Column("created_at", UtcTime, nullable=False, server_default=now_text()),
    UniqueConstraint("event_id", "watch_id"),
    Index("ix_watch_matches_watch_id_seq", "watch_id", "seq"),
    Index("ix_watch_matches_created_at", "created_at"),
    sqlite_autoincrement=True,
)
# Matches that count for a threshold.
partial_index("ix_watch_matches_counting", "NOT is_due", watch_matches.c.watch_id, watch_matches.c.at)

watch_channels = Table(
    "watch_channels",
    metadata,
    Column("watch_id", String(36), ForeignKey(*_OF_WATCH, ondelete="CASCADE"), nullable=False),
    Column("channel", Text, nullable=False),
    # Every match up to this one is part of a message.
    Column("notified_seq", BigInteger, nullable=False, server_default="0"),
    # Matches that are part of no message yet, and when the message is due.
    Column("waiting", BigInteger, nullable=False, server_default="0"),
    Column("due_at", UtcTime),
    # The message that is being sent: the next one is made after it.
    Column("notification_id", String(36)),
    Column("sent_at", UtcTime),
    PrimaryKeyConstraint("watch_id", "channel"),
)
partial_index("ix_watch_channels_due_at", "due_at IS NOT NULL AND notification_id IS NULL", watch_channels.c.due_at)

watch_notifications = Table(
    "watch_notifications",
    metadata,
    Column("notification_id", String(36), primary_key=True),
    Column("watch_id", String(36), ForeignKey(*_OF_WATCH, ondelete="CASCADE"), nullable=False),
    Column("channel", Text, nullable=False),
    Column("matches", BigInteger, nullable=False),
    Column("message", Json, nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    # When to try again; NULL once it was sent.
    Column("try_at", UtcTime),
    Column("sent_at", UtcTime),
    Column("error", Text),
    Column("created_at", UtcTime, nullable=False, server_default=now_text()),
    Index("ix_watch_notifications_watch_id", "watch_id", "notification_id"),
)
partial_index("ix_watch_notifications_try_at", "try_at IS NOT NULL", watch_notifications.c.try_at)
