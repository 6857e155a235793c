"""Tables of the feed source."""

from sqlalchemy import BigInteger, CheckConstraint, Column, Index, Integer, Table, Text

from floodmark.store.schema import metadata
from floodmark.store.types import UtcTime, now_text

# Feeds that name a WebSub hub, and the subscriptions there. `callback` is the unguessable end of the callback URL,
# `secret` is encrypted with it as the label, `due_at` is when the subscription needs the next request.
feed_subscriptions = Table(
    "feed_subscriptions",
    metadata,
    Column("target", Text, primary_key=True),
    Column("hub", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("callback", Text, nullable=False),
    Column("secret", Text),
    Column("state", Text, nullable=False, server_default="found"),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column("due_at", UtcTime, nullable=False, server_default=now_text()),
    Column("asked_at", UtcTime),
    Column("expires_at", UtcTime),
    Column("last_error", Text),
    Column("pushes", BigInteger, nullable=False, server_default="0"),
    Column("last_push_at", UtcTime),
    Column("created_at", UtcTime, nullable=False, server_default=now_text()),
    CheckConstraint("state IN ('found', 'asked', 'active', 'leaving')", name="state"),
    Index("ix_feed_subscriptions_callback", "callback", unique=True),
    Index("ix_feed_subscriptions_due_at", "due_at"),
)
