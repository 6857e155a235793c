"""Channels for notifications, for readers."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct


class ChannelRow(Struct, frozen=True, kw_only=True):
    """A channel that people are notified over, and the messages of watches that wait for it."""

    name: Annotated[str, Meta(description="`slack`, `email`, or one of another package.")]
    place: Annotated[str | None, Meta(description="The receiver, without secrets; null if it is not configured.")]
    is_configured: Annotated[bool, Meta(description="Whether the process that responds has its settings.")]
    watches: Annotated[int, Meta(description="Watches that notify over it.")] = 0
    unsent: Annotated[int, Meta(description="Messages that could not be sent yet.")] = 0
    attempts: Annotated[int, Meta(description="Failed attempts of the message that failed most often.")] = 0
    error: Annotated[str | None, Meta(description="Why one of them failed; null if none has failed.")] = None
    retry_at: Annotated[datetime | None, Meta(description="When the next attempt is due.")] = None
    sent_at: Annotated[datetime | None, Meta(description="When the last message of a watch was sent.")] = None


class ChannelTest(Struct, frozen=True, kw_only=True):
    """A test message that the receiver has accepted."""

    channel: str
    place: str
    message_id: str
    seconds: Annotated[float, Meta(description="How long it took.")]
